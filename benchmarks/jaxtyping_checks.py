"""The ops checked by jaxtyping with beartype.

The annotations are those of our contracts. jaxtyping binds dims in the order of the parameters, so
the tensors that bind `HV`, `V`, `K` and `H` come first. It cannot say: layout, one device, equal
dtypes, relations such as
`HV % H == 0`.
"""

from __future__ import annotations

from beartype import beartype
from jaxtyping import Float, Float32, Int32, Integer, jaxtyped
from plain_hints import arguments_only
from torch import Tensor


@jaxtyped(typechecker=beartype)
@arguments_only
def kda_replayssm_decode(
    initial_state: Float[Tensor, "slots HV V K"],
    k_cache: Float[Tensor, "slots H L K"],
    mixed_qkv: Float[Tensor, "batch 2*H*K+HV*V"],
    a: Float[Tensor, "batch HV*K"] | Float[Tensor, "batch HV K"],
    b: Float[Tensor, "batch HV"],
    A_log: Float[Tensor, "HV"],
    dt_bias: Float[Tensor, "HV*K"] | Float[Tensor, "HV K"],
    scale: float,
    d_cache: Float[Tensor, "slots HV L V"],
    g_cache: Float32[Tensor, "slots HV L K"],
    out: Float[Tensor, "batch 1 HV V"],
    ssm_state_indices: Int32[Tensor, "batch"],
    write_pos: Int32[Tensor, "batch"],
    force_flush: Int32[Tensor, "batch"] | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    lower_bound: float | None = None,
    *,
    backend: str | None = None,
) -> None:
    return


@jaxtyped(typechecker=beartype)
@arguments_only
def fused_kv_materialize(
    kv: Float[Tensor, "total_ctx n_layers 2*{num_kv_heads}*{head_dim}"],
    k_norm_weight: Float[Tensor, "n_layers {head_dim}"],
    eps: Float[Tensor, "n_layers"],
    cos_sin_cache: Float[Tensor, "max_pos {rotary_dim}"],
    positions: Integer[Tensor, "total_ctx"],
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    k_out: Float[Tensor, "n_layers total_ctx {num_kv_heads} {head_dim}"] | None = None,
    v_out: Float[Tensor, "n_layers total_ctx {num_kv_heads} {head_dim}"] | None = None,
    *,
    backend: str | None = None,
) -> None:
    return
