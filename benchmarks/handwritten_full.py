"""Checks written by hand that see all that our contracts see.

handwritten_checks.py holds what an engine documents; here stands what it takes by hand to reject
every call that the contract rejects: Python types, dtypes, ranks, every axis, layout, devices,
empty axes, outputs that are one object with something else, and outputs whose elements overlap.
"""

from __future__ import annotations

import torch
from torch import Tensor


def is_number(value: object) -> bool:
    """Tell whether a value is an int or a float, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Tell whether a value is an int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_dense_in_last_axis(tensor: Tensor) -> bool:
    """Tell whether the elements of the last axis lie side by side."""
    return tensor.is_contiguous() or tensor.stride(-1) == 1 or tensor.shape[-1] <= 1


def may_be_written(tensor: Tensor) -> bool:
    """Tell whether the last axis is dense and no two elements share memory, as if expanded."""
    if tensor.is_contiguous():
        return True
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        return False
    reach = 0
    axes = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted(axis for axis in axes if axis[1] > 1):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


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
    reals = (mixed_qkv, a, b, A_log, dt_bias, initial_state, d_cache, k_cache, g_cache, out)
    tensors: tuple[Tensor, ...] = (*reals, ssm_state_indices, write_pos)
    if force_flush is not None:
        tensors = (*tensors, force_flush)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"Expected a tensor: got {type(tensor).__name__}.")
    if not is_number(scale):
        raise TypeError("`scale` must be a number.")
    if not isinstance(use_qk_l2norm_in_kernel, bool):
        raise TypeError("`use_qk_l2norm_in_kernel` must be a bool.")
    if lower_bound is not None and not is_number(lower_bound):
        raise TypeError("`lower_bound` must be a number or None.")
    if backend is not None and not isinstance(backend, str):
        raise TypeError("`backend` must be a name or None.")

    if a.ndim not in (2, 3) or not a.is_contiguous():
        raise ValueError("KDA `a` must be a contiguous 2D or 3D tensor.")
    if dt_bias.ndim not in (1, 2) or not dt_bias.is_contiguous():
        raise ValueError("KDA `dt_bias` must be a contiguous 1D or 2D tensor.")
    if mixed_qkv.ndim != 2 or not is_dense_in_last_axis(mixed_qkv):
        raise ValueError("`mixed_qkv` must be 2D with a contiguous last axis.")
    if b.ndim != 2 or not is_dense_in_last_axis(b):
        raise ValueError("`b` must be 2D with a contiguous last axis.")
    if A_log.ndim != 1 or not is_dense_in_last_axis(A_log):
        raise ValueError("`A_log` must be a contiguous 1D tensor.")
    if ssm_state_indices.ndim != 1 or not is_dense_in_last_axis(ssm_state_indices):
        raise ValueError("`ssm_state_indices` must be a contiguous 1D tensor.")
    if not out.is_contiguous():
        raise ValueError("`out` must be contiguous.")

    device = mixed_qkv.device
    for tensor in tensors:
        if tensor.device != device:
            raise ValueError(f"All tensors must be on {device}: got {tensor.device}.")

    if initial_state.ndim != 4 or not may_be_written(initial_state):
        raise ValueError("`initial_state` must be 4D with a contiguous last axis.")
    batch, width = mixed_qkv.shape
    slots, num_v_heads, value_dim, key_dim = initial_state.shape
    if slots < 1 or num_v_heads < 1 or value_dim < 1 or key_dim < 1:
        raise ValueError("`initial_state` must not be empty.")
    gate_width = num_v_heads * key_dim
    if a.shape not in ((batch, gate_width), (batch, num_v_heads, key_dim)):
        raise ValueError("`a` must have shape [batch, HV*K] or [batch, HV, K].")
    if b.shape != (batch, num_v_heads):
        raise ValueError("`b` must have shape [batch, HV].")
    if A_log.shape != (num_v_heads,):
        raise ValueError("`A_log` must have shape [HV].")
    if dt_bias.shape not in ((gate_width,), (num_v_heads, key_dim)):
        raise ValueError("`dt_bias` must have shape [HV*K] or [HV, K].")
    if out.shape != (batch, 1, num_v_heads, value_dim):
        raise ValueError("`out` must have shape [batch, 1, HV, V].")
    if ssm_state_indices.shape != (batch,):
        raise ValueError("`ssm_state_indices` must have shape [batch].")

    query_key_width = width - num_v_heads * value_dim
    if query_key_width <= 0 or query_key_width % (2 * key_dim) != 0:
        raise ValueError("`mixed_qkv` must have 2*H*K + HV*V values a row.")
    num_q_heads = query_key_width // (2 * key_dim)
    if num_v_heads % num_q_heads != 0:
        raise ValueError("The value heads must be a multiple of the query heads.")

    if write_pos.ndim != 1 or write_pos.dtype is not torch.int32:
        raise ValueError("`write_pos` must be a 1D int32 tensor.")
    if write_pos.shape != (batch,):
        raise ValueError(f"`write_pos` must have shape {(batch,)}.")
    if not is_dense_in_last_axis(write_pos):
        raise ValueError("`write_pos` must be contiguous.")
    if force_flush is not None and (
        force_flush.dtype is not torch.int32
        or force_flush.shape != (batch,)
        or not is_dense_in_last_axis(force_flush)
    ):
        raise ValueError("`force_flush` must be a length-B int32 tensor or None.")

    if d_cache.ndim != 4:
        raise ValueError("`d_cache` must be 4D.")
    cache_length = d_cache.shape[2]
    if cache_length < 1:
        raise ValueError("ReplaySSM cache length must be at least 1.")
    if d_cache.shape != (slots, num_v_heads, cache_length, value_dim):
        raise ValueError("`d_cache` must have shape [slots, HV, L, V].")
    if k_cache.shape != (slots, num_q_heads, cache_length, key_dim):
        raise ValueError("`k_cache` must have shape [slots, H, L, K].")
    if g_cache.shape != (slots, num_v_heads, cache_length, key_dim):
        raise ValueError("`g_cache` must have shape [slots, HV, L, K].")
    if g_cache.dtype is not torch.float32:
        raise ValueError("`g_cache` must have dtype torch.float32.")

    if ssm_state_indices.dtype is not torch.int32:
        raise ValueError("`ssm_state_indices` must be an int32 tensor.")
    for tensor in reals:
        if not tensor.is_floating_point():
            raise ValueError(f"Expected a floating-point dtype: got {tensor.dtype}.")
    for cache in (d_cache, k_cache, g_cache):
        if not may_be_written(cache):
            raise ValueError("The caches must have a dense last axis and elements of their own.")
    if d_cache is initial_state or d_cache is k_cache or d_cache is g_cache:
        raise ValueError("`d_cache` must be a tensor of its own.")
    if k_cache is initial_state or k_cache is g_cache or g_cache is initial_state:
        raise ValueError("`k_cache` and `g_cache` must be tensors of their own.")
    if any(out is other for other in reals[:-1]):
        raise ValueError("`out` must be a tensor of its own.")


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
    for tensor in (kv, k_norm_weight, eps, cos_sin_cache, positions):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"Expected a tensor: got {type(tensor).__name__}.")
    for output in (k_out, v_out):
        if output is not None and not isinstance(output, Tensor):
            raise TypeError(f"Expected a tensor or None: got {type(output).__name__}.")
    if not (is_whole(num_kv_heads) and is_whole(head_dim) and is_whole(rotary_dim)):
        raise TypeError("The head counts and dims must be ints.")
    if backend is not None and not isinstance(backend, str):
        raise TypeError("`backend` must be a name or None.")

    if kv.ndim != 3:
        raise ValueError(
            f"Invalid stacked fused KV projection shape: got {tuple(kv.shape)}, "
            "expected 3D [total_ctx, n_layers, kv_size*2]."
        )
    if not kv.is_floating_point():
        raise ValueError(f"`kv` must have a floating-point dtype: got {kv.dtype}.")
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
    if n_layers < 1 or num_kv_heads < 1 or head_dim < 1:
        raise ValueError("Fused KV materialization needs a layer, a head and a channel.")
    if k_norm_weight.shape != (n_layers, head_dim):
        raise ValueError(f"Invalid k_norm_weight shape: got {tuple(k_norm_weight.shape)}.")
    if eps.shape != (n_layers,):
        raise ValueError(f"Invalid eps shape: got {tuple(eps.shape)}.")
    if cos_sin_cache.ndim != 2 or cos_sin_cache.shape[1] != rotary_dim:
        raise ValueError(f"Invalid cos_sin_cache shape: got {tuple(cos_sin_cache.shape)}.")
    if cos_sin_cache.shape[0] < 1:
        raise ValueError("The cos_sin_cache is empty.")
    if positions.shape != (total_ctx,):
        raise ValueError(f"Invalid positions shape: got {tuple(positions.shape)}.")
    for weight in (k_norm_weight, eps, cos_sin_cache):
        if not weight.is_floating_point():
            raise ValueError(f"Expected a floating-point dtype: got {weight.dtype}.")
        if weight.device != kv.device:
            raise ValueError(f"Expected a tensor on {kv.device}: got {weight.device}.")
    if positions.is_floating_point() or positions.is_complex() or positions.dtype is torch.bool:
        raise ValueError(f"The positions must be integers: got {positions.dtype}.")
    for tensor in (kv, k_norm_weight, eps, cos_sin_cache, positions):
        if not is_dense_in_last_axis(tensor):
            raise ValueError("Every input must have a contiguous last axis.")

    expected = (n_layers, total_ctx, num_kv_heads, head_dim)
    for output in (k_out, v_out):
        if output is None:
            continue
        if output.shape != expected:
            raise ValueError(f"Invalid output shape: got {tuple(output.shape)}, not {expected}.")
        if output.device != kv.device or output.dtype != kv.dtype:
            raise ValueError("An output must have the device and dtype of kv.")
        if not may_be_written(output):
            raise ValueError("An output must have a dense last axis and elements of its own.")
        if output is kv:
            raise ValueError("An output must not be kv itself.")
    if k_out is not None and k_out is v_out:
        raise ValueError("k_out and v_out must be two tensors.")
