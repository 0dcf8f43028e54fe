"""The sizes of the models that the ops serve, and how many tokens or rows a machine is given."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from tensorpact.demo.cases import (
    MAKERS,
    SMALL_FUSED_KV,
    SMALL_KDA,
    FusedKVSizes,
    KdaSizes,
)
from tensorpact.demo.mistake import op_named

Sizes = FusedKVSizes | KdaSizes


@dataclass(frozen=True)
class Case:
    """One op at the sizes of one model; the sizes hold the fewest tokens or rows to run."""

    op: str
    name: str
    sizes: Sizes


_DFLASH = FusedKVSizes(
    tokens=64, layers=5, heads=8, head_dim=128, rotary_dim=128, max_pos=40960, hidden=4096
)
_KIMI = KdaSizes(batch=4, H=32, HV=32, K=128, V=128, L=16, slots=7)

REAL_CASES: tuple[Case, ...] = (
    Case("fused_kv_materialize", "DFlash draft on Qwen3-8B", _DFLASH),
    Case(
        "fused_kv_materialize",
        "DFlash draft on Qwen3-8B in float32",
        replace(_DFLASH, dtype=torch.float32),
    ),
    Case(
        "fused_kv_materialize",
        "larger draft, 4 heads of 256",
        replace(_DFLASH, layers=8, heads=4, head_dim=256, rotary_dim=256),
    ),
    Case(
        "fused_kv_materialize",
        "larger draft, 8 heads of 80",
        replace(_DFLASH, layers=8, head_dim=80, rotary_dim=80),
    ),
    Case(
        "fused_kv_materialize",
        "larger draft, half of a head rotated",
        replace(_DFLASH, layers=8, rotary_dim=64),
    ),
    Case("FusedKVMaterializer.materialize", "DFlash draft on Qwen3-8B", _DFLASH),
    Case("kda_packed_decode", "Kimi Linear 48B", _KIMI),
    Case(
        "kda_packed_decode",
        "Kimi Linear 48B, bfloat16 state",
        replace(_KIMI, state_dtype=torch.bfloat16),
    ),
    Case("kda_replayssm_decode", "Kimi Linear 48B", _KIMI),
    Case(
        "kda_replayssm_decode",
        "Kimi Linear 48B, bfloat16 state",
        replace(_KIMI, state_dtype=torch.bfloat16),
    ),
    Case(
        "kda_replayssm_decode",
        "Kimi Linear 48B, one of 8 ranks, float32",
        replace(_KIMI, H=12, HV=12, dtype=torch.float32),
    ),
)

SMALL_CASES: tuple[Case, ...] = (
    Case("fused_kv_materialize", "small", SMALL_FUSED_KV),
    Case("FusedKVMaterializer.materialize", "small", SMALL_FUSED_KV),
    Case("kda_packed_decode", "small", SMALL_KDA),
    Case("kda_replayssm_decode", "small", SMALL_KDA),
    Case("kda_replayssm_decode", "small, float32", replace(SMALL_KDA, dtype=torch.float32)),
)

_MOST_TOKENS = {"cpu": 1024, "cuda": 8192}
_MOST_ROWS = {"cpu": 16, "cuda": 64}


def with_count(sizes: Sizes, count: int) -> Sizes:
    """Return the same sizes with another number of tokens or rows."""
    if isinstance(sizes, FusedKVSizes):
        return replace(sizes, tokens=count)
    return replace(sizes, batch=count, slots=count + 3)


def fitting_sizes(case: Case, *, device: str, seconds: float) -> Sizes:
    """Return sizes at which one call takes about `seconds` on this machine, by a quick probe."""
    sizes = case.sizes
    least = sizes.tokens if isinstance(sizes, FusedKVSizes) else sizes.batch
    limits = _MOST_TOKENS if isinstance(sizes, FusedKVSizes) else _MOST_ROWS
    most = limits.get(device.partition(":")[0], least)
    call = MAKERS[case.op](sizes, device=device)
    op = op_named(case.op)
    probed = min(_seconds_of(lambda: op(**call), device) for _ in range(5))
    wanted = least * seconds / max(probed, 1e-6)
    count = least * 2 ** int(math.log2(max(1.0, wanted / least)))
    return with_count(sizes, min(most, count))


def sizes_in_words(sizes: Sizes) -> dict[str, Any]:
    """Return sizes as JSON types."""
    values = {f.name: getattr(sizes, f.name) for f in fields(sizes)}
    return {
        name: str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value
        for name, value in values.items()
    }


def _seconds_of(call: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    call()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start
