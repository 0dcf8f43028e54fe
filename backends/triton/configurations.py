"""How the kernels are cut up: small tables read from the dims, and nothing measured at run time.

The choices were made from sweeps on an NVIDIA H200 (`benchmarks/gpu_sweep.py`), kept in
`benchmarks/results`. Many neighbours are equally good within a few percent: the tables are coarse.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowBlocks:
    """Fused KV: token-heads a program takes, and its warps."""

    rows: int
    num_warps: int


@dataclass(frozen=True)
class StateTiles:
    """KDA: how a program goes through the state of one value head.

    Attributes:
        rows: value channels of a tile.
        tiles: tiles of a program, one after the other.
        num_warps: warps of a program. One is best nearly everywhere: nothing has to be exchanged
            between warps, and the many programs hide each other's latencies.
        chunk: ring entries that are worked on at once (replay only).
        ahead: rows that are fetched into L2 ahead of their use (replay only).
    """

    rows: int
    tiles: int
    num_warps: int
    chunk: int = 0
    ahead: int = 0


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least n; 1 for n <= 1."""
    return 1 << max(n - 1, 0).bit_length()


def fused_kv_blocks(head_dim: int, rotary_dim: int, item_size: int) -> RowBlocks:
    """Choose for heads of `head_dim` channels of `item_size` bytes.

    | heads | best | alternatives, of the time |
    |---|---|---|
    | 128 bfloat16 | 16 rows, 4 warps | 32/8 and 8/4: same; 16/8: 1.02; 32/16: 1.03 |
    | 256 bfloat16 | 16 rows, 8 warps | 32/16: same; 8/8: 1.04 |
    | 80 bfloat16 | 16 rows, 4 warps | 8/4: 1.01; 32/8: 1.05; 16/8: 1.11 |
    | 128, rotary 64 | 4 rows, 1 warp | 32/8 and 8/2: 1.03; 16/4: 1.04 |

    A thread then holds one or two 16-byte pieces of each tile.
    """
    if next_power_of_two(head_dim) * item_size > 256:
        return RowBlocks(16, 8)
    if rotary_dim < head_dim:
        return RowBlocks(4, 1)
    return RowBlocks(16, 4)


def packed_tiles(states: int, value_dim: int, item_size: int) -> StateTiles:
    """Choose for `states` (batch rows times value heads) states with `value_dim` rows.

    Few states leave the device idle unless each is cut into several programs.
    """
    if item_size == 2:
        return _tiles(16, 8 if states > 512 else 2, 2, value_dim)
    return _tiles(8, 8 if states > 512 else 2, 1, value_dim)


def replay_tiles(states: int, value_dim: int) -> StateTiles:
    """Choose for `states` (batch rows times value heads) states with `value_dim` rows.

    | case | best | alternatives, of the time |
    |---|---|---|
    | B 64 and B 256, HV 32 | 8 rows, 16 tiles, chunks of 4, 16 ahead | 16 x 8: 1.12 |
    | the same | one warp | two: 1.27 and more |
    | L 32 | chunks of 4 | 8: 1.13; the whole ring at once: 1.7 |
    | 16 rows ahead | | none: 1.02 (L 32: 1.15); 32: 1.04 |
    | B 8 | 8 rows, 4 tiles, none ahead | 8 tiles: 1.01 |
    | B 1 | 8 rows, 2 tiles, none ahead | 4 tiles: 1.17 |
    """
    if states <= 64:
        return _tiles(8, 2, 1, value_dim, 4)
    if states <= 512:
        return _tiles(8, 4, 1, value_dim, 4)
    return _tiles(8, 16, 1, value_dim, 4, 16)


def _tiles(
    rows: int, tiles: int, num_warps: int, value_dim: int, chunk: int = 0, ahead: int = 0
) -> StateTiles:
    """Cut down to what `value_dim` rows need."""
    needed = next_power_of_two(-(-value_dim // rows))
    return StateTiles(rows, min(tiles, needed), num_warps, chunk, ahead)


def key_fold(key_dim: int, item_size: int) -> tuple[int, int]:
    """Cut `key_dim` channels into `(outer, inner)`, whose product is a power of two.

    `inner` is what eight lanes take with one 16-byte access each, so that a warp's access covers
    whole 128-byte lines of several rows; `outer` stays in each lane's registers, where summing is
    free of exchanges between lanes.
    """
    padded = max(16, next_power_of_two(key_dim))
    inner = min(padded, 8 * (16 // item_size))
    return padded // inner, inner
