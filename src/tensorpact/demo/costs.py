"""What a call costs with its contract, without it, and what the contract costs by itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from tensorpact.contracts import Contract
from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.demo.cases import Arguments
from tensorpact.demo.results import Cost

_SHORT_LOOP = 200
_LOOPS = 21


def measure(op: Any, call: Arguments, *, device: str, seconds: float) -> Cost:
    """Measure one call for about `seconds`; the calls with and without contract alternate.

    The call is repeated as it is, so it has to be one that can be: tensors that it writes into
    stay valid arguments.
    """
    arguments = positional(op.contract, call)
    checked, unchecked = _waited_for(op, device), _waited_for(op.unchecked, device)
    first = _timed(checked, arguments)
    _timed(unchecked, arguments)
    repeats = max(3, min(200, int(seconds / (2 * max(first, 1e-6)))))
    with_contract: list[float] = []
    without: list[float] = []
    for turn in range(repeats):
        sides = [(checked, with_contract), (unchecked, without)]
        for function, times in sides if turn % 2 == 0 else reversed(sides):
            times.append(_timed(function, arguments))
    return Cost(
        with_contract_us=1e6 * statistics.median(with_contract),
        without_us=1e6 * statistics.median(without),
        contract_alone_us=1e6 * contract_alone(op.contract, arguments),
        repeats=repeats,
    )


def contract_alone(contract: Contract[..., Any], arguments: tuple[Any, ...]) -> float:
    """Return the seconds that the guard adds to a function that does nothing."""

    def nothing(*arguments: Any, **options: Any) -> None:
        """Take any arguments."""

    guarded = enforce(contract, nothing, check_result=False)
    differences = [_loop(guarded, arguments) - _loop(nothing, arguments) for _ in range(_LOOPS)]
    return max(0.0, statistics.median(differences))


def positional(contract: Contract[..., Any], call: Arguments) -> tuple[Any, ...]:
    """Return a call's arguments in order, with the defaults of those it leaves out."""
    accepted = [p for p in contract.parameters if p.kind is not p.kind.KEYWORD_ONLY]
    return tuple(call.get(parameter.name, parameter.default) for parameter in accepted)


def _waited_for(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Return a call that lasts until its device is done."""
    if not device.startswith("cuda"):
        return function

    def call(*arguments: Any) -> None:
        function(*arguments)
        torch.cuda.synchronize()

    return call


def _timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _loop(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    for _ in range(_SHORT_LOOP):
        function(*arguments)
    return (time.perf_counter() - start) / _SHORT_LOOP
