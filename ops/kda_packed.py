"""`kda_packed_decode`: one step of the gated delta rule for a batch of rows."""

from __future__ import annotations

from typing import Any

from tensorpact.contracts import kda_packed as contracts
from tensorpact.ops.entry import op


@op(contracts.kda_packed_decode)
def kda_packed_decode(
    mixed_qkv: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    scale: Any,
    initial_state: Any,
    out: Any,
    ssm_state_indices: Any,
    use_qk_l2norm_in_kernel: Any = False,
    *,
    backend: Any = None,
) -> Any:
    """Decode one token per row and update the state of its slot in place.

    With per-channel gate `g = -exp(A_log) * softplus(a + dt_bias)` and `beta = sigmoid(b)`:
    `decayed = state * exp(g)`, `delta = beta * (v - decayed k)`, `out = decayed q + delta (k . q)`,
    `state = decayed + delta (outer) k`. q is scaled by `scale`; value head `hv` reads query head
    `hv // (HV / H)`.

    Args:
        mixed_qkv: `[batch, 2*H*K + HV*V]`, q, k and v side by side.
        a: `[batch, HV*K]`, gate logits.
        b: `[batch, HV]`, write strengths before the sigmoid.
        A_log: `[HV]`.
        dt_bias: `[HV*K]`.
        scale: factor of q.
        initial_state: `[slots, HV, V, K]`, updated in place; may be a strided view with a
            contiguous last axis.
        out: `[batch, 1, HV, V]`, contiguous, filled and returned.
        ssm_state_indices: `[batch]` int32, the slot of each row; -1 for padding, whose row of
            `out` becomes 0. No two rows share a slot.
        use_qk_l2norm_in_kernel: divide q and k by `sqrt(sum of squares + 1e-6)` first.
        backend: the backend to run on; the best one that can, by default.

    Returns:
        `(out, initial_state)`, the objects that were passed.

    Raises:
        ContractError: a documented error of the contract; nothing has been written then.

    Source: Kimi Delta Attention, Kimi Linear technical report, 2025.
    """
