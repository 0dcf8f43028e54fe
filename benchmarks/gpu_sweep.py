"""Times every configuration of the Triton kernels that could be a row of the table.

    python benchmarks/gpu_sweep.py [--only fused|replay|packed] [--out FOLDER]

Compiles in parallel first. The table in `backends/triton/configurations.py` is read off its output,
which is kept in `benchmarks/results`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from gpu_cases import fused_kv_bytes, fused_kv_call, kda_bytes, kda_call
from gpu_timing import Timer, copy_rate, warm_time

from tensorpact.backends.triton import fused_kv, kda_packed, kda_replayssm
from tensorpact.backends.triton.configurations import RowBlocks, StateTiles

BFLOAT16 = torch.bfloat16
FUSED_SHAPES = {
    "8192x8x8x128": (8192, 8, 8, 128, 128),
    "8192x8x4x256": (8192, 8, 4, 256, 256),
    "8192x8x8x80": (8192, 8, 8, 80, 80),
    "8192x5x8x128r64": (8192, 5, 8, 128, 64),
    "256x5x8x128": (256, 5, 8, 128, 128),
}
# batch, value heads, ring, state dtype, committed entries, flush
REPLAY_CASES: dict[str, tuple[int, int, int, torch.dtype, int, bool]] = {
    "B64": (64, 32, 16, torch.float32, 8, False),
    "B256": (256, 32, 16, torch.float32, 8, False),
    "B64-bf16": (64, 32, 16, BFLOAT16, 8, False),
    "B64-flush": (64, 32, 16, torch.float32, 15, True),
    "B64-HV12": (64, 12, 16, torch.float32, 8, False),
    "B64-L32": (64, 32, 32, torch.float32, 16, False),
    "B1": (1, 32, 16, torch.float32, 8, False),
    "B8": (8, 32, 16, torch.float32, 8, False),
}
PACKED_CASES = {
    "B64": (64, 32, torch.float32),
    "B256": (256, 32, torch.float32),
    "B64-bf16": (64, 32, BFLOAT16),
    "B1": (1, 32, torch.float32),
}


def fused_blocks() -> Iterator[RowBlocks]:
    for rows, num_warps in itertools.product((4, 8, 16, 32), (1, 2, 4, 8)):
        if 2 <= rows // num_warps <= 8:
            yield RowBlocks(rows, num_warps)


def packed_tiles(batch: int) -> Iterator[StateTiles]:
    for rows, tiles, num_warps in itertools.product((8, 16), (2, 4, 8, 16), (1, 2)):
        if rows * tiles <= 128 and (tiles == 2) == (batch < 16):
            yield StateTiles(rows, tiles, num_warps)


def replay_tiles(batch: int, ring: int) -> Iterator[StateTiles]:
    shapes = (
        [(8, 2, 1), (8, 4, 1), (8, 8, 1)] if batch < 16 else [(16, 8, 1), (8, 16, 1), (16, 8, 2)]
    )
    for shape, chunk, ahead in itertools.product(shapes, (4, 8), (0, 16, 32)):
        if batch > 16 or ahead < 32:
            yield StateTiles(*shape, chunk, ahead)


Job = tuple[str, Any, Callable[[], object], int, bool]


def swept(
    module: Any, choice: str, value: object, op: Callable[..., object], call: Any
) -> Callable[[], None]:
    """Return a call that runs an op with one configuration instead of the table's."""

    def run() -> None:
        setattr(module, choice, lambda *sizes: value)
        module.KERNEL.plans.clear()
        op(**call)

    return run


def jobs(only: str | None) -> Iterator[Job]:
    """Name, configuration, call, bytes, and whether to time it with a warm cache."""
    if only in (None, "fused"):
        for name, shape in FUSED_SHAPES.items():
            call = fused_kv_call(*shape)
            for blocks in fused_blocks():
                run = swept(
                    fused_kv, "fused_kv_blocks", blocks, fused_kv.fused_kv_materialize, call
                )
                yield f"fused {name}", blocks, run, fused_kv_bytes(call), shape[0] < 1000
    if only in (None, "replay"):
        for name, (batch, heads, ring, dtype, committed, flush) in REPLAY_CASES.items():
            call = kda_call(batch, heads, ring, dtype)
            call["write_pos"].fill_(ring - 1 if flush else committed)
            moved = kda_bytes(call, committed, flush)
            for tiles in replay_tiles(batch, ring):
                decode = kda_replayssm.kda_replayssm_decode
                run = swept(kda_replayssm, "replay_tiles", tiles, decode, call)
                yield f"replay {name}", tiles, run, moved, batch < 16
    if only in (None, "packed"):
        for name, (batch, heads, dtype) in PACKED_CASES.items():
            call = kda_call(batch, heads, state_dtype=dtype, replay=False)
            for tiles in packed_tiles(batch):
                packed = kda_packed.kda_packed_decode
                run = swept(kda_packed, "packed_tiles", tiles, packed, call)
                yield f"packed {name}", tiles, run, kda_bytes(call), batch < 16


def compile_share(only: str | None, share: int, of: int) -> None:
    for index, (_, _, run, _, _) in enumerate(jobs(only)):
        if index % of == share:
            run()
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("fused", "replay", "packed"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--share", type=int)
    arguments = parser.parse_args()
    if arguments.share is not None:
        compile_share(arguments.only, arguments.share, arguments.workers)
        return
    command = [sys.executable, __file__, "--workers", str(arguments.workers)]
    command += ["--only", arguments.only] if arguments.only else []
    workers = [
        subprocess.Popen([*command, "--share", str(share)]) for share in range(arguments.workers)
    ]
    for worker in workers:
        if worker.wait() != 0:
            raise SystemExit("a worker that compiles has failed")

    rate = copy_rate()
    timer = Timer()
    results: dict[str, list[tuple[float, str]]] = {}
    floors: dict[str, float] = {}
    for name, configuration, run, moved, warm in jobs(arguments.only):
        spread = warm_time(run) if warm else timer.kernel(run)
        floors[name] = moved / rate * 1e6
        results.setdefault(name, []).append((round(spread.median, 2), str(configuration)))
    record = {"device": torch.cuda.get_device_name(), "copy_rate": rate, "floors_us": floors}
    record |= {"torch": torch.__version__, "microseconds": results}
    (arguments.out / f"sweep-{arguments.only or 'all'}.json").write_text(
        json.dumps(record, indent=1)
    )
    print(f"copy rate {rate / 1e12:.2f} TB/s")
    for name, rows in results.items():
        print(f"{name}: floor {floors[name]:.1f} us")
        for median, configuration in sorted(rows)[:6]:
            print(f"    {median:8.1f} us {median / floors[name]:6.2f} x  {configuration}")


if __name__ == "__main__":
    main()
