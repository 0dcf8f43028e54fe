"""The replaying KDA decode step in Triton."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorpact.backends.registry import implements
from tensorpact.backends.requirements import Requirements
from tensorpact.backends.triton.configurations import key_fold, next_power_of_two, replay_tiles
from tensorpact.backends.triton.launch import Geometry, Kernel, Plan, common_unit, interpreted
from tensorpact.contracts import kda_replayssm as contracts

_REALS = (torch.float32, torch.bfloat16, torch.float16)
_FLOATING = (
    "mixed_qkv",
    "a",
    "b",
    "A_log",
    "dt_bias",
    "initial_state",
    "d_cache",
    "k_cache",
    "out",
)


def _load() -> Any:
    from tensorpact.backends.triton.kernels.kda_replayssm import kda_replayssm_kernel

    return kda_replayssm_kernel


# All but b, A_log, the slots, cursors and flags are read in wide accesses.
KERNEL = Kernel(_load, specialised=8)


@implements(
    contracts.kda_replayssm_decode,
    backend="triton",
    priority=10,
    requires=Requirements(
        devices=("cuda",),
        capability=(8, 0),
        dtypes=dict.fromkeys(_FLOATING, _REALS),
        where=("K <= 256", "V <= 256", "L <= 64", "batch * HV * V < 2147483648"),
        package="triton",
    ),
)
def kda_replayssm_decode(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    scale: float,
    initial_state: Tensor,
    d_cache: Tensor,
    k_cache: Tensor,
    g_cache: Tensor,
    out: Tensor,
    ssm_state_indices: Tensor,
    write_pos: Tensor,
    force_flush: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    lower_bound: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Decode one token per row; form and write the state only for rows that flush.

    Whether a row flushes is decided on the device. A row that appends reads its checkpoint once
    and writes one ring entry.
    """
    shape = mixed_qkv.shape
    if shape[0] == 0:
        return out, initial_state
    facts = (
        initial_state.get_device(),
        shape,
        initial_state.shape,
        d_cache.shape,
        force_flush is not None,
        use_qk_l2norm_in_kernel,
        lower_bound is not None,
        mixed_qkv.stride(),
        b.stride(),
        initial_state.stride(),
        d_cache.stride(),
        k_cache.stride(),
        g_cache.stride(),
        initial_state.dtype,
        mixed_qkv.dtype,
        a.dtype,
        b.dtype,
        A_log.dtype,
        dt_bias.dtype,
        d_cache.dtype,
        k_cache.dtype,
        out.dtype,
    )
    plan = KERNEL.plans.get(facts)
    if plan is None:
        plan = _plan(facts)
    tensors = (
        mixed_qkv,
        a,
        dt_bias,
        initial_state,
        d_cache,
        k_cache,
        g_cache,
        out,
        b,
        A_log,
        ssm_state_indices,
        write_pos,
        write_pos if force_flush is None else force_flush,
    )
    plan.launch(tensors, (scale, 0.0 if lower_bound is None else lower_bound))
    return out, initial_state


def _plan(facts: tuple[Any, ...]) -> Plan:
    device, shape, state_shape, d_shape, forced, unit_length, bounded, *rest = facts
    qkv, b, state, d_cache, k_cache, g_cache, *dtypes = rest
    batch, width = shape
    _, num_value_heads, value_dim, key_dim = state_shape
    ring_length = d_shape[2]
    strides = (qkv[0], *state[:3], *d_cache[:3], *k_cache[:3], *g_cache[:3])
    unit = common_unit(strides)
    item_size = dtypes[0].itemsize
    entries = max(16, next_power_of_two(ring_length))
    tiles = replay_tiles(batch * num_value_heads, value_dim)
    outer, inner = key_fold(key_dim, item_size)
    constants = {
        "H": (width - num_value_heads * value_dim) // (2 * key_dim),
        "HV": num_value_heads,
        "K": key_dim,
        "V": value_dim,
        "L": ring_length,
        "UNIT": unit,
        "FORCED": forced,
        "UNIT_LENGTH": unit_length,
        "BOUNDED": bounded,
        "ROWS": tiles.rows,
        "TILES": tiles.tiles,
        "OUTER": outer,
        "INNER": inner,
        "ENTRIES": entries,
        "CHUNK": min(tiles.chunk, entries),
        "AHEAD": tiles.ahead,
        # Triton's interpreter multiplies the bits of bfloat16 tiles as if they were integers.
        "WIDE_DOT": interpreted(),
    }
    split = -(-value_dim // (tiles.rows * tiles.tiles))
    scaled = tuple(stride // unit for stride in strides)
    scalars = (b[0], *scaled)
    grid = batch * num_value_heads * split
    return KERNEL.new_plan(
        facts, device, tuple(dtypes), Geometry(grid, scalars, constants, tiles.num_warps)
    )
