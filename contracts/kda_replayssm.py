"""Contract of the KDA decode step that replays recent tokens from a ring."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Float, Float32, Int32
from torch import Tensor

from tensorpact.contracts.kda_errors import device_row, rank_rows, size_rows, stricter_rows
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import (
    Contiguous,
    IndexInto,
    InRange,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
)
from tensorpact.contracts.language.rows import raises

_REALS = (
    "mixed_qkv",
    "a",
    "b",
    "A_log",
    "dt_bias",
    "initial_state",
    "d_cache",
    "k_cache",
    "out",
)
_ROW_FIX = "rebuild it from the batch of this step, as in torch.full((batch,), value, dtype=int32)"
_RING_FIX = "allocate the rings once, beside the state, from the same config"


@contract(
    where=["mixed_qkv.shape[1] > HV * V", "HV % H == 0", "L >= 1"],
    zero={"batch": "`out` and `initial_state` are returned as they are"},
    anchors=["initial_state", "mixed_qkv"],
    errors=[
        raises(
            "kda-a-must-be-contiguous-2d-or-3d",
            "KDA `a` must be a dense tensor of 2 or 3 axes: got {actual}.",
            unless="a: rank layout",
            cause="`a` is a view of a larger projection, or lacks the batch axis.",
            fix="call `.contiguous()` on the slice of the projection.",
        ),
        raises(
            "kda-dt-bias-must-be-a-contiguous-1d-or-2d-tensor",
            "KDA `dt_bias` must be a contiguous 1D or 2D tensor.",
            unless="dt_bias: rank layout",
            cause="`dt_bias` is a strided view, a scalar, or carries a batch axis.",
            fix="pass the parameter itself, [HV*K] or [HV, K], made contiguous.",
        ),
        *rank_rows(("mixed_qkv", "b", "A_log", "ssm_state_indices")),
        *size_rows("{(batch, HV * K)} or {(batch, HV, K)}", "{(HV * K,)} or {(HV, K)}"),
        raises(
            "write-pos-must-be-a-1d-int32-tensor",
            "`write_pos` must be a 1D int32 tensor.",
            unless="write_pos: rank dtype",
            cause="the ring cursor of every row is read as a 32-bit integer; int64 or a scalar "
            "would be misread.",
            fix="pass one int32 cursor a row: torch.full((batch,), position, dtype=torch.int32).",
        ),
        raises(
            "write-pos-must-have-shape-batch",
            "`write_pos` must have shape {(batch,)}.",
            unless="write_pos: dims",
            cause="the cursors belong to another batch than `mixed_qkv`: rows were added, dropped "
            "or sliced on one side only.",
            fix=f"{_ROW_FIX}.",
        ),
        raises(
            "force-flush-must-be-a-length-b-int32-tensor-or-n",
            "`force_flush` must be a length-B int32 tensor or None.",
            unless="force_flush: rank dtype dims",
            cause="a bool mask, or flags of another batch.",
            fix=f"{_ROW_FIX}; convert a bool mask with `.to(torch.int32)`.",
        ),
        raises(
            "replayssm-cache-length-must-be-at-least-1",
            "ReplaySSM cache length must be at least 1.",
            unless="L >= 1",
            cause="the ring was allocated without room for a token.",
            fix="allocate the rings with L >= 1.",
        ),
        raises(
            "d-cache-must-have-shape-slots-hv-l-v",
            "`d_cache` must have shape [slots, HV, L, V].",
            unless="d_cache: rank dims[1:]",
            cause="the ring belongs to other heads or channels than the state.",
            fix=f"{_RING_FIX}.",
        ),
        raises(
            "k-cache-must-have-shape-slots-h-l-k",
            "`k_cache` must have shape [slots, H, L, K].",
            unless="k_cache: rank dims[1:]",
            cause="the ring belongs to other heads or channels, or was given value heads (HV) "
            "where keys have query heads (H).",
            fix=f"{_RING_FIX}.",
        ),
        raises(
            "g-cache-must-have-shape-slots-hv-l-k",
            "`g_cache` must have shape [slots, HV, L, K].",
            unless="g_cache: rank dims[1:]",
            cause="the ring belongs to other heads or channels than the state.",
            fix=f"{_RING_FIX}.",
        ),
        raises(
            "g-cache-must-have-dtype-torch-float32",
            "`g_cache` must have dtype torch.float32.",
            unless="g_cache: dtype",
            cause="log-decays are summed over the ring, which half precision does not survive.",
            fix="allocate g_cache as float32, whatever the dtype of the model.",
        ),
        device_row(
            "kda-ring-device", ("write_pos", "force_flush", "d_cache", "k_cache", "g_cache")
        ),
        raises(
            "kda-ring-slots",
            "`{argument}` must have as many slots as `initial_state`: got {actual}, "
            "expected {slots} slots.",
            unless=["d_cache: dims[0]", "k_cache: dims[0]", "g_cache: dims[0]"],
            cause="state and rings are indexed by the same slot; a shorter ring is read past its "
            "end.",
            fix=f"{_RING_FIX}.",
        ),
        *stricter_rows(_REALS),
    ],
)
def kda_replayssm_decode(
    mixed_qkv: Annotated[Float[Tensor, "batch 2*H*K+HV*V"], LastDimContiguous()],
    a: Annotated[
        Float[Tensor, "batch HV*K"] | Float[Tensor, "batch HV K"],
        Contiguous(),
    ],
    b: Annotated[Float[Tensor, "batch HV"], LastDimContiguous()],
    A_log: Annotated[Float[Tensor, "HV"], LastDimContiguous()],
    dt_bias: Annotated[Float[Tensor, "HV*K"] | Float[Tensor, "HV K"], Contiguous()],
    scale: float,
    initial_state: Annotated[Float[Tensor, "slots HV V K"], LastDimContiguous(), Mutated()],
    d_cache: Annotated[
        Float[Tensor, "slots HV L V"],
        LastDimContiguous(),
        Mutated(),
        NoAlias("initial_state", "k_cache", "g_cache"),
    ],
    k_cache: Annotated[
        Float[Tensor, "slots H L K"],
        LastDimContiguous(),
        Mutated(),
        NoAlias("initial_state", "g_cache"),
    ],
    g_cache: Annotated[
        Float32[Tensor, "slots HV L K"], LastDimContiguous(), Mutated(), NoAlias("initial_state")
    ],
    out: Annotated[
        Float[Tensor, "batch 1 HV V"],
        Contiguous(),
        Mutated(),
        NoAlias(
            "initial_state",
            "d_cache",
            "k_cache",
            "g_cache",
            "mixed_qkv",
            "a",
            "b",
            "A_log",
            "dt_bias",
        ),
    ],
    ssm_state_indices: Annotated[
        Int32[Tensor, "batch"], LastDimContiguous(), IndexInto("slots", padding=-1, unique=True)
    ],
    write_pos: Annotated[Int32[Tensor, "batch"], LastDimContiguous(), InRange(0, "L")],
    force_flush: Annotated[Int32[Tensor, "batch"] | None, LastDimContiguous()] = None,
    use_qk_l2norm_in_kernel: bool = False,
    lower_bound: float | None = None,
    *,
    backend: str | None = None,
) -> tuple[
    Annotated[Float[Tensor, "batch 1 HV V"], Is("out")],
    Annotated[Float[Tensor, "slots HV V K"], Is("initial_state")],
]: ...
