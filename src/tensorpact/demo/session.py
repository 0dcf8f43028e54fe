"""The whole demo: every op measured, every documented mistake made."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensorpact.demo import fused_kv_runs, kda_runs
from tensorpact.demo.cases import MAKERS, Arguments, FusedKVSizes, KdaSizes
from tensorpact.demo.costs import measure
from tensorpact.demo.mistakes import MISTAKES, op_named
from tensorpact.demo.real_sizes import (
    REAL_CASES,
    SMALL_CASES,
    Case,
    Sizes,
    fitting_sizes,
    sizes_in_words,
    with_count,
)
from tensorpact.demo.results import Check, DemoResult, MistakeResult, RunResult
from tensorpact.demo.trials import try_mistake

Say = Callable[[str], None]

_CALL_SECONDS = 0.02
_MEASURE_SECONDS = 0.5
_MISTAKE_COUNT = 5
"""How many tokens or rows the calls have in which mistakes are made."""


def run_demo(*, device: str, quick: bool, say: Say) -> DemoResult:
    """Run everything and tell `say` what is being done."""
    start = time.perf_counter()
    cases = SMALL_CASES if quick else REAL_CASES
    runs: list[RunResult] = []
    for number, case in enumerate(cases, start=1):
        say(f"running {number} of {len(cases)}: {case.op}, {case.name}")
        runs.append(run_case(case, device=device, quick=quick))
    mistakes = tuple(_mistakes(cases, device, say))
    return DemoResult(machine(device), tuple(runs), mistakes, time.perf_counter() - start)


def run_case(case: Case, *, device: str, quick: bool) -> RunResult:
    """Compare one op with its reference at one set of sizes, and measure it."""
    sizes = case.sizes
    if not quick:
        sizes = fitting_sizes(case, device=device, seconds=_CALL_SECONDS)
    call, checks = _compared(case.op, sizes, device)
    op = op_named(case.op)
    report = op.explain_dispatch(**call)
    return RunResult(
        op=case.op,
        case=case.name,
        sizes=sizes_in_words(sizes),
        backend=(report.chosen or "none") if report.candidates else "a body of its own",
        checks=checks,
        cost=measure(op, call, device=device, seconds=0.02 if quick else _MEASURE_SECONDS),
    )


def machine(device: str) -> dict[str, Any]:
    """Say what the demo runs on."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return {
        "device": device,
        "name": name,
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _compared(op: str, sizes: Sizes, device: str) -> tuple[Arguments, tuple[Check, ...]]:
    match op, sizes:
        case "fused_kv_materialize", FusedKVSizes():
            return fused_kv_runs.run_kernel(sizes, device)
        case "FusedKVMaterializer.materialize", FusedKVSizes():
            return fused_kv_runs.run_materializer(sizes, device)
        case "kda_packed_decode", KdaSizes():
            return kda_runs.run_packed(sizes, device)
        case "kda_replayssm_decode", KdaSizes():
            return kda_runs.run_replay(sizes, device)
    raise LookupError(f"nothing compares {op} at {sizes}.")


def _mistakes(cases: tuple[Case, ...], device: str, say: Say) -> Iterator[MistakeResult]:
    """Make every mistake in a call at the first sizes of its op."""
    for op, make in MAKERS.items():
        sizes = next(case.sizes for case in cases if case.op == op)
        call = make(with_count(sizes, _MISTAKE_COUNT), device=device)
        for mistake in MISTAKES:
            if mistake.op == op:
                say(f"making a mistake with {op}: {mistake.slug}")
                yield try_mistake(mistake, call)
