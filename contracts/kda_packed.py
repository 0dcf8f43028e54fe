"""Contract of the packed KDA decode step."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts.kda_errors import rank_rows, size_rows, stricter_rows
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import (
    Contiguous,
    IndexInto,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
)

_REALS = ("mixed_qkv", "a", "b", "A_log", "dt_bias", "initial_state", "out")


@contract(
    where=["mixed_qkv.shape[1] > HV * V", "HV % H == 0"],
    zero={"batch": "`out` and `initial_state` are returned as they are"},
    anchors=["initial_state", "mixed_qkv"],
    errors=[
        *rank_rows(("mixed_qkv", "a", "b", "A_log", "dt_bias", "ssm_state_indices")),
        *size_rows("{(batch, HV * K)}", "{(HV * K,)}"),
        *stricter_rows(_REALS),
    ],
)
def kda_packed_decode(
    mixed_qkv: Annotated[Float[Tensor, "batch 2*H*K+HV*V"], LastDimContiguous()],
    a: Annotated[Float[Tensor, "batch HV*K"], LastDimContiguous()],
    b: Annotated[Float[Tensor, "batch HV"], LastDimContiguous()],
    A_log: Annotated[Float[Tensor, "HV"], LastDimContiguous()],
    dt_bias: Annotated[Float[Tensor, "HV*K"], LastDimContiguous()],
    scale: float,
    initial_state: Annotated[Float[Tensor, "slots HV V K"], LastDimContiguous(), Mutated()],
    out: Annotated[
        Float[Tensor, "batch 1 HV V"],
        Contiguous(),
        Mutated(),
        NoAlias("initial_state", "mixed_qkv", "a", "b", "A_log", "dt_bias"),
    ],
    ssm_state_indices: Annotated[
        Int32[Tensor, "batch"], LastDimContiguous(), IndexInto("slots", padding=-1, unique=True)
    ],
    use_qk_l2norm_in_kernel: bool = False,
    *,
    backend: str | None = None,
) -> tuple[
    Annotated[Float[Tensor, "batch 1 HV V"], Is("out")],
    Annotated[Float[Tensor, "slots HV V K"], Is("initial_state")],
]: ...
