"""The ops' definitions in float64, one row and one head at a time.

Meant to be read beside the equations and to measure every backend against: nothing here is shared
with a backend, nothing is fast, and no input is written to. Results keep full precision, without
the rounding to the dtype of a cache or an output that an op does at the end.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ReplayReference:
    """What `kda_replayssm_decode` leaves behind; float64 copies, shaped like the op's arguments."""

    out: Tensor
    initial_state: Tensor
    d_cache: Tensor
    k_cache: Tensor
    g_cache: Tensor


def fused_kv_reference(
    kv: Tensor,
    k_norm_weight: Tensor,
    eps: Tensor,
    cos_sin_cache: Tensor,
    positions: Tensor,
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
) -> tuple[Tensor, Tensor]:
    """K in float64 and V in `kv`'s dtype, both `[n_layers, total_ctx, num_kv_heads, head_dim]`.

    For a head x of K in layer l, with p the token's position and r = rotary_dim / 2::

        y = x / sqrt(mean(x * x) + eps[l]) * k_norm_weight[l]
        k[i]     = y[i] * cos[p, i] - y[i + r] * sin[p, i]        i < r
        k[i + r] = y[i + r] * cos[p, i] + y[i] * sin[p, i]        i < r
        k[i]     = y[i]                                           i >= rotary_dim

    where cos is the first half of `cos_sin_cache` `[max_pos, rotary_dim]` and sin the second.
    Source: RMSNorm (Zhang and Sennrich 2019) and RoPE (Su et al. 2021) in the GPT-NeoX layout.
    """
    total_ctx, n_layers, _ = kv.shape
    half = rotary_dim // 2
    k_out = torch.empty(n_layers, total_ctx, num_kv_heads, head_dim, dtype=torch.float64)
    v_out = torch.empty(n_layers, total_ctx, num_kv_heads, head_dim, dtype=kv.dtype)
    k_out, v_out = k_out.to(kv.device), v_out.to(kv.device)
    for layer in range(n_layers):
        for token in range(total_ctx):
            heads = kv[token, layer].reshape(2 * num_kv_heads, head_dim)
            v_out[layer, token] = heads[num_kv_heads:]
            x = heads[:num_kv_heads].double()
            root = torch.sqrt((x * x).mean(dim=1, keepdim=True) + eps[layer].double())
            y = x / root * k_norm_weight[layer].double()
            angles = cos_sin_cache[int(positions[token])].double()
            cos, sin = angles[:half], angles[half:]
            k = y.clone()
            k[:, :half] = y[:, :half] * cos - y[:, half:rotary_dim] * sin
            k[:, half:rotary_dim] = y[:, half:rotary_dim] * cos + y[:, :half] * sin
            k_out[layer, token] = k
    return k_out, v_out


def kda_packed_reference(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    scale: float,
    initial_state: Tensor,
    ssm_state_indices: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
) -> tuple[Tensor, Tensor]:
    """`out` `[B, 1, HV, V]` and the updated `initial_state` `[slots, HV, V, K]`, in float64.

    For each row with a slot and each value head, S being the slot's state `[V, K]`::

        g     = -exp(A_log) * softplus(a + dt_bias)       per key channel
        beta  = sigmoid(b)
        D     = S * exp(g)
        delta = beta * (v - D k)
        out   = D q + delta * (k . q)                     = S' q
        S'    = D + delta (outer) k

    q and k are those of query head `hv // (HV / H)`, divided by `sqrt(sum of squares + 1e-6)` if
    asked; q is then multiplied by `scale`. Softplus is the identity above 20. A row with a
    negative slot gives zeros.
    Source: Kimi Delta Attention (Kimi Linear, 2025), one step of the recurrence.
    """
    batch = mixed_qkv.shape[0]
    _, num_value_heads, value_dim, _ = initial_state.shape
    state = _float64_copy(initial_state)
    out = state.new_zeros(batch, 1, num_value_heads, value_dim)
    for row in range(batch):
        slot = int(ssm_state_indices[row])
        if slot < 0:
            continue
        for head in range(num_value_heads):
            q, k, v = _head_qkv(
                mixed_qkv[row], head, initial_state.shape, scale, use_qk_l2norm_in_kernel
            )
            g = _head_gate(a[row], A_log, dt_bias, head, None)
            beta = torch.sigmoid(b[row, head].double())
            decayed = state[slot, head] * torch.exp(g)
            delta = beta * (v - decayed @ k)
            out[row, 0, head] = decayed @ q + delta * (k @ q)
            state[slot, head] = decayed + torch.outer(delta, k)
    return out, state


def kda_replayssm_reference(
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
    ssm_state_indices: Tensor,
    write_pos: Tensor,
    force_flush: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    lower_bound: float | None = None,
) -> ReplayReference:
    """All that `kda_replayssm_decode` writes, in float64.

    The state is first brought up to date by replaying the `c = write_pos[row]` committed entries
    of the slot's ring, one after the other::

        S = S * exp(g_cache[j]) + d_cache[j] (outer) k_cache[j]        j = 0 .. c - 1

    which is `S * exp(G) + sum_j d_j (outer) (k_j * exp(G - G_j))` with the running sums G_j of the
    gates multiplied out. The step is that of `kda_packed_reference`, except that beta is rounded
    through `b`'s dtype and that with `lower_bound`::

        g = lower_bound * sigmoid(exp(A_log) * (a + dt_bias))

    If `c == L - 1` or `force_flush[row] != 0`, S' goes to `initial_state` and the ring stays as it
    is; otherwise delta, k and g go to entry c of the ring and `initial_state` stays as it is. The
    values added here are not rounded to the caches' dtypes.
    Source: Kimi Delta Attention (Kimi Linear, 2025) with the tokens since a checkpoint replayed.
    """
    batch = mixed_qkv.shape[0]
    _, num_value_heads, value_dim, _ = initial_state.shape
    ring_length = d_cache.shape[2]
    heads_per_key = num_value_heads // k_cache.shape[1]
    state, deltas = _float64_copy(initial_state), _float64_copy(d_cache)
    keys, gates = _float64_copy(k_cache), _float64_copy(g_cache)
    out = state.new_zeros(batch, 1, num_value_heads, value_dim)
    for row in range(batch):
        slot, cursor = int(ssm_state_indices[row]), int(write_pos[row])
        if slot < 0:
            continue
        flush = cursor == ring_length - 1
        if force_flush is not None and int(force_flush[row]) != 0:
            flush = True
        for head in range(num_value_heads):
            key_head = head // heads_per_key
            current = state[slot, head]
            for entry in range(cursor):
                added = torch.outer(deltas[slot, head, entry], keys[slot, key_head, entry])
                current = current * torch.exp(gates[slot, head, entry]) + added

            q, k, v = _head_qkv(
                mixed_qkv[row], head, initial_state.shape, scale, use_qk_l2norm_in_kernel
            )
            g = _head_gate(a[row], A_log, dt_bias, head, lower_bound)
            beta = torch.sigmoid(b[row, head].double()).to(b.dtype).double()
            decayed = current * torch.exp(g)
            delta = beta * (v - decayed @ k)
            out[row, 0, head] = decayed @ q + delta * (k @ q)
            if flush:
                state[slot, head] = decayed + torch.outer(delta, k)
            else:
                deltas[slot, head, cursor] = delta
                keys[slot, key_head, cursor] = k
                gates[slot, head, cursor] = g
    return ReplayReference(out, state, deltas, keys, gates)


def _float64_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64, copy=True)


def _head_qkv(
    mixed: Tensor, head: int, state_shape: torch.Size, scale: float, use_l2norm: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Slice q `[K]`, k `[K]` and v `[V]` of one value head from a row `[2*H*K + HV*V]`."""
    _, num_value_heads, value_dim, key_dim = state_shape
    num_heads = (mixed.numel() - num_value_heads * value_dim) // (2 * key_dim)
    mixed = mixed.double()
    queries = mixed[: num_heads * key_dim].reshape(num_heads, key_dim)
    keys = mixed[num_heads * key_dim : 2 * num_heads * key_dim].reshape(num_heads, key_dim)
    values = mixed[2 * num_heads * key_dim :].reshape(num_value_heads, value_dim)
    query_head = head // (num_value_heads // num_heads)
    q, k, v = queries[query_head], keys[query_head], values[head]
    if use_l2norm:
        q = q / torch.sqrt(q @ q + 1e-6)
        k = k / torch.sqrt(k @ k + 1e-6)
    return q * scale, k, v


def _head_gate(
    a: Tensor, A_log: Tensor, dt_bias: Tensor, head: int, lower_bound: float | None
) -> Tensor:
    """Log decay `[K]` of one value head; `a` is one row's, both it and `dt_bias` flat or not."""
    num_value_heads = A_log.numel()
    x = a.reshape(num_value_heads, -1)[head].double()
    x = x + dt_bias.reshape(num_value_heads, -1)[head].double()
    rate = torch.exp(A_log[head].double())
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * x)
    softplus = torch.where(x > 20, x, torch.log1p(torch.exp(x)))
    return -rate * softplus
