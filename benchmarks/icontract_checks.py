"""The ops checked by icontract: the conditions of handwritten_checks.py, one for each message.

icontract evaluates the decorators from the function upwards, so the documented order is to be read
from the last one to the first. A condition sees the arguments and nothing that another condition
has computed. Python types are not looked at.
"""

from __future__ import annotations

import torch
from icontract import require
from torch import Tensor


@require(
    lambda mixed_qkv, force_flush: force_flush is None or force_flush.device == mixed_qkv.device,
    "`force_flush` is on the device of `mixed_qkv`",
)
@require(
    lambda mixed_qkv, write_pos, d_cache, k_cache, g_cache: all(
        tensor.device == mixed_qkv.device for tensor in (write_pos, d_cache, k_cache, g_cache)
    ),
    "`write_pos` and the caches are on the device of `mixed_qkv`",
)
@require(lambda g_cache: g_cache.dtype is torch.float32, "`g_cache` has dtype torch.float32")
@require(
    lambda g_cache, d_cache, initial_state: (
        g_cache.shape[1:] == (initial_state.shape[1], d_cache.shape[2], initial_state.shape[3])
    ),
    "`g_cache` has shape [slots, HV, L, K]",
)
@require(
    lambda k_cache, d_cache, mixed_qkv, initial_state: (
        k_cache.shape[1:]
        == (
            (mixed_qkv.shape[1] - initial_state.shape[1] * initial_state.shape[2])
            // (2 * initial_state.shape[3]),
            d_cache.shape[2],
            initial_state.shape[3],
        )
    ),
    "`k_cache` has shape [slots, H, L, K]",
)
@require(
    lambda d_cache, initial_state: (
        d_cache.shape[1:] == (initial_state.shape[1], d_cache.shape[2], initial_state.shape[2])
    ),
    "`d_cache` has shape [slots, HV, L, V]",
)
@require(lambda d_cache: d_cache.shape[2] >= 1, "the cache length is at least 1")
@require(
    lambda force_flush, mixed_qkv: (
        force_flush is None
        or (
            force_flush.ndim == 1
            and force_flush.dtype is torch.int32
            and force_flush.shape == (mixed_qkv.shape[0],)
        )
    ),
    "`force_flush` is a length-B int32 tensor or None",
)
@require(
    lambda write_pos, mixed_qkv: write_pos.shape == (mixed_qkv.shape[0],),
    "`write_pos` has shape [batch]",
)
@require(
    lambda write_pos: write_pos.ndim == 1 and write_pos.dtype is torch.int32,
    "`write_pos` is a 1D int32 tensor",
)
@require(
    lambda mixed_qkv, initial_state: (
        initial_state.shape[1]
        % (
            (mixed_qkv.shape[1] - initial_state.shape[1] * initial_state.shape[2])
            // (2 * initial_state.shape[3])
        )
        == 0
    ),
    "the value heads are a multiple of the query heads",
)
@require(
    lambda mixed_qkv, initial_state: (
        (mixed_qkv.shape[1] - initial_state.shape[1] * initial_state.shape[2])
        % (2 * initial_state.shape[3])
        == 0
    ),
    "the width of q and k is a multiple of the key dim",
)
@require(
    lambda mixed_qkv, initial_state: (
        mixed_qkv.shape[1] > initial_state.shape[1] * initial_state.shape[2]
    ),
    "`mixed_qkv` holds q and k",
)
@require(
    lambda out, mixed_qkv, initial_state: (
        out.shape == (mixed_qkv.shape[0], 1, initial_state.shape[1], initial_state.shape[2])
    ),
    "`out` has shape [batch, 1, HV, V]",
)
@require(
    lambda dt_bias, initial_state: (
        dt_bias.numel() == initial_state.shape[1] * initial_state.shape[3]
    ),
    "`dt_bias` has HV*K values",
)
@require(
    lambda A_log, initial_state: A_log.shape[0] == initial_state.shape[1],
    "`A_log` has HV values",
)
@require(
    lambda b, initial_state: b.shape[1] == initial_state.shape[1],
    "`b` has HV values a row",
)
@require(
    lambda a, initial_state: a.shape[1:].numel() == initial_state.shape[1] * initial_state.shape[3],
    "`a` has HV*K values a row",
)
@require(
    lambda initial_state: initial_state.ndim == 4 and initial_state.stride(-1) == 1,
    "`initial_state` is 4D with a contiguous last axis",
)
@require(
    lambda mixed_qkv, ssm_state_indices: ssm_state_indices.shape[0] == mixed_qkv.shape[0],
    "`ssm_state_indices` has an entry for each row",
)
@require(
    lambda mixed_qkv, a, b: a.shape[0] == mixed_qkv.shape[0] and b.shape[0] == mixed_qkv.shape[0],
    "`a` and `b` have the rows of `mixed_qkv`",
)
@require(
    lambda mixed_qkv, a, b, A_log, dt_bias, initial_state, out, ssm_state_indices: all(
        tensor.device == mixed_qkv.device
        for tensor in (a, b, A_log, dt_bias, initial_state, out, ssm_state_indices)
    ),
    "all tensors are on one device",
)
@require(lambda out: out.is_contiguous(), "`out` is contiguous")
@require(lambda ssm_state_indices: ssm_state_indices.ndim == 1, "`ssm_state_indices` is 1D")
@require(
    lambda A_log: A_log.ndim == 1 and A_log.stride(0) == 1,
    "`A_log` is a contiguous 1D tensor",
)
@require(
    lambda b: b.ndim == 2 and b.stride(-1) == 1,
    "`b` is 2D with a contiguous last axis",
)
@require(
    lambda mixed_qkv: mixed_qkv.ndim == 2 and mixed_qkv.stride(-1) == 1,
    "`mixed_qkv` is 2D with a contiguous last axis",
)
@require(
    lambda dt_bias: dt_bias.ndim in (1, 2) and dt_bias.is_contiguous(),
    "`dt_bias` is a contiguous 1D or 2D tensor",
)
@require(
    lambda a: a.ndim in (2, 3) and a.is_contiguous(),
    "`a` is a contiguous 2D or 3D tensor",
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
    *,
    backend: str | None = None,
) -> None:
    return


@require(
    lambda v_out, kv: v_out is None or (v_out.device == kv.device and v_out.dtype == kv.dtype),
    "v_out has the device and dtype of kv",
)
@require(
    lambda v_out, kv, num_kv_heads, head_dim: (
        v_out is None or v_out.shape == (kv.shape[1], kv.shape[0], num_kv_heads, head_dim)
    ),
    "v_out has shape [n_layers, total_ctx, num_kv_heads, head_dim]",
)
@require(
    lambda k_out, kv: k_out is None or (k_out.device == kv.device and k_out.dtype == kv.dtype),
    "k_out has the device and dtype of kv",
)
@require(
    lambda k_out, kv, num_kv_heads, head_dim: (
        k_out is None or k_out.shape == (kv.shape[1], kv.shape[0], num_kv_heads, head_dim)
    ),
    "k_out has shape [n_layers, total_ctx, num_kv_heads, head_dim]",
)
@require(
    lambda eps, kv: kv.shape[0] == 0 or eps.shape == (kv.shape[1],),
    "eps has shape [n_layers]",
)
@require(
    lambda k_norm_weight, kv, head_dim: (
        kv.shape[0] == 0 or k_norm_weight.shape == (kv.shape[1], head_dim)
    ),
    "k_norm_weight has shape [n_layers, head_dim]",
)
@require(
    lambda kv, rotary_dim, head_dim: (
        kv.shape[0] == 0 or (0 < rotary_dim <= head_dim and rotary_dim % 2 == 0)
    ),
    "rotary_dim is an even number up to head_dim",
)
@require(
    lambda kv, num_kv_heads, head_dim: (
        kv.shape[0] == 0 or kv.shape[2] == 2 * num_kv_heads * head_dim
    ),
    "kv has trailing dim 2 * num_kv_heads * head_dim",
)
@require(lambda kv: kv.ndim == 3, "kv is 3D")
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
    return
