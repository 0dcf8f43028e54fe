"""What it costs to validate a valid call: our contracts, checks by hand, and other libraries.

    python benchmarks/enforcement.py [--quick] [--check] [--json PATH] [--device cpu]

The op's body does nothing. Every approach is first run on the valid call and on broken ones; then
all are timed side by side in one process, in rounds of rotating order. The table shows the cost
beyond the undecorated function. README.md says how to read it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import one_time_costs
import torch
from approaches import (
    BARE,
    DOCUMENTED,
    FULL,
    JAXTYPING,
    OURS,
    Approach,
    Coverage,
    approaches,
    verify,
)
from calls import Subject, subjects
from synthetic import COUNTS, matrices, synthetic
from timing import Spread, interleaved, slope

from tensorpact.contracts.checker.mode import switch

LEGEND = """\
us: a valid call beyond the bare call. / doc., / all: over checks written by hand, those that an
engine documents, and all that tensorpact sees. / ours: over tensorpact. All of them medians over
the rounds. rejects: of our list of broken calls. refusal: raise, catch and format one error.
"""
LIBRARIES = ("torch", "jaxtyping", "beartype", "dltype", "icontract")
ONE_OP = "tensorpact.ops.kda_replayssm"
MODULES = {"kda_replayssm_decode": "kda_replayssm", "fused_kv_materialize": "fused_kv"}


@dataclass(frozen=True)
class Goal:
    """A figure that is to stay on one side of a bound."""

    text: str
    value: float
    bound: float
    at_most: bool = True

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        verdict = "pass" if self.holds else "MISS"
        return f"  {verdict}  {self.text}: {self.value:.3g} ({sign} {self.bound:g})"


@dataclass(frozen=True)
class Settings:
    """How long to measure."""

    rounds: int
    loop_ms: float
    processes: int
    device: str


@dataclass(frozen=True)
class Measured:
    """All figures of one subject: cost beyond the bare call, cost of a refusal, coverage."""

    subject: Subject
    bare: Spread
    net: dict[str, Spread]
    refusals: dict[str, Spread]
    coverage: dict[str, Coverage]

    def ratio(self, one: str, other: str) -> float:
        """Return the median over the rounds of one cost divided by another."""
        return self.net[one].over(self.net[other]).median


def measure(subject: Subject, settings: Settings) -> Measured:
    """Verify every approach, then time them side by side."""
    compared = approaches(subject.op)
    coverage = {approach.name: verify(approach, subject) for approach in compared}
    timed = interleaved(
        {approach.name: approach.call(subject.valid) for approach in compared},
        rounds=settings.rounds,
        loop_ms=settings.loop_ms,
    )
    broken = subject.broken[subject.key]
    refusals = interleaved(
        {
            approach.name: (_refusal(approach), approach.call(broken)[1])
            for approach in compared
            if approach.rejects_key
        },
        rounds=max(3, settings.rounds // 3),
        loop_ms=settings.loop_ms,
    )
    net = {name: spread.minus(timed[BARE]) for name, spread in timed.items() if name != BARE}
    return Measured(subject, timed[BARE], net, refusals, coverage)


def _refusal(approach: Approach) -> Callable[..., object]:
    """Return a function that makes a broken call and reads the message of what it raises."""

    def refused(*arguments: Any) -> str:
        try:
            approach.function(*arguments)
        except Exception as error:
            return str(error)
        raise AssertionError(f"{approach.name} has accepted a broken call.")

    return refused


def table(measured: Measured) -> Iterator[str]:
    """Print the figures of one subject, and what each approach does not see."""
    subject = measured.subject
    yield (
        f"{subject.title}: {subject.tensors} tensors, bare call {measured.bare.median:.2f} us, "
        f"refusal of: {subject.key}"
    )
    yield (
        f"  {'':28}{'us':>7} {'quartiles':>17} {'/ doc.':>7} {'/ all':>7} {'/ ours':>7}"
        f" {'rejects':>9} {'refusal us':>11}"
    )
    for name, spread in measured.net.items():
        low, high = spread.quartiles
        refusal = f"{measured.refusals[name].median:.0f}" if name in measured.refusals else "-"
        yield (
            f"  {name:28}{spread.median:7.2f} {f'{low:.2f} .. {high:.2f}':>17}"
            f" {measured.ratio(name, DOCUMENTED):7.2f} {measured.ratio(name, FULL):7.2f}"
            f" {measured.ratio(name, OURS):7.2f} {measured.coverage[name]!s:>9} {refusal:>11}"
        )
    if any(spread.is_wide for spread in measured.net.values()):
        yield "  Some quartiles are more than a tenth apart: the machine was busy."
    for name, coverage in measured.coverage.items():
        if name != BARE:
            yield from _wrapped(f"{name} {coverage.words(subject.broken)}")
    yield ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 98, initial_indent="  ", subsequent_indent="      ")


def call_goals(measured: Measured) -> Iterator[Goal]:
    title = measured.subject.title
    for by_hand in (DOCUMENTED, FULL):
        yield Goal(f"{title}: tensorpact / {by_hand}", measured.ratio(OURS, by_hand), 0.5)
    yield Goal(
        f"{title}: {JAXTYPING} / tensorpact",
        measured.ratio(JAXTYPING, OURS),
        15,
        at_most=False,
    )


def one_more_tensor(settings: Settings) -> tuple[dict[int, Spread], float, float]:
    """Time guards of 1 to 16 tensors; return the costs, the slope and the fixed cost."""
    timed = interleaved(
        {str(count): synthetic(count).call(matrices(count, settings.device)) for count in COUNTS},
        rounds=settings.rounds,
        loop_ms=settings.loop_ms,
    )
    costs = {count: timed[str(count)] for count in COUNTS}
    return costs, *slope(COUNTS, list(costs.values()))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure there")
    parser.add_argument("--device", default="cpu", help="where the tensors lie")
    options = parser.parse_args(arguments)
    if switch.start != "on" or not __debug__:
        # icontract does nothing under `python -O`, and neither do we under TENSORPACT_MODE=off.
        parser.error("run this without TENSORPACT_MODE and without -O")
    settings = (
        Settings(rounds=5, loop_ms=5, processes=3, device=options.device)
        if options.quick
        else Settings(rounds=21, loop_ms=25, processes=7, device=options.device)
    )
    versions = {name: version(name) for name in LIBRARIES}
    print(
        f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + f", tensors on {settings.device}, {settings.rounds} rounds"
    )
    print(LEGEND)

    goals: list[Goal] = []
    report: dict[str, Any] = {"versions": versions, "python": platform.python_version()}
    report["device"], report["calls"] = settings.device, {}
    for subject in subjects(settings.device):
        measured = measure(subject, settings)
        print("\n".join(table(measured)))
        goals += call_goals(measured)
        report["calls"][subject.title] = {
            "bare_us": measured.bare.as_json(),
            "net_us": {name: spread.as_json() for name, spread in measured.net.items()},
            "refusal_us": {name: spread.as_json() for name, spread in measured.refusals.items()},
            "passed_over": {name: seen.passed_over for name, seen in measured.coverage.items()},
        }

    if not one_time_costs.off_is_undecorated():
        raise AssertionError("TENSORPACT_MODE=off has not left a function as it was")
    print("tensorpact under TENSORPACT_MODE=off: 0, `op` returns the function itself (verified)\n")

    costs, each, fixed = one_more_tensor(settings)
    print("guard of n matrices, us: " + ", ".join(f"{n}: {c.median:.2f}" for n, c in costs.items()))
    print(f"  one more tensor {each:.3f} us, fixed {fixed:.2f} us (bare call included)\n")
    report["tensors_us"] = {str(count): cost.as_json() for count, cost in costs.items()}
    report["one_more_tensor_us"] = each

    report["decoration_ms"], report["first_decoration_ms"] = {}, {}
    for op, module in MODULES.items():
        built = one_time_costs.decoration(op, rounds=settings.rounds)
        first = one_time_costs.first_decoration(module, op, rounds=settings.processes)
        print(f"contract() + enforce() of {op}: {_shown(built, 'ms')}")
        print(
            f"  the first time in a process, with the import of its module: {_shown(first, 'ms')}"
        )
        goals.append(Goal(f"decoration of {op}, ms", built.median, 10))
        report["decoration_ms"][op] = built.as_json()
        report["first_decoration_ms"][op] = first.as_json()

    torch_alone, on_top = one_time_costs.imports("tensorpact", rounds=settings.processes)
    _, with_op = one_time_costs.imports(ONE_OP, rounds=settings.processes)
    alone, both = one_time_costs.whole_processes("tensorpact", rounds=settings.processes)
    print(f"\nimport torch: {_shown(torch_alone, 's')}")
    print(f"  then tensorpact: {_shown(on_top, 's')}; then {ONE_OP}: {_shown(with_op, 's')}")
    print(
        f"  python -c: import torch {_shown(alone, 's')}, with tensorpact {_shown(both, 's')}, "
        f"difference {both.minus(alone).median:.3f} s"
    )
    goals.append(Goal("import of tensorpact after torch, s", on_top.median, 0.2))
    report["import_s"] = {
        "torch": torch_alone.as_json(),
        "tensorpact": on_top.as_json(),
        ONE_OP: with_op.as_json(),
        "process_torch": alone.as_json(),
        "process_tensorpact": both.as_json(),
    }

    print("\nGoals")
    print("\n".join(map(str, goals)))
    report["goals"] = [
        {"text": goal.text, "value": goal.value, "bound": goal.bound, "holds": goal.holds}
        for goal in goals
    ]
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if options.check and not all(goal.holds for goal in goals) else 0


def _shown(spread: Spread, unit: str) -> str:
    low, high = spread.quartiles
    return f"{spread.median:.3g} {unit} ({low:.3g} .. {high:.3g})"


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
