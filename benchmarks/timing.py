"""Interleaved timing: every approach is measured in every round, in a rotating order."""

from __future__ import annotations

import gc
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

CHUNKS = 10
"""Parts of an inner loop; the fastest one counts, as it was not interrupted."""

Call = tuple[Callable[..., object], tuple[Any, ...]]
"""A function and its positional arguments."""


@dataclass(frozen=True)
class Spread:
    """Figures of one kind, one for each round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile."""
        if len(self.rounds) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, high

    @property
    def is_wide(self) -> bool:
        """Whether the quartiles lie more than a tenth of the median apart."""
        low, high = self.quartiles
        return high - low > 0.1 * self.median

    def minus(self, other: Spread) -> Spread:
        """Subtract round by round, so that what slowed a whole round down cancels out."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return Spread(tuple(mine - theirs for mine, theirs in pairs))

    def over(self, other: Spread) -> Spread:
        """Divide round by round; nothing in the divisor costs less than a nanosecond."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return Spread(tuple(mine / max(theirs, 1e-3) for mine, theirs in pairs))

    def as_json(self) -> dict[str, Any]:
        return {"median": self.median, "quartiles": self.quartiles, "rounds": self.rounds}


def interleaved(calls: Mapping[str, Call], *, rounds: int, loop_ms: float) -> dict[str, Spread]:
    """Time calls side by side, in microseconds a call.

    Each round measures every call once, in an inner loop of about `loop_ms` whose fastest tenth
    counts. The order is rotated from round to round and turned around in every second one. Garbage
    collection is off.
    """
    names = list(calls)
    repeats = {name: _repeats(call, loop_ms / CHUNKS) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in names}
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for index in range(rounds):
            shift = index % len(names)
            order = names[shift:] + names[:shift]
            for name in order if index % 2 == 0 else reversed(order):
                elapsed = min(_loop(calls[name], repeats[name]) for _ in range(CHUNKS))
                found[name].append(elapsed / repeats[name] / 1e3)
    finally:
        if was_enabled:
            gc.enable()
    return {name: Spread(tuple(values)) for name, values in found.items()}


def rebuilt(build: Callable[[], object], *, rounds: int) -> Spread:
    """Time something that is done once at a time, in milliseconds."""
    build()
    values = []
    for _ in range(rounds):
        start = perf_counter_ns()
        build()
        values.append((perf_counter_ns() - start) / 1e6)
    return Spread(tuple(values))


def slope(sizes: Sequence[int], costs: Sequence[Spread]) -> tuple[float, float]:
    """Fit a line through medians: the cost of one more, and the fixed cost."""
    line = statistics.linear_regression(sizes, [cost.median for cost in costs])
    return line.slope, line.intercept


def _loop(call: Call, repeats: int) -> int:
    function, arguments = call
    start = perf_counter_ns()
    for _ in itertools.repeat(None, repeats):
        function(*arguments)
    return perf_counter_ns() - start


def _repeats(call: Call, loop_ms: float) -> int:
    """Find how many calls take `loop_ms`; it also warms the call up."""
    repeats = 1
    while True:
        elapsed = _loop(call, repeats)
        if elapsed >= loop_ms * 1e6 / 4:
            return max(1, round(repeats * loop_ms * 1e6 / elapsed))
        repeats *= 2
