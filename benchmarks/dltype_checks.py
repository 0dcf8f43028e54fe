"""The ops checked by dltype.

It binds dims in the order of the parameters too. It cannot say: unions (`a` and `dt_bias` have one
form here), the int parameters of the op as dims, Python types of other parameters, layout, one
device, relations between dims of several tensors.
"""

from __future__ import annotations

from typing import Annotated

from dltype import Float32Tensor, FloatTensor, Int32Tensor, IntTensor, dltyped
from plain_hints import arguments_only
from torch import Tensor


@dltyped()
@arguments_only
def kda_replayssm_decode(
    initial_state: Annotated[Tensor, FloatTensor["slots HV V K"]],
    k_cache: Annotated[Tensor, FloatTensor["slots H L K"]],
    mixed_qkv: Annotated[Tensor, FloatTensor["batch 2*H*K+HV*V"]],
    a: Annotated[Tensor, FloatTensor["batch HV*K"]],
    b: Annotated[Tensor, FloatTensor["batch HV"]],
    A_log: Annotated[Tensor, FloatTensor["HV"]],
    dt_bias: Annotated[Tensor, FloatTensor["HV*K"]],
    scale: float,
    d_cache: Annotated[Tensor, FloatTensor("slots HV L V", constraints={"L>=1"})],
    g_cache: Annotated[Tensor, Float32Tensor["slots HV L K"]],
    out: Annotated[Tensor, FloatTensor["batch 1 HV V"]],
    ssm_state_indices: Annotated[Tensor, Int32Tensor["batch"]],
    write_pos: Annotated[Tensor, Int32Tensor["batch"]],
    force_flush: Annotated[Tensor, Int32Tensor["batch"]] | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    lower_bound: float | None = None,
    *,
    backend: str | None = None,
) -> None:
    return


@dltyped()
@arguments_only
def fused_kv_materialize(
    kv: Annotated[Tensor, FloatTensor["total_ctx n_layers kv_dim"]],
    k_norm_weight: Annotated[Tensor, FloatTensor["n_layers head_dim"]],
    eps: Annotated[Tensor, FloatTensor["n_layers"]],
    cos_sin_cache: Annotated[Tensor, FloatTensor["max_pos rotary_dim"]],
    positions: Annotated[Tensor, IntTensor["total_ctx"]],
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    k_out: Annotated[Tensor, FloatTensor["n_layers total_ctx kv_heads head_dim"]] | None = None,
    v_out: Annotated[Tensor, FloatTensor["n_layers total_ctx kv_heads head_dim"]] | None = None,
    *,
    backend: str | None = None,
) -> None:
    return
