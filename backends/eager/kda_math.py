"""What the eager KDA (Kimi Delta Attention) decode ops share: gate, delta rule, row writes.

Shapes use B rows, H query/key heads, HV value heads, K key channels, V value channels.
"""

import torch
from torch import Tensor
from torch.nn import functional

L2_NORM_EPS = 1e-6
SOFTPLUS_LINEAR_ABOVE = 20.0


def split_qkv(
    mixed_qkv: Tensor,
    num_value_heads: int,
    key_dim: int,
    value_dim: int,
    scale: float,
    use_qk_l2norm: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Take `mixed_qkv` `[B, 2*H*K + HV*V]` apart into float32 q, k `[B, H, K]` and v `[B, HV, V]`.

    q and k are divided by their length if `use_qk_l2norm`; q is multiplied by `scale` after that.
    """
    value_width = num_value_heads * value_dim
    query_width = (mixed_qkv.shape[1] - value_width) // 2
    q, k, v = torch.split(mixed_qkv.float(), [query_width, query_width, value_width], dim=-1)
    q = torch.unflatten(q, -1, (-1, key_dim))
    k = torch.unflatten(k, -1, (-1, key_dim))
    v = torch.unflatten(v, -1, (num_value_heads, value_dim))
    if use_qk_l2norm:
        q, k = _unit_length(q), _unit_length(k)
    return q * scale, k, v


def _unit_length(x: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().sum(dim=-1, keepdim=True) + L2_NORM_EPS)


def log_decay(
    a: Tensor, A_log: Tensor, dt_bias: Tensor, key_dim: int, lower_bound: float | None = None
) -> Tensor:
    """Gate g `[B, HV, K]`, float32: the log of the factor by which each key channel decays.

    With `x = a + dt_bias`: `-exp(A_log) * softplus(x)`, or, if `lower_bound` is given,
    `lower_bound * sigmoid(exp(A_log) * x)`. `a` is `[B, HV*K]` or `[B, HV, K]`, `dt_bias`
    `[HV*K]` or `[HV, K]`, `A_log` `[HV]`.
    """
    num_value_heads = A_log.shape[0]
    x = a.float().reshape(-1, num_value_heads, key_dim)
    x = x + dt_bias.float().reshape(num_value_heads, key_dim)
    rate = A_log.float().exp().unsqueeze(-1)
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * x)
    return -rate * functional.softplus(x, threshold=SOFTPLUS_LINEAR_ABOVE)


def to_value_heads(x: Tensor, num_value_heads: int) -> Tensor:
    """Give value head hv the query head `hv // (HV / H)`: `[B, H, ...]` to `[B, HV, ...]`."""
    return x.repeat_interleave(num_value_heads // x.shape[1], dim=1)


def delta_rule(
    decayed: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """Correction `delta` and result of one token, both `[B, HV, V]`, in float32.

    `delta = beta * (v - decayed k)` and `result = decayed q + delta * (k . q)`, for `decayed`
    `[B, HV, V, K]`, q and k `[B, HV, K]`, v `[B, HV, V]` and beta `[B, HV]`.
    """
    # Products and sums instead of a matrix product, which autocast or TF32 would round.
    predicted = (decayed * k.unsqueeze(-2)).sum(dim=-1)
    delta = beta.unsqueeze(-1) * (v - predicted)
    result = (decayed * q.unsqueeze(-2)).sum(dim=-1) + delta * (k * q).sum(dim=-1, keepdim=True)
    return delta, result


def add_outer_product(decayed: Tensor, delta: Tensor, k: Tensor) -> Tensor:
    """State after the token, `[B, HV, V, K]`: `decayed + delta (outer) k`."""
    return decayed + delta.unsqueeze(-1) * k.unsqueeze(-2)


def select_rows(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Take `new` in `old`'s dtype where `rows` `[B]` holds, `old` bit for bit elsewhere."""
    return torch.where(rows.reshape(-1, *[1] * (old.dim() - 1)), new.to(old.dtype), old)


def write_source_rows(is_real: Tensor) -> Tensor:
    """For each row `[B]`, the row whose place and value it writes (int64).

    A padding row must touch nothing, and leaving it out by a boolean mask would give a shape that
    depends on the data, which neither a compiler nor a graph capture can follow. So a padding row
    repeats the write of the first real row: the same value at the same place, whichever comes
    last. It cannot rewrite an old value somewhere else instead, because a real row may be writing
    there in the same call. With no real row at all, every row repeats row 0, and that one, being
    padding, carries an old value: callers give padding rows place 0 and the value found there.
    """
    rows = torch.arange(is_real.shape[0], device=is_real.device)
    first_real = is_real.to(torch.int32).argmax()
    return torch.where(is_real, rows, first_real)
