"""The mistakes of the KDA decode ops, one for each documented error."""

from __future__ import annotations

from dataclasses import replace

import torch

from tensorpact.demo.cases import Arguments
from tensorpact.demo.mistake import Mistake, every_other, longer, page, row_padded, twice

_PACKED = "kda_packed_decode"
_REPLAY = "kda_replayssm_decode"
_RINGS = ("d_cache", "k_cache", "g_cache")
_POOLS = ("initial_state", *_RINGS)


def _heads(call: Arguments, heads: int) -> Arguments:
    """Use that many query heads, with a ring of keys to match."""
    slots, value_heads, value_dim, key_dim = call["initial_state"].shape
    width = 2 * heads * key_dim + value_heads * value_dim
    changes = {"mixed_qkv": call["mixed_qkv"].new_ones(call["mixed_qkv"].shape[0], width)}
    if "k_cache" in call:
        ring = call["k_cache"].shape[2]
        changes["k_cache"] = call["k_cache"].new_ones(slots, heads, ring, key_dim)
    return changes


def _value_heads(call: Arguments) -> int:
    return int(call["initial_state"].shape[1])


def _values_only(call: Arguments) -> Arguments:
    """Drop q and k."""
    _, value_heads, value_dim, _ = call["initial_state"].shape
    return {"mixed_qkv": call["mixed_qkv"][:, -value_heads * value_dim :]}


def _slots(call: Arguments, count: int) -> Arguments:
    """Keep the first slots only; the first row has slot 0 and the others are padding."""
    indices = torch.full_like(call["ssm_state_indices"], -1)
    indices[0] = 0
    pools = {name: call[name][:count] for name in _POOLS if name in call}
    return {**pools, "ssm_state_indices": indices}


def _ring_length(call: Arguments, length: int) -> Arguments:
    """Cut the rings, and start them anew."""
    rings = {name: call[name][:, :, :length] for name in _RINGS}
    return {**rings, "write_pos": torch.zeros_like(call["write_pos"])}


def _swapped(call: Arguments, name: str) -> Arguments:
    """Give the gate (or its bias) with channels before heads."""
    _, value_heads, _, key_dim = call["initial_state"].shape
    split = call[name].reshape(*call[name].shape[:-1], value_heads, key_dim)
    return {name: split.transpose(-1, -2).contiguous()}


def _split(call: Arguments, name: str) -> Arguments:
    """Give the gate (or its bias) with heads and channels as two axes."""
    _, value_heads, _, key_dim = call["initial_state"].shape
    return {name: call[name].reshape(*call[name].shape[:-1], value_heads, key_dim)}


_SHARED: tuple[Mistake, ...] = (
    Mistake(
        _PACKED,
        "kda-mixed-qkv-rank-layout",
        "every other element of a tensor twice as wide",
        lambda call: {"mixed_qkv": every_other(call["mixed_qkv"])},
        lambda call: {"mixed_qkv": row_padded(call["mixed_qkv"])},
        "a slice with gaps between its rows",
    ),
    Mistake(
        _PACKED,
        "kda-b-rank-layout",
        "an axis of one token left in b",
        lambda call: {"b": call["b"][:, None]},
        lambda call: {"b": row_padded(call["b"])},
        "a slice with gaps between its rows",
    ),
    Mistake(
        _PACKED,
        "kda-a-log-rank-layout",
        "A_log as a checkpoint stores it, [1, 1, HV, 1]",
        lambda call: {"A_log": call["A_log"][None, None, :, None]},
    ),
    Mistake(
        _PACKED,
        "kda-ssm-state-indices-rank-layout",
        "a column of indices",
        lambda call: {"ssm_state_indices": call["ssm_state_indices"][:, None]},
    ),
    Mistake(
        _PACKED,
        "kda-out-contiguous",
        "an output with gaps between its rows",
        lambda call: {"out": row_padded(call["out"])},
    ),
    Mistake(
        _PACKED,
        "kda-one-device",
        "b left on another device",
        lambda call: {"b": call["b"].to("meta")},
    ),
    Mistake(
        _PACKED,
        "kda-batch-sizes",
        "b without its last row",
        lambda call: {"b": call["b"][:-1]},
    ),
    Mistake(
        _PACKED,
        "kda-state-rank-layout",
        "the state of one slot instead of the pool",
        lambda call: {"initial_state": call["initial_state"][0]},
        lambda call: {"initial_state": page(call["initial_state"])},
        "one page of a larger pool",
    ),
    Mistake(
        _PACKED,
        "kda-b-width",
        "b without its last head",
        lambda call: {"b": call["b"][:, :-1]},
    ),
    Mistake(
        _PACKED,
        "kda-a-log-width",
        "A_log of the heads of two ranks",
        lambda call: {"A_log": twice(call["A_log"])},
    ),
    Mistake(
        _PACKED,
        "kda-out-shape",
        "an output without the axis of one token",
        lambda call: {"out": call["out"][:, 0]},
    ),
    Mistake(
        _PACKED,
        "kda-packed-width",
        "the values alone, without q and k",
        _values_only,
        lambda call: _heads(call, 1),
        "one query head",
    ),
    Mistake(
        _PACKED,
        "kda-query-width",
        "rows that lack one value",
        lambda call: {"mixed_qkv": call["mixed_qkv"][:, :-1]},
    ),
    Mistake(
        _PACKED,
        "kda-head-groups",
        "one more query head than value heads",
        lambda call: _heads(call, _value_heads(call) + 1),
        lambda call: _heads(call, _value_heads(call)),
        "as many query heads as value heads",
    ),
    Mistake(
        _PACKED,
        "kda-index-dtype",
        "64-bit indices",
        lambda call: {"ssm_state_indices": call["ssm_state_indices"].long()},
    ),
    Mistake(
        _PACKED,
        "kda-dtype",
        "an output of integers",
        lambda call: {"out": call["out"].nan_to_num().to(torch.int8)},
        lambda call: {"out": call["out"].double()},
        "an output in float64",
    ),
    Mistake(
        _PACKED,
        "kda-index-layout",
        "every other element of twice as many indices",
        lambda call: {"ssm_state_indices": every_other(call["ssm_state_indices"])},
    ),
    Mistake(
        _PACKED,
        "kda-outputs-overlap",
        "one state, expanded to all slots",
        lambda call: {"initial_state": call["initial_state"][:1].expand_as(call["initial_state"])},
        lambda call: {"initial_state": page(call["initial_state"])},
        "one page of a larger pool",
    ),
    Mistake(
        _PACKED,
        "kda-empty-dim",
        "a pool without slots",
        lambda call: _slots(call, 0),
        lambda call: _slots(call, 1),
        "a pool of one slot",
    ),
)
"""What both ops refuse with the same words."""

_PACKED_ONLY: tuple[Mistake, ...] = (
    Mistake(
        _PACKED,
        "kda-a-rank-layout",
        "the gate with heads and channels as two axes, which only the replay op takes",
        lambda call: _split(call, "a"),
        lambda call: {"a": row_padded(call["a"])},
        "a slice with gaps between its rows",
    ),
    Mistake(
        _PACKED,
        "kda-dt-bias-rank-layout",
        "the bias with heads and channels as two axes, which only the replay op takes",
        lambda call: _split(call, "dt_bias"),
    ),
    Mistake(
        _PACKED,
        "kda-a-width",
        "the gate without its last channel",
        lambda call: {"a": call["a"][:, :-1]},
    ),
    Mistake(
        _PACKED,
        "kda-dt-bias-width",
        "the bias of the heads of two ranks",
        lambda call: {"dt_bias": twice(call["dt_bias"])},
    ),
)

_REPLAY_ONLY: tuple[Mistake, ...] = (
    Mistake(
        _REPLAY,
        "kda-a-must-be-contiguous-2d-or-3d",
        "a slice of a wider projection",
        lambda call: {"a": row_padded(call["a"])},
        lambda call: _split(call, "a"),
        "heads and channels as two axes",
    ),
    Mistake(
        _REPLAY,
        "kda-dt-bias-must-be-a-contiguous-1d-or-2d-tensor",
        "every other element of a bias twice as long",
        lambda call: {"dt_bias": every_other(call["dt_bias"])},
        lambda call: _split(call, "dt_bias"),
        "heads and channels as two axes",
    ),
    Mistake(
        _REPLAY,
        "kda-a-width",
        "the gate with channels before heads",
        lambda call: _swapped(call, "a"),
        lambda call: _split(call, "a"),
        "heads before channels",
    ),
    Mistake(
        _REPLAY,
        "kda-dt-bias-width",
        "the bias with channels before heads",
        lambda call: _swapped(call, "dt_bias"),
        lambda call: _split(call, "dt_bias"),
        "heads before channels",
    ),
    Mistake(
        _REPLAY,
        "write-pos-must-be-a-1d-int32-tensor",
        "64-bit cursors",
        lambda call: {"write_pos": call["write_pos"].long()},
    ),
    Mistake(
        _REPLAY,
        "write-pos-must-have-shape-batch",
        "the cursors of one row less",
        lambda call: {"write_pos": call["write_pos"][:-1]},
    ),
    Mistake(
        _REPLAY,
        "force-flush-must-be-a-length-b-int32-tensor-or-n",
        "a bool mask",
        lambda call: {"force_flush": call["force_flush"].bool()},
        lambda call: {"force_flush": None},
        "no flags at all",
    ),
    Mistake(
        _REPLAY,
        "replayssm-cache-length-must-be-at-least-1",
        "rings without room for a token",
        lambda call: _ring_length(call, 0),
        lambda call: _ring_length(call, 1),
        "rings for one token, which flush every time",
    ),
    Mistake(
        _REPLAY,
        "d-cache-must-have-shape-slots-hv-l-v",
        "a ring of deltas without the last value head",
        lambda call: {"d_cache": call["d_cache"][:, :-1]},
        lambda call: {"d_cache": page(call["d_cache"])},
        "one page of a larger pool",
    ),
    Mistake(
        _REPLAY,
        "k-cache-must-have-shape-slots-h-l-k",
        "a ring of keys with one head too many",
        lambda call: {"k_cache": longer(call["k_cache"], 1)},
        lambda call: {"k_cache": page(call["k_cache"])},
        "one page of a larger pool",
    ),
    Mistake(
        _REPLAY,
        "g-cache-must-have-shape-slots-hv-l-k",
        "a ring of gates one entry shorter than the others",
        lambda call: {"g_cache": call["g_cache"][:, :, :-1]},
        lambda call: {"g_cache": page(call["g_cache"])},
        "one page of a larger pool",
    ),
    Mistake(
        _REPLAY,
        "g-cache-must-have-dtype-torch-float32",
        "a ring of gates in half precision",
        lambda call: {"g_cache": call["g_cache"].half()},
    ),
    Mistake(
        _REPLAY,
        "kda-ring-device",
        "the cursors left on another device",
        lambda call: {"write_pos": call["write_pos"].to("meta")},
    ),
    Mistake(
        _REPLAY,
        "kda-ring-slots",
        "a ring of keys with one slot less than the state",
        lambda call: {"k_cache": call["k_cache"][:-1]},
    ),
    Mistake(
        _REPLAY,
        "kda-dtype",
        "a ring of deltas in 8-bit integers",
        lambda call: {"d_cache": call["d_cache"].nan_to_num().to(torch.int8)},
        lambda call: {"d_cache": call["d_cache"].float()},
        "a ring of deltas in float32",
    ),
    Mistake(
        _REPLAY,
        "kda-index-layout",
        "every other element of a ring twice as wide",
        lambda call: {"d_cache": every_other(call["d_cache"])},
        lambda call: {"d_cache": row_padded(call["d_cache"])},
        "a ring with gaps between its rows",
    ),
    Mistake(
        _REPLAY,
        "kda-outputs-overlap",
        "one ring of deltas, expanded to all slots",
        lambda call: {"d_cache": call["d_cache"][:1].expand_as(call["d_cache"])},
        lambda call: {"d_cache": page(call["d_cache"])},
        "one page of a larger pool",
    ),
)


def _ordered(op: str, mistakes: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
    """Return mistakes as those of one op, each slug once, the later ones replacing the earlier."""
    return tuple({m.slug: replace(m, op=op) for m in mistakes}.values())


PACKED = _ordered(_PACKED, (*_SHARED, *_PACKED_ONLY))
REPLAY = _ordered(_REPLAY, (*_SHARED, *_REPLAY_ONLY))
