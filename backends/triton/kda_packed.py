"""The packed KDA decode step in Triton."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorpact.backends.registry import implements
from tensorpact.backends.requirements import Requirements
from tensorpact.backends.triton.configurations import key_fold, packed_tiles
from tensorpact.backends.triton.launch import Geometry, Kernel, Plan, common_unit
from tensorpact.contracts import kda_packed as contracts

_REALS = (torch.float32, torch.bfloat16, torch.float16)


def _load() -> Any:
    from tensorpact.backends.triton.kernels.kda_packed import kda_packed_kernel

    return kda_packed_kernel


# mixed_qkv, a, dt_bias, state, out are read in wide accesses; b, A_log and the slots one by one.
KERNEL = Kernel(_load, specialised=5)


@implements(
    contracts.kda_packed_decode,
    backend="triton",
    priority=10,
    requires=Requirements(
        devices=("cuda",),
        capability=(8, 0),
        dtypes=dict.fromkeys(
            ("mixed_qkv", "a", "b", "A_log", "dt_bias", "initial_state", "out"), _REALS
        ),
        where=("K <= 256", "V <= 256", "batch * HV * V < 2147483648"),
        package="triton",
    ),
)
def kda_packed_decode(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    scale: float,
    initial_state: Tensor,
    out: Tensor,
    ssm_state_indices: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
) -> tuple[Tensor, Tensor]:
    """Decode one token per row and update the state of its slot, in one pass over the state."""
    shape = mixed_qkv.shape
    if shape[0] == 0:
        return out, initial_state
    facts = (
        initial_state.get_device(),
        shape,
        initial_state.shape,
        use_qk_l2norm_in_kernel,
        mixed_qkv.stride(),
        a.stride(),
        b.stride(),
        initial_state.stride(),
        initial_state.dtype,
        mixed_qkv.dtype,
        a.dtype,
        b.dtype,
        A_log.dtype,
        dt_bias.dtype,
        out.dtype,
    )
    plan = KERNEL.plans.get(facts)
    if plan is None:
        plan = _plan(facts)
    tensors = (mixed_qkv, a, dt_bias, initial_state, out, b, A_log, ssm_state_indices)
    plan.launch(tensors, (scale,))
    return out, initial_state


def _plan(facts: tuple[Any, ...]) -> Plan:
    device, shape, state_shape, unit_length, qkv, a, b, state, *dtypes = facts
    batch, width = shape
    _, num_value_heads, value_dim, key_dim = state_shape
    strides = (qkv[0], a[0], state[0], state[1], state[2])
    unit = common_unit(strides)
    item_size = dtypes[0].itemsize
    tiles = packed_tiles(batch * num_value_heads, value_dim, item_size)
    outer, inner = key_fold(key_dim, item_size)
    constants = {
        "H": (width - num_value_heads * value_dim) // (2 * key_dim),
        "HV": num_value_heads,
        "K": key_dim,
        "V": value_dim,
        "UNIT": unit,
        "UNIT_LENGTH": unit_length,
        "ROWS": tiles.rows,
        "TILES": tiles.tiles,
        "OUTER": outer,
        "INNER": inner,
    }
    split = -(-value_dim // (tiles.rows * tiles.tiles))
    scaled = tuple(stride // unit for stride in strides)
    scalars = (b[0], *scaled)
    grid = batch * num_value_heads * split
    return KERNEL.new_plan(
        facts, device, tuple(dtypes), Geometry(grid, scalars, constants, tiles.num_warps)
    )
