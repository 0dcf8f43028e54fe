"""Eager reference of `kda_replayssm_decode`: the gated delta rule with a ring of recent tokens."""

import torch
from torch import Tensor
from torch.nn import functional

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
from tensorpact.contracts import kda_replayssm as contracts


@implements(contracts.kda_replayssm_decode, backend="eager")
@torch.no_grad()
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
) -> tuple[Tensor, Tensor]:
    """Decode one token per row from a checkpointed state and the tokens since, kept in a ring.

    The state of a row is its checkpoint in `initial_state` with the ring's committed tokens
    (entries before `write_pos`) replayed on it. The token is decoded as by `kda_packed_decode`;
    then it is either appended to the ring at `write_pos`, or, if that is the ring's last entry or
    `force_flush` says so, the state after it becomes the new checkpoint and the ring is left as it
    is. Advancing `write_pos`, or setting it to 0 after a flush, is up to the caller.

    Arithmetic is float32, but beta is rounded through `b`'s dtype. All of it precedes the first
    write, and the result is computed from values not yet rounded to the caches' dtypes.

    Args:
        mixed_qkv: `[B, 2*H*K + HV*V]`, q, k and v in this order; head hv reads query and key head
            `hv // (HV / H)`.
        a: `[B, HV*K]` or `[B, HV, K]`, input of the gate.
        b: `[B, HV]`, logits of beta.
        A_log: `[HV]`, log of the decay rate.
        dt_bias: `[HV*K]` or `[HV, K]`, added to `a`.
        scale: factor of q.
        initial_state: `[slots, HV, V, K]`, checkpoints, written on a flush; may be strided.
        d_cache: `[slots, HV, L, V]`, ring of deltas; may be strided, as the next two.
        k_cache: `[slots, H, L, K]`, ring of keys, after the optional norm.
        g_cache: `[slots, HV, L, K]`, float32, ring of gates.
        out: `[B, 1, HV, V]`, written in place; may be strided.
        ssm_state_indices: `[B]`, slot of each row; a negative one marks a padding row, whose out
            is zero, which touches no slot and whose `write_pos` is not read. No two rows share a
            slot.
        write_pos: `[B]`, committed tokens in each row's ring, from 0 to `L - 1`.
        force_flush: `[B]`, nonzero to flush a row whatever its `write_pos`.
        use_qk_l2norm_in_kernel: divide q and k by `sqrt(sum of squares + 1e-6)`.
        lower_bound: bound of the gate; selects its sigmoid form, see `log_decay`.

    Returns:
        `(out, initial_state)`, the very objects given.
    """
    if mixed_qkv.shape[0] == 0:
        return out, initial_state
    _, num_value_heads, value_dim, key_dim = initial_state.shape
    ring_length = d_cache.shape[2]
    is_real = ssm_state_indices >= 0
    slots = ssm_state_indices.to(torch.int64).clamp(min=0)
    cursor = torch.where(is_real, write_pos.to(torch.int64), 0)
    flushes = cursor == ring_length - 1
    if force_flush is not None:
        flushes = flushes | (force_flush != 0)
    appends = is_real & ~flushes

    q, key_to_cache, v = split_qkv(
        mixed_qkv, num_value_heads, key_dim, value_dim, scale, use_qk_l2norm_in_kernel
    )
    q, k = to_value_heads(q, num_value_heads), to_value_heads(key_to_cache, num_value_heads)
    gate = log_decay(a, A_log, dt_bias, key_dim, lower_bound)
    beta = torch.sigmoid(b.float()).to(b.dtype).float()

    old_state = initial_state[slots]
    state = _replay(old_state, d_cache[slots], k_cache[slots], g_cache[slots], cursor)
    decayed = state * gate.exp().unsqueeze(-2)
    delta, result = delta_rule(decayed, q, k, v, beta)

    # Flushing and appending rows alike write to every cache, the old value where nothing changes:
    # which rows do what is known to the device only.
    ring_entry = (slots, slice(None), cursor)
    new_delta = select_rows(appends, delta, d_cache[ring_entry])
    new_key = select_rows(appends, key_to_cache, k_cache[ring_entry])
    new_gate = select_rows(appends, gate, g_cache[ring_entry])
    new_state = select_rows(is_real & flushes, add_outer_product(decayed, delta, k), old_state)

    source = write_source_rows(is_real)
    target_slots = slots[source]
    target_entry = (target_slots, slice(None), cursor[source])
    out.copy_(result.masked_fill(~is_real[:, None, None], 0.0).unsqueeze(1))
    d_cache[target_entry] = new_delta[source]
    k_cache[target_entry] = new_key[source]
    g_cache[target_entry] = new_gate[source]
    initial_state[target_slots] = new_state[source]
    return out, initial_state


def _replay(
    checkpoint: Tensor, deltas: Tensor, keys: Tensor, gates: Tensor, committed: Tensor
) -> Tensor:
    """State `[B, HV, V, K]` after the first `committed` `[B]` tokens of each row's ring, float32.

    `checkpoint * exp(G) + sum_j delta_j (outer) (key_j * exp(G - G_j))`, where `G_j` is the running
    sum of the gates up to and including entry j, and G the sum of all of them.
    """
    entries = torch.arange(gates.shape[2], device=gates.device)
    # Entries past the committed ones may hold anything, NaN included, so no multiplying by zero.
    is_stale = (entries >= committed.unsqueeze(-1))[:, None, :, None]
    gates = gates.float().masked_fill(is_stale, 0.0)
    deltas = deltas.float().masked_fill(is_stale, 0.0)
    keys = keys.float().masked_fill(is_stale, 0.0)

    # G - G_j is the sum of the gates after j. Summing from the end gives it without the
    # cancellation of a difference of two long sums.
    from_entry_on = gates.flip(2).cumsum(dim=2).flip(2)
    after_entry = functional.pad(from_entry_on[:, :, 1:], (0, 0, 0, 1))
    decayed_keys = to_value_heads(keys, gates.shape[1]) * after_entry.exp()
    return checkpoint.float() * from_entry_on[:, :, :1].exp() + deltas.mT @ decayed_keys
