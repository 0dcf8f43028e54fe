"""The calls that are measured on a GPU, at real sizes, and the bytes that each has to move."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Call = dict[str, Any]


def fused_kv_call(
    tokens: int,
    layers: int,
    heads: int,
    head_dim: int,
    rotary_dim: int,
    max_pos: int = 40960,
    dtype: torch.dtype = torch.bfloat16,
    outputs: bool = True,
) -> Call:
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda")

    angles = normal(max_pos, rotary_dim // 2)
    call: Call = {
        "kv": normal(tokens, layers, 2 * heads * head_dim).to(dtype),
        "k_norm_weight": (1 + 0.2 * normal(layers, head_dim)).to(dtype),
        "eps": torch.full((layers,), 1e-6, device="cuda"),
        "cos_sin_cache": torch.cat((angles.cos(), angles.sin()), dim=-1),
        "positions": torch.arange(tokens, device="cuda"),
        "num_kv_heads": heads,
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
    }
    if outputs:
        shape = (layers, tokens, heads, head_dim)
        call["k_out"] = torch.empty(shape, dtype=dtype, device="cuda")
        call["v_out"] = torch.empty(shape, dtype=dtype, device="cuda")
    return call


def fused_kv_bytes(call: Call) -> int:
    """K and V read and written once, and the cosines and sines of the positions read once."""
    kv, cos_sin = call["kv"], call["cos_sin_cache"]
    moved = 2 * kv.numel() * kv.element_size()
    return int(moved + call["positions"].numel() * cos_sin.shape[1] * cos_sin.element_size())


def kda_call(
    batch: int,
    value_heads: int,
    ring: int = 16,
    state_dtype: torch.dtype = torch.float32,
    replay: bool = True,
    heads: int | None = None,
    dim: int = 128,
) -> Call:
    generator = torch.Generator("cuda").manual_seed(0)
    heads = heads or value_heads
    half = torch.bfloat16

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda")

    def state(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda", dtype=state_dtype)

    call: Call = {
        "mixed_qkv": normal(batch, 2 * heads * dim + value_heads * dim).to(half),
        "a": normal(batch, value_heads * dim).to(half),
        "b": normal(batch, value_heads).to(half),
        "A_log": 0.5 * normal(value_heads),
        "dt_bias": normal(value_heads * dim),
        "scale": dim**-0.5,
        "initial_state": state(batch, value_heads, dim, dim),
        "out": torch.empty(batch, 1, value_heads, dim, dtype=half, device="cuda"),
        "ssm_state_indices": torch.randperm(batch, device="cuda").to(torch.int32),
        "use_qk_l2norm_in_kernel": True,
    }
    if replay:
        call |= {
            "d_cache": normal(batch, value_heads, ring, dim).to(half),
            "k_cache": (normal(batch, heads, ring, dim) * dim**-0.5).to(half),
            "g_cache": -torch.rand(
                batch, value_heads, ring, dim, generator=generator, device="cuda"
            ),
            "write_pos": torch.zeros(batch, dtype=torch.int32, device="cuda"),
        }
    return call


def kda_bytes(call: Call, committed: float = 0.0, flush: bool = False) -> int:
    """Bytes that a step has to move; `committed` ring entries are read, on the average.

    Operands and results once; the state read, and written by a packed step and by a flush; the
    committed entries of the rings read; one entry written by an append.
    """
    state, out = call["initial_state"], call["out"]
    small = ("mixed_qkv", "a", "b", "A_log", "dt_bias", "out", "ssm_state_indices")
    moved = sum(call[name].numel() * call[name].element_size() for name in small)
    rows = out.shape[0]
    moved += rows * state[0].numel() * state.element_size()
    if flush or "d_cache" not in call:
        moved += rows * state[0].numel() * state.element_size()
    if "d_cache" in call:
        entry = sum(
            call[name][0, :, 0].numel() * call[name].element_size()
            for name in ("d_cache", "k_cache", "g_cache")
        )
        moved += int(rows * entry * (committed + (0 if flush else 1)))
    return int(moved)
