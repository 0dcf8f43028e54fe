"""`kda_replayssm_decode`: the KDA step that keeps recent tokens in a ring beside the state."""

from __future__ import annotations

from typing import Any

from tensorpact.contracts import kda_replayssm as contracts
from tensorpact.ops.entry import op


@op(contracts.kda_replayssm_decode)
def kda_replayssm_decode(
    mixed_qkv: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    scale: Any,
    initial_state: Any,
    d_cache: Any,
    k_cache: Any,
    g_cache: Any,
    out: Any,
    ssm_state_indices: Any,
    write_pos: Any,
    force_flush: Any = None,
    use_qk_l2norm_in_kernel: Any = False,
    lower_bound: Any = None,
    *,
    backend: Any = None,
) -> Any:
    """Decode one token per row; write the state only when the row's ring is full.

    The state of a slot is `initial_state` plus the tokens committed to its ring since:
    `state = initial_state * exp(G) + sum_j d_j (outer) (k_j * exp(G - G_j))` over the entries
    `j < write_pos`, with `G_j` the running sum of the ring's log-decays and `G` their total. The
    token is then decoded as by `kda_packed_decode`. If its cursor is the last entry, or
    `force_flush` is set, the new state is written back and the ring left as it is; otherwise the
    token is appended at the cursor. The caller advances `write_pos`, or resets it after a flush.

    Args:
        mixed_qkv: `[batch, 2*H*K + HV*V]`, q, k and v side by side.
        a: `[batch, HV*K]` or `[batch, HV, K]`, contiguous gate logits.
        b: `[batch, HV]`, write strengths before the sigmoid.
        A_log: `[HV]`.
        dt_bias: `[HV*K]` or `[HV, K]`, contiguous.
        scale: factor of q.
        initial_state: `[slots, HV, V, K]`, the checkpoint, updated in place by a flush.
        d_cache: `[slots, HV, L, V]`, ring of deltas, updated in place.
        k_cache: `[slots, H, L, K]`, ring of keys, updated in place.
        g_cache: `[slots, HV, L, K]` float32, ring of log-decays, updated in place.
        out: `[batch, 1, HV, V]`, contiguous, filled and returned.
        ssm_state_indices: `[batch]` int32, the slot of each row; -1 for padding, whose row of
            `out` becomes 0. No two rows share a slot.
        write_pos: `[batch]` int32, the ring entry of this token, `0 <= write_pos < L`.
        force_flush: `[batch]` int32, non-zero where the row has to flush now.
        use_qk_l2norm_in_kernel: divide q and k by `sqrt(sum of squares + 1e-6)` first.
        lower_bound: use the gate `lower_bound * sigmoid(exp(A_log) * (a + dt_bias))` instead.
        backend: the backend to run on; the best one that can, by default.

    Returns:
        `(out, initial_state)`, the objects that were passed.

    Raises:
        ContractError: a documented error of the contract; nothing has been written then.

    Source: Kimi Delta Attention, Kimi Linear technical report, 2025.
    """
