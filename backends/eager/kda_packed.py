"""Eager reference of `kda_packed_decode`: one token of the gated delta rule per row."""

import torch
from torch import Tensor

from tensorpact.backends.eager.kda_math import (
    add_outer_product,
    delta_rule,
    log_decay,
    select_rows,
    split_qkv,
    to_value_heads,
    write_source_rows,
)
from tensorpact.backends.registry import implements
from tensorpact.contracts import kda_packed as contracts


@implements(contracts.kda_packed_decode, backend="eager")
@torch.no_grad()
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
    """Decode one token per row and update each row's state in place.

    With `beta = sigmoid(b)` and g as in `log_decay`, per row and value head::

        decayed = state * exp(g)                  delta = beta * (v - decayed k)
        out = decayed q + delta * (k . q)         state = decayed + delta (outer) k

    Arithmetic is float32, beta too. All of it precedes the first write.

    Args:
        mixed_qkv: `[B, 2*H*K + HV*V]`, q, k and v in this order; head hv reads query and key head
            `hv // (HV / H)`.
        a: `[B, HV*K]` or `[B, HV, K]`, input of the gate.
        b: `[B, HV]`, logits of beta.
        A_log: `[HV]`, log of the decay rate.
        dt_bias: `[HV*K]` or `[HV, K]`, added to `a`.
        scale: factor of q.
        initial_state: `[slots, HV, V, K]`, written in place; may be strided.
        out: `[B, 1, HV, V]`, written in place; may be strided.
        ssm_state_indices: `[B]`, slot of each row; a negative one marks a padding row, whose out
            is zero and which touches no slot. No two rows share a slot.
        use_qk_l2norm_in_kernel: divide q and k by `sqrt(sum of squares + 1e-6)`.

    Returns:
        `(out, initial_state)`, the very objects given.
    """
    if mixed_qkv.shape[0] == 0:
        return out, initial_state
    _, num_value_heads, value_dim, key_dim = initial_state.shape
    is_real = ssm_state_indices >= 0
    slots = ssm_state_indices.to(torch.int64).clamp(min=0)
    old_state = initial_state[slots]

    q, k, v = split_qkv(
        mixed_qkv, num_value_heads, key_dim, value_dim, scale, use_qk_l2norm_in_kernel
    )
    q, k = to_value_heads(q, num_value_heads), to_value_heads(k, num_value_heads)
    gate = log_decay(a, A_log, dt_bias, key_dim)
    decayed = old_state.float() * gate.exp().unsqueeze(-2)
    delta, result = delta_rule(decayed, q, k, v, beta=torch.sigmoid(b.float()))
    new_state = select_rows(is_real, add_outer_product(decayed, delta, k), old_state)

    source = write_source_rows(is_real)
    out.copy_(result.masked_fill(~is_real[:, None, None], 0.0).unsqueeze(1))
    initial_state[slots[source]] = new_state[source]
    return out, initial_state
