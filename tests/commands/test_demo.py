"""`tensorpact demo`."""

import functools
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tensorpact.__main__ import main
from tensorpact.backends import implements, registry
from tensorpact.commands.finding import own_ops
from tensorpact.commands.progress import Progress
from tensorpact.demo.cases import SMALL_KDA, kda_packed_call
from tensorpact.demo.costs import contract_alone, positional
from tensorpact.demo.mistakes import MISTAKES
from tensorpact.demo.printing import demo_lines
from tensorpact.demo.real_sizes import REAL_CASES, with_count
from tensorpact.demo.results import Check, DemoResult, MistakeResult
from tensorpact.demo.session import run_demo
from tensorpact.ops import kda_packed_decode

QUICK = ["demo", "--quick", "--device", "cpu"]


@pytest.fixture
def backend_that_writes_too_much() -> Iterator[None]:
    """A backend of `kda_packed_decode` that also changes a slot that no row has."""
    contract = kda_packed_decode.contract
    eager = next(i for i in registry.implementations(contract) if i.backend == "eager").function

    @functools.wraps(eager)
    def careless(*arguments: Any) -> Any:
        out, state = eager(*arguments)
        state.view(-1)[:].add_(1.0)
        return out, state

    implements(contract, backend="careless", priority=1000)(careless)
    yield
    registry.remove(contract, "careless")


def test_demo__json_is_one_document_and_all_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["ok"] is True
    assert {run["op"] for run in document["runs"]} == set(own_ops())
    assert len(document["mistakes"]) == len(MISTAKES)
    for part in (*document["runs"], *document["mistakes"]):
        assert part["checks"]
        assert all(check["ok"] is True for check in part["checks"])
    for run in document["runs"]:
        assert run["cost"]["contract_alone_us"] > 0
    for mistake in document["mistakes"]:
        assert mistake["message"]
        assert mistake["cause"]
        assert mistake["fix"]


def test_demo__text_fits_100_columns_without_color(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(QUICK) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "\033" not in captured.out
    assert lines[-1].startswith("All held: ")
    for mistake in MISTAKES:
        assert any(line.strip().startswith(f"{mistake.slug}: ") for line in lines)
    assert any(line.startswith("running 1 of ") for line in captured.err.splitlines())
    assert "\r" not in captured.err


@pytest.mark.usefixtures("backend_that_writes_too_much")
def test_demo__wrong_backend_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    (run,) = [run for run in document["runs"] if run["op"] == "kda_packed_decode"]
    assert run["backend"] == "careless"
    failed = {check["name"] for check in run["checks"] if not check["ok"]}
    assert failed == {"other slots are untouched", "state against float64"}


@pytest.mark.usefixtures("backend_that_writes_too_much")
def test_demo__backend_that_is_named_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--backend", "eager", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "careless" not in {run["backend"] for run in document["runs"]}


def test_demo__unknown_backend_hints_at_the_near_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*QUICK, "--backend", "eagr"]) == 2
    assert "there is no backend 'eagr'. Did you mean `eager`?" in capsys.readouterr().err


def test_demo__unknown_device_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "toaster"]) == 2
    assert "the device 'toaster' cannot be used" in capsys.readouterr().err


def test_demo__needs_contracts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tensorpact", *QUICK],
        env={**os.environ, "TENSORPACT_MODE": "off"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "unset TENSORPACT_MODE" in done.stderr


def test_run_demo__says_what_it_does() -> None:
    said: list[str] = []
    result = run_demo(device="cpu", quick=True, say=said.append)
    assert len(said) == len(result.runs) + len(result.mistakes)


def test_printing__failure_is_red_on_a_terminal_and_says_why() -> None:
    checks = (Check("nothing was written", True), Check("the documented error", False, "got none"))
    mistake = MistakeResult("an_op", "a-slug", "what", "message", "cause", "fix", "legal", checks)
    machine = {"name": "CPU", "device": "cpu", "cpu_cores": 1, "python": "3", "torch": "2"}
    result = DemoResult(machine, (), (mistake,), 1.0)
    plain = list(demo_lines(result, color=False))
    assert "    FAILED   the documented error: got none" in plain
    assert plain[-1] == "1 did NOT hold: 2 checks, 0 runs, 1 mistakes, in 1.0 s."
    colored = list(demo_lines(result, color=True))
    assert "    \033[31mFAILED\033[0m   the documented error: got none" in colored


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress__one_line_on_a_terminal() -> None:
    terminal = Terminal()
    with Progress(terminal) as progress:
        progress.say("one")
        progress.say("two " + 200 * "x")
    text = terminal.getvalue()
    assert "\n" not in text
    assert text.endswith("\r\033[K")
    assert max(len(part) for part in text.split("\r\033[K")) < 100


def test_progress__plain_lines_elsewhere() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.say("one")
        progress.say("two")
    assert stream.getvalue() == "one\ntwo\n"


def test_costs__the_contract_alone_runs_no_kernel() -> None:
    call = kda_packed_call(SMALL_KDA)
    before = call["initial_state"].clone()
    arguments = positional(kda_packed_decode.contract, call)
    seconds = contract_alone(kda_packed_decode.contract, arguments)
    assert seconds >= 0
    assert torch.equal(call["initial_state"], before)


@pytest.mark.parametrize("case", REAL_CASES, ids=lambda case: f"{case.op}-{case.name}")
def test_real_cases__can_be_given_any_count(case: Any) -> None:
    grown = with_count(case.sizes, 11)
    assert 11 in (getattr(grown, "tokens", None), getattr(grown, "batch", None))


@pytest.mark.gpu
def test_demo__holds_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--device", "cuda"]) == 0, capsys.readouterr().out
