"""The mistakes of the fused KV family, one for each documented error."""

from __future__ import annotations

import torch

from tensorpact.demo.cases import Arguments, rope_cache
from tensorpact.demo.mistake import Mistake, every_other, longer, row_padded, twice

_KERNEL = "fused_kv_materialize"
_MATERIALIZER = "FusedKVMaterializer.materialize"


def _layers(call: Arguments, count: int) -> Arguments:
    """Keep the first layers only."""
    return {
        "kv": call["kv"][:, :count],
        **{n: call[n][:count] for n in ("k_norm_weight", "eps", "k_out", "v_out")},
    }


def _rotary(call: Arguments, rotary_dim: int) -> Arguments:
    """Rotate that many channels, with a cache to match."""
    device = str(call["kv"].device)
    cache = rope_cache(call["cos_sin_cache"].shape[0], rotary_dim, device)
    return {"rotary_dim": rotary_dim, "cos_sin_cache": cache}


def _slice_of_workspace(call: Arguments, name: str) -> Arguments:
    """Pass the used part of a workspace that has room for more tokens."""
    return {name: twice(call[name], dim=1)[:, : call[name].shape[1]]}


def _halves_of_workspace(call: Arguments) -> Arguments:
    workspace = torch.stack([call["k_out"], call["v_out"]])
    return {"k_out": workspace[0], "v_out": workspace[1]}


KERNEL: tuple[Mistake, ...] = (
    Mistake(
        _KERNEL,
        "invalid-stacked-fused-kv-projection-shape-got-tuple",
        "the projection of one layer, without the axis of layers",
        lambda call: {"kv": call["kv"][:, 0]},
        lambda call: _layers(call, 1),
        "one layer, with the axis",
    ),
    Mistake(
        _KERNEL,
        "invalid-fused-kv-projection-shape-got-tuple-kv-s",
        "num_kv_heads from another config, one head too many",
        lambda call: {"num_kv_heads": call["num_kv_heads"] + 1, "k_out": None, "v_out": None},
    ),
    Mistake(
        _KERNEL,
        "invalid-fused-kv-rotary-head-dim-pair-rotary-dim",
        "two more rotary channels than a head has",
        lambda call: _rotary(call, call["head_dim"] + 2),
        lambda call: _rotary(call, call["head_dim"]),
        "all channels of a head rotated",
    ),
    Mistake(
        _KERNEL,
        "invalid-stacked-k-norm-weight-shape-for-fused-kv",
        "the norm weights without the last layer",
        lambda call: {"k_norm_weight": call["k_norm_weight"][:-1]},
    ),
    Mistake(
        _KERNEL,
        "invalid-stacked-eps-shape-for-fused-kv-materiali",
        "one epsilon for all layers",
        lambda call: {"eps": call["eps"][:1]},
    ),
    Mistake(
        _KERNEL,
        "fused-kv-cos-sin-cache-shape",
        "a cache with the cosines and sines written twice",
        lambda call: {"cos_sin_cache": twice(call["cos_sin_cache"])},
        lambda call: {"cos_sin_cache": row_padded(call["cos_sin_cache"])},
        "a cache with gaps between its rows",
    ),
    Mistake(
        _KERNEL,
        "fused-kv-positions-shape",
        "the position of the last token dropped",
        lambda call: {"positions": call["positions"][:-1]},
    ),
    Mistake(
        _KERNEL,
        "fused-kv-k-out-shape",
        "a K workspace with room for one more token, not sliced",
        lambda call: {"k_out": longer(call["k_out"], 1)},
        lambda call: _slice_of_workspace(call, "k_out"),
        "a slice of a larger workspace",
    ),
    Mistake(
        _KERNEL,
        "fused-kv-k-out-device-dtype",
        "a K workspace in float64",
        lambda call: {"k_out": call["k_out"].double()},
    ),
    Mistake(
        _KERNEL,
        "fused-kv-v-out-shape",
        "a V workspace with room for one more token, not sliced",
        lambda call: {"v_out": longer(call["v_out"], 1)},
        lambda call: _slice_of_workspace(call, "v_out"),
        "a slice of a larger workspace",
    ),
    Mistake(
        _KERNEL,
        "fused-kv-v-out-device-dtype",
        "a V workspace on another device",
        lambda call: {"v_out": call["v_out"].to("meta")},
    ),
    Mistake(
        _KERNEL,
        "fused-kv-dtype",
        "positions as real numbers",
        lambda call: {"positions": call["positions"].float()},
        lambda call: {"positions": call["positions"].to(torch.int32)},
        "positions as 32-bit integers",
    ),
    Mistake(
        _KERNEL,
        "fused-kv-device",
        "the epsilons left on another device",
        lambda call: {"eps": call["eps"].to("meta")},
        lambda call: {"positions": call["positions"].cpu()},
        "the positions on the CPU, which any device takes",
    ),
    Mistake(
        _KERNEL,
        "fused-kv-last-axis-stride",
        "every other element of a tensor twice as wide",
        lambda call: {"kv": every_other(call["kv"])},
        lambda call: {"kv": row_padded(call["kv"])},
        "a slice with gaps between its rows",
    ),
    Mistake(
        _KERNEL,
        "fused-kv-outputs-overlap",
        "one workspace for K and V",
        lambda call: {"v_out": call["k_out"]},
        _halves_of_workspace,
        "the two halves of one workspace",
    ),
    Mistake(
        _KERNEL,
        "fused-kv-empty-dim",
        "no layers",
        lambda call: _layers(call, 0),
        lambda call: _layers(call, 1),
        "one layer",
    ),
)

MATERIALIZER: tuple[Mistake, ...] = (
    Mistake(
        _MATERIALIZER,
        "positions-must-match-ctx-hidden-token-count-for-fu",
        "the position of the last token dropped",
        lambda call: {"positions": call["positions"][:-1]},
        lambda call: {"positions": call["positions"][:, None]},
        "a column of positions, which is flattened",
    ),
    Mistake(
        _MATERIALIZER,
        "fused-kv-ctx-hidden-shape",
        "hidden states one channel too narrow",
        lambda call: {"ctx_hidden": call["ctx_hidden"][:, :-1]},
    ),
    Mistake(
        _MATERIALIZER,
        "fused-kv-materialize-dtype",
        "positions as real numbers",
        lambda call: {"positions": call["positions"].float()},
        lambda call: {"positions": call["positions"].to(torch.int32)},
        "positions as 32-bit integers",
    ),
)
