"""`fused_kv_materialize`: what a KV cache stores, from the stacked projections of all layers."""

from __future__ import annotations

from typing import Any

from tensorpact.contracts import fused_kv as contracts
from tensorpact.ops.entry import op


@op(contracts.fused_kv_materialize)
def fused_kv_materialize(
    kv: Any,
    k_norm_weight: Any,
    eps: Any,
    cos_sin_cache: Any,
    positions: Any,
    num_kv_heads: Any,
    head_dim: Any,
    rotary_dim: Any,
    k_out: Any = None,
    v_out: Any = None,
    *,
    backend: Any = None,
) -> Any:
    """Norm and rotate K, copy V, for the tokens of all layers at once.

    Every head of K gets an RMSNorm over its `head_dim` channels, then neox-style RoPE on the first
    `rotary_dim` of them; V is copied bit for bit. Both results have `kv`'s dtype.

    Args:
        kv: `[total_ctx, n_layers, 2*num_kv_heads*head_dim]`, K then V in the last axis.
        k_norm_weight: `[n_layers, head_dim]`.
        eps: `[n_layers]`, added to the mean of squares.
        cos_sin_cache: `[max_pos, rotary_dim]`, cosines in the first half, sines in the second.
        positions: `[total_ctx]`, rows of `cos_sin_cache`, any integer dtype, on any device.
        num_kv_heads: heads of K and of V.
        head_dim: channels of a head.
        rotary_dim: even number of leading channels that are rotated.
        k_out: `[n_layers, total_ctx, num_kv_heads, head_dim]`, filled and returned if given; may
            be a strided view with a contiguous last axis.
        v_out: the same for V.
        backend: the backend to run on; the best one that can, by default.

    Returns:
        `(k, v)`, each `[n_layers, total_ctx, num_kv_heads, head_dim]`. With `total_ctx == 0` two
        new empty tensors, and only Python types and `kv` are looked at.

    Raises:
        ContractError: a documented error of the contract; nothing has been written then.

    Source: RMSNorm, Zhang and Sennrich 2019; RoPE, Su et al. 2021 (half-split channel pairs).

    >>> import torch
    >>> keys, values = fused_kv_materialize(
    ...     torch.ones(3, 2, 32), torch.ones(2, 8), torch.full((2,), 1e-6),
    ...     torch.cat([torch.ones(5, 2), torch.zeros(5, 2)], dim=1), torch.arange(3),
    ...     num_kv_heads=2, head_dim=8, rotary_dim=4,
    ... )
    >>> keys.shape, bool((values == 1).all())
    (torch.Size([2, 3, 2, 8]), True)
    """
