"""How the kernels are cut up: a small table read from the dims, and nothing measured at run time.

Each choice was measured on an NVIDIA H200; the sweeps are kept in `benchmarks/results`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RowBlocks:
    """Fused KV: token-heads a program takes, and its warps."""

    rows: int
    num_warps: int


@dataclass(frozen=True)
class StateTiles:
    """KDA: `rows` value channels a tile, `tiles` tiles a program, one after the other."""

    rows: int
    tiles: int
    num_warps: int


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least n; 1 for n <= 1."""
    return 1 << max(n - 1, 0).bit_length()


@functools.lru_cache(maxsize=1024)
def fused_kv_blocks(token_heads: int, head_dim: int, item_size: int) -> RowBlocks:
    """Choose for `token_heads` rows of `head_dim` channels of `item_size` bytes."""
    return RowBlocks(16, 4)


def state_tiles(
    op: Literal["packed", "replay"], states: int, value_dim: int, key_dim: int, item_size: int
) -> StateTiles:
    """Choose for `states` (batch rows times value heads) states `[value_dim, key_dim]`."""
    rows = max(16, min(32, next_power_of_two(value_dim)))
    tiles = next_power_of_two(-(-value_dim // rows))
    return StateTiles(rows, tiles, 4)


def key_fold(key_dim: int, item_size: int) -> tuple[int, int]:
    """Cut `key_dim` channels into `(outer, inner)`, whose product is a power of two.

    `inner` is what eight lanes take with one 16-byte access each, so that a warp's access covers
    whole 128-byte lines of several rows; `outer` stays in each lane's registers, where summing is
    free of exchanges between lanes.
    """
    padded = max(16, next_power_of_two(key_dim))
    inner = min(padded, 8 * (16 // item_size))
    return padded // inner, inner
