"""The three modes: read at import, entered for a block, kept to one context."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import tensorpact.contracts.checker.mode as mode_module
from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.contracts.checker.mode import ModeSwitch, in_debug_mode, mode, switch
from tensorpact.contracts.language.contract import contract


def _op(x: Float[Tensor, "n"], y: Float[Tensor, "n"], z: Float[Tensor, "n"]) -> None: ...


op = enforce(contract()(_op), _op, check_result=False)
X, SHORT = torch.zeros(3), torch.zeros(2)


def count_of_violations() -> int:
    with pytest.raises(ContractError) as caught:
        op(X, SHORT, SHORT)
    return len(caught.value.violations)


def run_python(code: str, value: str | None) -> subprocess.CompletedProcess[str]:
    root = Path(mode_module.__file__).parents[3]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("TENSORPACT_MODE", None)
    if value is not None:
        environment["TENSORPACT_MODE"] = value
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "on"), ("", "on"), ("on", "on"), ("off", "off"), (" DEBUG ", "debug")],
)
def test_mode__is_read_from_the_environment(
    value: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORPACT_MODE", raising=False)
    if value is not None:
        monkeypatch.setenv("TENSORPACT_MODE", value)
    assert mode_module.mode_from_environment() == expected


def test_mode__off_is_read_at_import() -> None:
    code = "from tensorpact.contracts.checker.mode import switch; print(switch.start)"
    assert run_python(code, "off").stdout.strip() == "off"


def test_mode__garbage_in_the_environment_is_an_error() -> None:
    done = run_python("import tensorpact.contracts.checker.mode", "sometimes")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ValueError: TENSORPACT_MODE='sometimes': expected one of off, on, debug."
    )


def test_mode__started_in_debug_mode_collects_everything() -> None:
    code = """
import torch
from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.language.contract import contract
from jaxtyping import Float
def op(x: Float[torch.Tensor, "n"], y: Float[torch.Tensor, "n"], z: Float[torch.Tensor, "n"]): ...
try:
    enforce(contract()(op), op, check_result=False)(*map(torch.zeros, (3, 2, 2)))
except ValueError as error:
    print(len(error.violations))
"""
    assert run_python(code, "debug").stdout.strip() == "2"
    assert run_python(code, "on").stdout.strip() == "1"


def test_mode__debug_holds_for_a_block() -> None:
    assert count_of_violations() == 1
    with mode("debug"):
        assert in_debug_mode()
        assert count_of_violations() == 2
        with mode("on"):
            assert count_of_violations() == 1
        assert count_of_violations() == 2
    assert count_of_violations() == 1
    assert not switch.maybe_debug


def test_mode__is_left_when_the_block_fails() -> None:
    with pytest.raises(KeyError), mode("debug"):
        raise KeyError
    assert not in_debug_mode()
    assert not switch.maybe_debug


def test_mode__belongs_to_the_thread_that_entered_it() -> None:
    found: list[int] = []
    with mode("debug"):
        thread = threading.Thread(target=lambda: found.append(count_of_violations()))
        thread.start()
        thread.join()
        assert count_of_violations() == 2
    assert found == [1]


def test_mode__belongs_to_the_task_that_entered_it() -> None:
    entered, looked = asyncio.Event(), asyncio.Event()

    async def enter() -> int:
        with mode("debug"):
            entered.set()
            await looked.wait()
            return count_of_violations()

    async def look() -> int:
        await entered.wait()
        looked.set()
        return count_of_violations()

    async def both() -> list[int]:
        return list(await asyncio.gather(enter(), look()))

    assert asyncio.run(both()) == [2, 1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("off", "mode 'off' is chosen before import: set TENSORPACT_MODE=off."),
        ("loud", "unknown mode 'loud': expected one of off, on, debug."),
    ],
)
def test_mode__refuses_what_cannot_be_entered(name: str, text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        mode(name)
    assert str(caught.value) == text


def test_mode_switch__counts_who_is_in() -> None:
    own = ModeSwitch("on")
    with own.entered("debug"):
        assert (own.current, own.maybe_debug) == ("debug", True)
    assert (own.current, own.maybe_debug) == ("on", False)
    started = ModeSwitch("debug")
    with started.entered("on"):
        assert (started.current, started.maybe_debug) == ("on", True)
    assert (started.current, started.maybe_debug) == ("debug", True)
