"""Fused KV materialization in Triton."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorpact.backends.registry import implements
from tensorpact.backends.requirements import Requirements
from tensorpact.backends.triton.configurations import fused_kv_blocks, next_power_of_two
from tensorpact.backends.triton.launch import Geometry, Kernel, Plan, common_unit
from tensorpact.contracts import fused_kv as contracts

_REALS = (torch.float32, torch.bfloat16, torch.float16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _load() -> Any:
    from tensorpact.backends.triton.kernels.fused_kv import fused_kv_kernel

    return fused_kv_kernel


# kv, weight, eps, cos/sin, positions, k, v: those read in wide accesses come first.
KERNEL = Kernel(_load, specialised=5)


@implements(
    contracts.fused_kv_materialize,
    backend="triton",
    priority=10,
    requires=Requirements(
        devices=("cuda",),
        capability=(8, 0),
        dtypes={
            "kv": _REALS,
            "k_norm_weight": _REALS,
            "eps": _REALS,
            "cos_sin_cache": _REALS,
            "positions": _INTEGERS,
        },
        where=("head_dim <= 256", "total_ctx * num_kv_heads < 2147483648"),
        package="triton",
    ),
)
def fused_kv_materialize(
    kv: Tensor,
    k_norm_weight: Tensor,
    eps: Tensor,
    cos_sin_cache: Tensor,
    positions: Tensor,
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    k_out: Tensor | None = None,
    v_out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Norm and rotate K and copy V, for all layers in one launch.

    As the eager backend's: K and V are `[n_layers, total_ctx, num_kv_heads, head_dim]`, computed
    in float32 and rounded once; V keeps its bits.
    """
    shape = kv.shape
    total_ctx = shape[0]
    out_shape = (shape[1], total_ctx, num_kv_heads, head_dim)
    if total_ctx == 0:
        return kv.new_empty(out_shape), kv.new_empty(out_shape)
    if k_out is None:
        k_out = torch.empty(out_shape, dtype=kv.dtype, device=kv.device)
    if v_out is None:
        v_out = torch.empty(out_shape, dtype=kv.dtype, device=kv.device)
    device = kv.get_device()
    if positions.get_device() != device:
        positions = positions.to(kv.device)
    facts = (
        device,
        shape,
        kv.stride(),
        k_out.stride(),
        v_out.stride(),
        num_kv_heads,
        rotary_dim,
        k_norm_weight.stride(),
        cos_sin_cache.stride(),
        kv.dtype,
        k_norm_weight.dtype,
        eps.dtype,
        cos_sin_cache.dtype,
        positions.dtype,
    )
    plan = KERNEL.plans.get(facts)
    if plan is None:
        plan = _plan(facts, head_dim, kv.element_size())
    plan.launch((kv, k_norm_weight, cos_sin_cache, k_out, v_out, eps, positions))
    return k_out, v_out


def _plan(facts: tuple[Any, ...], head_dim: int, item_size: int) -> Plan:
    device, shape, kv, k, v, num_heads, rotary_dim, weight, cos, *dtypes = facts
    rows = shape[0] * num_heads
    n_layers = shape[1]
    strides = (kv[0], kv[1], weight[0], cos[0], *k[:3], *v[:3])
    unit = common_unit(strides)
    blocks = fused_kv_blocks(head_dim, rotary_dim, item_size)
    constants = {
        "LAYERS": n_layers,
        "HEADS": num_heads,
        "HEAD_DIM": head_dim,
        "HALF": rotary_dim // 2,
        "UNIT": unit,
        "ROWS": blocks.rows,
        "HALF_BLOCK": next_power_of_two(rotary_dim // 2),
        "REST_BLOCK": next_power_of_two(head_dim - rotary_dim) if rotary_dim < head_dim else 0,
        "VALUE_BLOCK": next_power_of_two(head_dim),
    }
    grid = n_layers * -(-rows // blocks.rows)
    scalars = (rows, *(stride // unit for stride in strides))
    return KERNEL.new_plan(
        facts, device, tuple(dtypes), Geometry(grid, scalars, constants, blocks.num_warps)
    )
