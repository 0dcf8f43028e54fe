"""A demo's results as text for people, within 100 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from tensorpact.demo.results import Check, Cost, DemoResult, MistakeResult, RunResult

WIDTH = 100
_GREEN, _RED, _PLAIN = "\033[32m", "\033[31m", "\033[0m"


def demo_lines(result: DemoResult, *, color: bool) -> Iterator[str]:
    """Yield the lines of the whole."""
    machine = result.machine
    yield (
        f"On {machine['name']} ({machine['device']}), {machine['cpu_cores']} CPU cores, "
        f"Python {machine['python']}, torch {machine['torch']}"
    )
    for run in result.runs:
        yield ""
        yield from _run(run, color)
    yield ""
    yield f"Every documented mistake, made on purpose ({len(result.mistakes)}):"
    op = ""
    for mistake in result.mistakes:
        if mistake.op != op:
            op = mistake.op
            yield f"\n{op}"
        yield ""
        yield from _mistake(mistake, color)
    yield ""
    yield from _summary(result, color)


def _run(run: RunResult, color: bool) -> Iterator[str]:
    yield f"{run.op}: {run.case}"
    sizes = ", ".join(f"{name} {value}" for name, value in run.sizes.items())
    yield from _wrapped("  ", f"{sizes}; backend: {run.backend}")
    width = max(len(check.name) for check in run.checks)
    for check in run.checks:
        start = f"  {_verdict(check, color)} {check.name:<{width}}  "
        yield from _wrapped(start, check.detail) if check.detail else (start.rstrip(),)
    yield from _wrapped("  cost   ", _cost(run.cost))


def _cost(cost: Cost) -> str:
    return (
        f"with contract {_time(cost.with_contract_us)}, without {_time(cost.without_us)} (medians "
        f"of {cost.repeats}); the contract alone {_time(cost.contract_alone_us)}"
    )


def _mistake(mistake: MistakeResult, color: bool) -> Iterator[str]:
    yield from _wrapped(f"  {mistake.slug}: ", mistake.what, indent="    ")
    yield from _wrapped("    message  ", mistake.message)
    yield from _wrapped("    cause    ", mistake.cause)
    yield from _wrapped("    fix      ", mistake.fix)
    failed = [check for check in mistake.checks if not check.ok]
    if not failed:
        ok = _colored("ok", _GREEN, color)
        held = "word for word, nothing written; legal next to it"
        yield from _wrapped(f"    {ok}       ", f"{held}: {mistake.nearest_legal}")
    for check in failed:
        text = f"{check.name}: {check.detail}" if check.detail else check.name
        yield from _wrapped(f"    {_verdict(check, color)}   ", text)


def _summary(result: DemoResult, color: bool) -> Iterator[str]:
    checks = result.checks
    failed = sum(not check.ok for check in checks)
    verdict = _colored("All held", _GREEN, color)
    if failed:
        verdict = _colored(f"{failed} did NOT hold", _RED, color)
    yield (
        f"{verdict}: {len(checks)} checks, {len(result.runs)} runs, {len(result.mistakes)} "
        f"mistakes, in {result.seconds:.1f} s."
    )


def _verdict(check: Check, color: bool) -> str:
    if check.ok:
        return _colored("ok    ", _GREEN, color)
    return _colored("FAILED", _RED, color)


def _colored(text: str, code: str, color: bool) -> str:
    return f"{code}{text}{_PLAIN}" if color else text


def _time(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1000:.2f} ms"


def _wrapped(start: str, text: str, *, indent: str | None = None) -> Iterator[str]:
    """Yield a text after `start`; further lines are indented as far, or by `indent`."""
    visible = re.sub("\033\\[[0-9]*m", "", start)
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * len(visible),
        subsequent_indent=" " * len(visible) if indent is None else indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield start + (lines[0][len(visible) :] if lines else "")
    yield from lines[1:]
