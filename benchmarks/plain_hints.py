"""The ops with plain hints and empty bodies: called as they are, and checked by beartype alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def arguments_only(function: Callable[P, R]) -> Callable[P, R]:
    """Take the return annotation away, so that nobody checks results.

    Only the validation of arguments is compared; for a result jaxtyping would look at every
    parameter a second time.
    """
    del function.__annotations__["return"]
    return function


@arguments_only
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
    *,
    backend: str | None = None,
) -> None:
    return


@arguments_only
def fused_kv_materialize(
    kv: Tensor,
    k_norm_weight: Tensor,
    eps: Tensor,
    cos_sin_cache: Tensor,
    positions: Tensor,
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    k_out: Tensor | None = None,
    v_out: Tensor | None = None,
    *,
    backend: str | None = None,
) -> None:
    return
