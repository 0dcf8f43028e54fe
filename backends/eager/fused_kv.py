"""Eager reference of `fused_kv_materialize`: K normed and rotated, V copied, for all layers."""

import torch
from torch import Tensor

from tensorpact.backends.registry import implements
from tensorpact.contracts import fused_kv as contracts


@implements(contracts.fused_kv_materialize, backend="eager")
@torch.no_grad()
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
    """Turn the stacked K and V projections of all layers into what a KV cache stores.

    Every head of K gets an RMSNorm over `head_dim`, then neox-style RoPE on its first `rotary_dim`
    channels (channel `i` of the first half pairs with channel `i` of the second half); channels
    past `rotary_dim` are normed only. V is copied bit for bit. Arithmetic is float32 (float64 when
    `kv` is float64) with a single rounding to `kv`'s dtype at the end, and all of it precedes the
    first write.

    Args:
        kv: `[total_ctx, n_layers, 2 * num_kv_heads * head_dim]`, K then V in the last axis.
        k_norm_weight: `[n_layers, head_dim]`, RMSNorm weight of each layer.
        eps: `[n_layers]`, added to the mean of squares of each layer.
        cos_sin_cache: `[max_pos, rotary_dim]`, cosines in the first half, sines in the second.
        positions: `[total_ctx]`, rows of `cos_sin_cache`, any integer dtype, on any device.
        num_kv_heads: heads of K and of V.
        head_dim: channels of a head.
        rotary_dim: leading channels that are rotated; even, at most `head_dim`.
        k_out: where K goes; `[n_layers, total_ctx, num_kv_heads, head_dim]`, may be strided.
        v_out: where V goes; shaped like `k_out`, may be strided.

    Returns:
        `(k, v)`, both `[n_layers, total_ctx, num_kv_heads, head_dim]`: `k_out` and `v_out`
        themselves where given. With no tokens, two new empty tensors whatever the outputs are.
    """
    total_ctx, n_layers, _ = kv.shape
    out_shape = (n_layers, total_ctx, num_kv_heads, head_dim)
    if total_ctx == 0:
        return kv.new_empty(out_shape), kv.new_empty(out_shape)

    compute_dtype = torch.float64 if kv.dtype == torch.float64 else torch.float32
    per_head = torch.unflatten(kv, -1, (2, num_kv_heads, head_dim)).permute(2, 1, 0, 3, 4)
    keys, values = per_head.unbind(0)  # each [n_layers, total_ctx, num_kv_heads, head_dim]
    normed = _rms_norm(keys.to(compute_dtype), k_norm_weight.to(compute_dtype), eps)
    # index_select refuses a negative position, which plain indexing would take from the end.
    rows = positions.to(cos_sin_cache.device, torch.int64)
    cos_sin = cos_sin_cache.index_select(0, rows).to(compute_dtype)
    rotated = _rotate_first_channels(normed, cos_sin, rotary_dim)

    k = kv.new_empty(out_shape) if k_out is None else k_out
    v = kv.new_empty(out_shape) if v_out is None else v_out
    k.copy_(rotated)
    v.copy_(values)
    return k, v


def _rms_norm(keys: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """RMSNorm of `keys` `[n_layers, tokens, heads, head_dim]` with `weight` and `eps` per layer."""
    mean_square = keys.square().mean(dim=-1, keepdim=True)
    layer_eps = eps.to(keys.dtype)[:, None, None, None]
    return keys * torch.rsqrt(mean_square + layer_eps) * weight[:, None, None, :]


def _rotate_first_channels(keys: Tensor, cos_sin: Tensor, rotary_dim: int) -> Tensor:
    """Neox-style RoPE of `keys` `[..., tokens, heads, head_dim]` by `cos_sin`, a row per token."""
    half = rotary_dim // 2
    cos, sin = torch.split(cos_sin.unsqueeze(-2), half, dim=-1)  # each [tokens, 1, half]
    widths = [half, half, keys.shape[-1] - rotary_dim]
    first, second, rest = torch.split(keys, widths, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
