"""`tensorpact doctor`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tensorpact.__main__ import main
from tensorpact.backends import Requirements, registry
from tensorpact.backends.registry import Implementation
from tensorpact.commands.finding import own_ops
from tensorpact.ops import kda_packed_decode


@pytest.fixture
def only_an_unusable_backend() -> Iterator[None]:
    """Leave `kda_packed_decode` with nothing but a backend that cannot run here."""
    contract = kda_packed_decode.contract
    present = registry.implementations(contract)
    for implementation in present:
        registry.remove(contract, implementation.backend)
    needs = Requirements(package="package_that_is_not_there")
    registry.add(contract, Implementation("absent", lambda: None, 5, needs))
    yield
    registry.remove(contract, "absent")
    for implementation in present:
        registry.add(contract, implementation)


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_doctor__all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert torch.__version__ in out
    assert "CPU cores" in out
    for name in own_ops():
        assert name in out
    assert "eager (priority 0, needs nothing): usable" in out
    assert out.endswith("Problems\n  none\n")


def test_doctor__json_holds_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORPACT_BACKEND", "eager")
    assert main(["doctor", "--json"]) == 0
    found = findings(capsys)
    assert {"tensorpact", "python", "torch", "triton", "jaxtyping", "beartype"} == set(
        found["versions"]
    )
    assert found["mode"] in ("on", "debug")
    assert found["variables"]["TENSORPACT_BACKEND"] == "eager"
    assert "TENSORPACT_MODE" in found["variables"]
    assert len(found["devices"]["cuda"]) == torch.cuda.device_count()
    assert set(own_ops()) <= set(found["ops"])
    eager = [b for b in found["ops"]["kda_packed_decode"]["backends"] if b["backend"] == "eager"]
    assert eager[0]["usable"] is True
    assert found["problems"] == []


@pytest.mark.usefixtures("only_an_unusable_backend")
def test_doctor__op_without_a_usable_backend_is_a_problem(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert (
        "absent (priority 5, needs package package_that_is_not_there): not usable: the package "
        "`package_that_is_not_there` is not installed" in out
    )
    assert out.endswith(
        "Problems\n  kda_packed_decode has no backend that can run on this machine\n"
    )


@pytest.mark.usefixtures("only_an_unusable_backend")
def test_doctor__json_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 1
    (backend,) = findings(capsys)["ops"]["kda_packed_decode"]["backends"]
    assert backend["usable"] is False
    assert backend["reasons"] == ["the package `package_that_is_not_there` is not installed"]


def test_doctor__failed_plugin_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.plugin_problems, "theirs", "ImportError: no such thing")
    assert main(["doctor"]) == 1
    assert "plugin 'theirs' could not be loaded: ImportError: no such thing" in (
        capsys.readouterr().out
    )
