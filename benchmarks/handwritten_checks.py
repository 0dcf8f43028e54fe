"""Checks written by hand, as an inference engine has them at the top of an op.

The documented conditions in the documented order; what our contracts check beyond them is left
out. The bodies do nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor


def check_packed_decode(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    initial_state: Tensor,
    out: Tensor,
    ssm_state_indices: Tensor,
) -> tuple[int, int, int, int, int]:
    """Check what both decode ops take; return batch, H, HV, K and V."""
    if mixed_qkv.ndim != 2:
        raise ValueError(f"`mixed_qkv` must be 2D: got {mixed_qkv.ndim} axes.")
    if mixed_qkv.stride(-1) != 1:
        raise ValueError("`mixed_qkv` must have a contiguous last axis.")
    if a.ndim != 2:
        raise ValueError(f"`a` must be 2D: got {a.ndim} axes.")
    if a.stride(-1) != 1:
        raise ValueError("`a` must have a contiguous last axis.")
    if b.ndim != 2:
        raise ValueError(f"`b` must be 2D: got {b.ndim} axes.")
    if b.stride(-1) != 1:
        raise ValueError("`b` must have a contiguous last axis.")
    if A_log.ndim != 1 or A_log.stride(0) != 1:
        raise ValueError("`A_log` must be a contiguous 1D tensor.")
    if dt_bias.ndim != 1 or dt_bias.stride(0) != 1:
        raise ValueError("`dt_bias` must be a contiguous 1D tensor.")
    if ssm_state_indices.ndim != 1:
        raise ValueError(f"`ssm_state_indices` must be 1D: got {ssm_state_indices.ndim} axes.")
    if not out.is_contiguous():
        raise ValueError("`out` must be contiguous.")

    device = mixed_qkv.device
    tensors = (a, b, A_log, dt_bias, initial_state, out, ssm_state_indices)
    if any(tensor.device != device for tensor in tensors):
        raise ValueError("All tensors must be on one device.")

    batch = mixed_qkv.shape[0]
    if a.shape[0] != batch or b.shape[0] != batch:
        raise ValueError(f"`a` and `b` must have {batch} rows.")
    if ssm_state_indices.shape[0] != batch:
        raise ValueError(f"`ssm_state_indices` must have {batch} entries.")

    if initial_state.ndim != 4:
        raise ValueError(f"`initial_state` must be 4D: got {initial_state.ndim} axes.")
    if initial_state.stride(-1) != 1:
        raise ValueError("`initial_state` must have a contiguous last axis.")
    _, num_v_heads, value_dim, key_dim = initial_state.shape
    if a.shape[1] != num_v_heads * key_dim:
        raise ValueError(f"`a` must have {num_v_heads * key_dim} values a row.")
    if b.shape[1] != num_v_heads:
        raise ValueError(f"`b` must have {num_v_heads} values a row.")
    if A_log.shape[0] != num_v_heads:
        raise ValueError(f"`A_log` must have {num_v_heads} values.")
    if dt_bias.shape[0] != num_v_heads * key_dim:
        raise ValueError(f"`dt_bias` must have {num_v_heads * key_dim} values.")
    if out.shape != (batch, 1, num_v_heads, value_dim):
        raise ValueError(f"`out` must have shape {(batch, 1, num_v_heads, value_dim)}.")

    query_key_width = mixed_qkv.shape[1] - num_v_heads * value_dim
    if query_key_width <= 0:
        raise ValueError("`mixed_qkv` is too narrow to hold q and k.")
    if query_key_width % (2 * key_dim) != 0:
        raise ValueError("The width of q and k must be a multiple of the key dim.")
    num_q_heads = query_key_width // (2 * key_dim)
    if num_v_heads % num_q_heads != 0:
        raise ValueError("The value heads must be a multiple of the query heads.")
    return batch, num_q_heads, num_v_heads, key_dim, value_dim


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
    *,
    backend: str | None = None,
) -> None:
    if a.ndim not in (2, 3) or not a.is_contiguous():
        raise ValueError("KDA `a` must be a contiguous 2D or 3D tensor.")
    if dt_bias.ndim not in (1, 2) or not dt_bias.is_contiguous():
        raise ValueError("KDA `dt_bias` must be a contiguous 1D or 2D tensor.")
    # The checks of the packed op take both flat, as the engine's own code does it.
    batch, num_q_heads, num_v_heads, key_dim, value_dim = check_packed_decode(
        mixed_qkv,
        a.view(a.shape[0], -1),
        b,
        A_log,
        dt_bias.view(-1),
        initial_state,
        out,
        ssm_state_indices,
    )

    if write_pos.ndim != 1 or write_pos.dtype is not torch.int32:
        raise ValueError("`write_pos` must be a 1D int32 tensor.")
    if write_pos.shape != (batch,):
        raise ValueError(f"`write_pos` must have shape {(batch,)}.")
    if force_flush is not None and (
        force_flush.ndim != 1
        or force_flush.dtype is not torch.int32
        or force_flush.shape != (batch,)
    ):
        raise ValueError("`force_flush` must be a length-B int32 tensor or None.")

    cache_length = d_cache.shape[2]
    if cache_length < 1:
        raise ValueError("ReplaySSM cache length must be at least 1.")
    if d_cache.shape[1:] != (num_v_heads, cache_length, value_dim):
        raise ValueError("`d_cache` must have shape [slots, HV, L, V].")
    if k_cache.shape[1:] != (num_q_heads, cache_length, key_dim):
        raise ValueError("`k_cache` must have shape [slots, H, L, K].")
    if g_cache.shape[1:] != (num_v_heads, cache_length, key_dim):
        raise ValueError("`g_cache` must have shape [slots, HV, L, K].")
    if g_cache.dtype is not torch.float32:
        raise ValueError("`g_cache` must have dtype torch.float32.")

    device = mixed_qkv.device
    if any(tensor.device != device for tensor in (write_pos, d_cache, k_cache, g_cache)):
        raise ValueError("`write_pos` and the caches must be on the device of `mixed_qkv`.")
    if force_flush is not None and force_flush.device != device:
        raise ValueError("`force_flush` must be on the device of `mixed_qkv`.")


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
    *,
    backend: str | None = None,
) -> None:
    if kv.ndim != 3:
        raise ValueError(
            f"Invalid stacked fused KV projection shape: got {tuple(kv.shape)}, "
            "expected 3D [total_ctx, n_layers, kv_size*2]."
        )
    total_ctx, n_layers, kv_dim = kv.shape
    if total_ctx == 0:
        return
    kv_size = num_kv_heads * head_dim
    if kv_dim != kv_size * 2:
        raise ValueError(
            f"Invalid fused KV projection shape: got {tuple(kv.shape)}, "
            f"expected trailing dim {kv_size * 2}."
        )
    if rotary_dim <= 0 or rotary_dim > head_dim or rotary_dim % 2 != 0:
        raise ValueError(
            f"Invalid fused KV rotary/head dim pair: rotary_dim={rotary_dim}, head_dim={head_dim}."
        )
    if k_norm_weight.shape != (n_layers, head_dim):
        raise ValueError(
            "Invalid stacked k_norm_weight shape for fused KV materialization: "
            f"got {tuple(k_norm_weight.shape)}, expected {(n_layers, head_dim)}."
        )
    if eps.shape != (n_layers,):
        raise ValueError(
            "Invalid stacked eps shape for fused KV materialization: "
            f"got {tuple(eps.shape)}, expected {(n_layers,)}."
        )
    expected = (n_layers, total_ctx, num_kv_heads, head_dim)
    if k_out is not None:
        if k_out.shape != expected:
            raise ValueError(f"Invalid k_out shape: got {tuple(k_out.shape)}, not {expected}.")
        if k_out.device != kv.device or k_out.dtype != kv.dtype:
            raise ValueError("k_out must have the device and dtype of kv.")
    if v_out is not None:
        if v_out.shape != expected:
            raise ValueError(f"Invalid v_out shape: got {tuple(v_out.shape)}, not {expected}.")
        if v_out.device != kv.device or v_out.dtype != kv.dtype:
            raise ValueError("v_out must have the device and dtype of kv.")
