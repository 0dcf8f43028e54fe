"""Contracts of the fused KV materialization family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from jaxtyping import Float, Integer
from torch import Tensor

from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import (
    AnyDevice,
    Finite,
    IndexInto,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
    SameDtype,
)
from tensorpact.contracts.language.rows import raises

_OUTPUT = "[n_layers, total_ctx, num_kv_heads, head_dim]"
_EXPECTED = "{(n_layers, total_ctx, num_kv_heads, head_dim)}"


@contract(
    let={"kv_size": "num_kv_heads * head_dim"},
    where=["rotary_dim > 0 and rotary_dim <= head_dim and rotary_dim % 2 == 0"],
    zero={
        "total_ctx": "two new empty tensors are returned; only Python types and `kv` are looked at"
    },
    early_return="total_ctx == 0",
    errors=[
        raises(
            "invalid-stacked-fused-kv-projection-shape-got-tuple",
            "Invalid stacked fused KV projection shape: got {tuple(kv.shape)}, "
            "expected 3D [total_ctx, n_layers, kv_size*2].",
            unless="kv: rank",
            cause="`kv` does not hold the projections of all layers side by side.",
            fix="pass the output of the stacked projection viewed as "
            "[total_ctx, n_layers, 2*num_kv_heads*head_dim], also for a single layer.",
        ),
        raises(
            "invalid-fused-kv-projection-shape-got-tuple-kv-s",
            "Invalid fused KV projection shape: got {tuple(kv.shape)}, "
            "expected trailing dim {kv_size * 2}.",
            unless="kv: dims[2]",
            cause="the last axis holds K and V of one layer, so its size is twice "
            "num_kv_heads*head_dim; the head counts given here belong to other weights.",
            fix="take num_kv_heads and head_dim from the config the projection weights were "
            "packed with, and pack exactly K, then V.",
        ),
        raises(
            "invalid-fused-kv-rotary-head-dim-pair-rotary-dim",
            "Invalid fused KV rotary/head dim pair: rotary_dim={rotary_dim}, head_dim={head_dim}.",
            unless="rotary_dim > 0 and rotary_dim <= head_dim and rotary_dim % 2 == 0",
            cause="the rotary channels are an even number of the head's leading channels.",
            fix="pass an even rotary_dim from 2 to head_dim.",
        ),
        raises(
            "invalid-stacked-k-norm-weight-shape-for-fused-kv",
            "Invalid stacked k_norm_weight shape for fused KV materialization: "
            "got {tuple(k_norm_weight.shape)}, expected {(n_layers, head_dim)}.",
            unless="k_norm_weight: shape",
            cause="every layer brings one RMSNorm weight per channel of a head.",
            fix="stack the k_norm weights of the layers in the order of `kv`'s second axis.",
        ),
        raises(
            "invalid-stacked-eps-shape-for-fused-kv-materiali",
            "Invalid stacked eps shape for fused KV materialization: "
            "got {tuple(eps.shape)}, expected {(n_layers,)}.",
            unless="eps: shape",
            cause="every layer brings its own RMSNorm epsilon.",
            fix="build one 1D tensor with an epsilon per layer.",
        ),
        raises(
            "fused-kv-k-out-shape",
            "The K output of fused KV materialization has the wrong shape: "
            f"got {{tuple(k_out.shape)}}, expected {_EXPECTED}.",
            unless="k_out: shape",
            cause="a workspace of other layers, tokens or heads was passed as k_out.",
            fix=f"slice or allocate k_out as {_OUTPUT}.",
        ),
        raises(
            "fused-kv-k-out-device-dtype",
            "The K output of fused KV materialization must match kv: got device={k_out.device}, "
            "dtype={k_out.dtype}, expected device={kv.device}, dtype={kv.dtype}.",
            unless="k_out: device dtype",
            cause="a workspace of another dtype or device was passed as k_out.",
            fix="allocate k_out with kv's dtype on kv's device.",
        ),
        raises(
            "fused-kv-v-out-shape",
            "The V output of fused KV materialization has the wrong shape: "
            f"got {{tuple(v_out.shape)}}, expected {_EXPECTED}.",
            unless="v_out: shape",
            cause="a workspace of other layers, tokens or heads was passed as v_out.",
            fix=f"slice or allocate v_out as {_OUTPUT}.",
        ),
        raises(
            "fused-kv-v-out-device-dtype",
            "The V output of fused KV materialization must match kv: got device={v_out.device}, "
            "dtype={v_out.dtype}, expected device={kv.device}, dtype={kv.dtype}.",
            unless="v_out: device dtype",
            cause="a workspace of another dtype or device was passed as v_out.",
            fix="allocate v_out with kv's dtype on kv's device.",
        ),
        raises(
            "fused-kv-cos-sin-cache-shape",
            "The cos/sin cache of fused KV materialization has the wrong shape: "
            "got {tuple(cos_sin_cache.shape)}, expected [max_pos, {rotary_dim}].",
            unless="cos_sin_cache: shape",
            cause="a row holds the cosines, then the sines of one position: rotary_dim values.",
            fix="pass the cache of a rotary embedding whose rotary_dim is the one given here.",
        ),
        raises(
            "fused-kv-positions-shape",
            "The positions of fused KV materialization have the wrong shape: "
            "got {tuple(positions.shape)}, expected {(total_ctx,)}.",
            unless="positions: shape",
            cause="each token of `kv` has one position; a shorter tensor would be read past its "
            "end.",
            fix="pass a flat tensor with one position per token.",
        ),
        raises(
            "fused-kv-dtype",
            "`{argument}` of fused KV materialization must have {expected}: got {actual}.",
            unless=[
                "kv: dtype",
                "k_norm_weight: dtype",
                "eps: dtype",
                "cos_sin_cache: dtype",
                "positions: dtype",
            ],
            cause="integers where the op computes with reals, or reals as positions.",
            fix="convert the tensor before the call.",
        ),
        raises(
            "fused-kv-device",
            "`{argument}` of fused KV materialization must be on {expected}, like kv: "
            "got {actual}.",
            unless="*: device",
            cause="one tensor was left on another device.",
            fix="move it to kv's device before the call.",
        ),
        raises(
            "fused-kv-last-axis-stride",
            "`{argument}` of fused KV materialization must be contiguous in its last axis: "
            "got {actual}.",
            unless="*: layout",
            cause="a transposed, strided or expanded view; its elements would be read as if they "
            "lay side by side.",
            fix="call `.contiguous()` on inputs; pass outputs whose last axis has stride 1.",
        ),
        raises(
            "fused-kv-outputs-overlap",
            "`{argument}` of fused KV materialization must not share memory: expected {expected}, "
            "got {actual}.",
            unless=["*: alias", "*: mutated"],
            cause="two results, or a result and an input, would be written over each other.",
            fix="pass separate tensors, or none, for k_out and v_out.",
        ),
        raises(
            "fused-kv-empty-dim",
            "Fused KV materialization needs {expected}: got {actual}.",
            unless=["*: extent"],
            cause="a tensor without layers, heads, channels or positions.",
            fix="check the slice that made it.",
        ),
    ],
)
def fused_kv_materialize(
    kv: Annotated[Float[Tensor, "total_ctx n_layers 2*kv_size"], LastDimContiguous()],
    k_norm_weight: Annotated[Float[Tensor, "n_layers head_dim"], LastDimContiguous()],
    eps: Annotated[Float[Tensor, "n_layers"], LastDimContiguous(), Finite()],
    cos_sin_cache: Annotated[Float[Tensor, "max_pos rotary_dim"], LastDimContiguous()],
    positions: Annotated[
        Integer[Tensor, "total_ctx"], LastDimContiguous(), AnyDevice(), IndexInto("max_pos")
    ],
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    k_out: Annotated[
        Float[Tensor, "n_layers total_ctx num_kv_heads head_dim"] | None,
        LastDimContiguous(),
        Mutated(),
        SameDtype("kv"),
        NoAlias("v_out", "kv"),
    ] = None,
    v_out: Annotated[
        Float[Tensor, "n_layers total_ctx num_kv_heads head_dim"] | None,
        LastDimContiguous(),
        Mutated(),
        SameDtype("kv"),
        NoAlias("kv"),
    ] = None,
    *,
    backend: str | None = None,
) -> tuple[
    Annotated[
        Float[Tensor, "n_layers total_ctx num_kv_heads head_dim"], SameDtype("kv"), Is("k_out")
    ],
    Annotated[
        Float[Tensor, "n_layers total_ctx num_kv_heads head_dim"], SameDtype("kv"), Is("v_out")
    ],
]: ...


@contract(
    let={"total_ctx": "ctx_hidden.shape[0]"},
    where=["positions.numel() == total_ctx"],
    zero={"total_ctx": "nothing is written"},
    early_return="total_ctx == 0",
    errors=[
        raises(
            "positions-must-match-ctx-hidden-token-count-for-fu",
            "positions must match ctx_hidden token count for fused KV materialization: "
            "positions={positions.numel()}, total_ctx={total_ctx}.",
            unless="positions.numel() == total_ctx",
            cause="the positions belong to another set of tokens than the hidden states, as after "
            "a rollback or an off-by-one slice.",
            fix="build the positions where ctx_hidden is built, one for each of its rows.",
        ),
        raises(
            "fused-kv-ctx-hidden-shape",
            "The hidden states of fused KV materialization have the wrong shape: "
            "got {tuple(ctx_hidden.shape)}, expected [total_ctx, {self.hidden_size}].",
            unless="ctx_hidden: rank dims[1]",
            cause="the hidden states come from a model of another width than the layers.",
            fix="pass the hidden states flattened to [total_ctx, hidden_size].",
        ),
        raises(
            "fused-kv-materialize-dtype",
            "`{argument}` of fused KV materialization must have {expected}: got {actual}.",
            unless=["ctx_hidden: dtype", "positions: dtype"],
            cause="integers where the op computes with reals, or reals as positions.",
            fix="convert the tensor before the call.",
        ),
    ],
)
def fused_kv_materializer_materialize(
    self: Any,
    ctx_hidden: Annotated[Float[Tensor, "total_ctx {self.hidden_size}"], AnyDevice()],
    positions: Annotated[Integer[Tensor, "..."], AnyDevice()],
    write_layer_kv: Callable[[int, Tensor, Tensor], Any],
) -> None: ...
