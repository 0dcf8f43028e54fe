"""Cases from the field, 11 to 13: messages. The 15 texts that the three records document, by hand.

Each stands with a call that breaks it and nothing else, and with the last legal call beside it.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

import tensorpact as tp
from tensorpact import ops
from tensorpact.demo.cases import (
    SMALL_FUSED_KV,
    SMALL_KDA,
    Arguments,
    LayerStore,
    fused_kv_call,
    kda_replayssm_call,
    materialize_call,
    own_arguments,
)

FUSED, MATERIALIZE, REPLAY = "fused_kv_materialize", "materialize", "kda_replayssm_decode"
OPS: dict[str, Any] = {
    FUSED: ops.fused_kv_materialize,
    MATERIALIZE: ops.FusedKVMaterializer.materialize,
    REPLAY: ops.kda_replayssm_decode,
}

Change = Callable[[Arguments], Arguments]


@dataclass(frozen=True)
class Documented:
    """A documented text, a call that breaks it, and the last legal call beside that."""

    op: str
    text: str
    broken: Change
    legal: Change = lambda call: {}


def longer(tensor: Tensor, axis: int) -> Tensor:
    return torch.cat([tensor, tensor.narrow(axis, 0, 1)], axis)


def doubled(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


def one(name: str, change: Callable[[Tensor], Tensor | None]) -> Change:
    return lambda call: {name: change(call[name])}


def ring(length: int) -> Change:
    def cut(call: Arguments) -> Arguments:
        rings = {name: call[name][:, :, :length] for name in ("d_cache", "k_cache", "g_cache")}
        return rings | {"write_pos": torch.zeros_like(call["write_pos"])}

    return cut


MATERIAL = "for fused KV materialization: got"
# In the order in which the records' excerpts check them.
DOCUMENTED = [
    Documented(
        FUSED,
        "Invalid stacked fused KV projection shape: got (7, 64), expected 3D "
        "[total_ctx, n_layers, kv_size*2].",
        one("kv", lambda kv: kv[:, 0]),
    ),
    Documented(
        FUSED,
        "Invalid fused KV projection shape: got (7, 3, 65), expected trailing dim 64.",
        one("kv", lambda kv: longer(kv, 2)),
    ),
    Documented(
        FUSED,
        "Invalid fused KV rotary/head dim pair: rotary_dim=18, head_dim=16.",
        lambda call: {
            "rotary_dim": 18,
            "cos_sin_cache": call["cos_sin_cache"].repeat(1, 3)[:, :18],
        },
        lambda call: {"rotary_dim": 16, "cos_sin_cache": call["cos_sin_cache"].repeat(1, 2)},
    ),
    Documented(
        FUSED,
        f"Invalid stacked k_norm_weight shape {MATERIAL} (3, 15), expected (3, 16).",
        one("k_norm_weight", lambda weight: weight[:, :-1]),
    ),
    Documented(
        FUSED,
        f"Invalid stacked eps shape {MATERIAL} (4,), expected (3,).",
        one("eps", lambda eps: longer(eps, 0)),
    ),
    Documented(
        MATERIALIZE,
        "positions must match ctx_hidden token count for fused KV materialization: "
        "positions=8, total_ctx=7.",
        one("positions", lambda positions: longer(positions, 0).reshape(2, 4)),
        one("positions", lambda positions: positions[:, None]),
    ),
    Documented(
        REPLAY,
        "KDA `dt_bias` must be a contiguous 1D or 2D tensor.",
        one("dt_bias", doubled),
        one("dt_bias", lambda bias: bias.reshape(6, 16)),
    ),
    Documented(
        REPLAY,
        "`write_pos` must be a 1D int32 tensor.",
        one("write_pos", Tensor.long),
    ),
    Documented(
        REPLAY,
        "`write_pos` must have shape (5,).",
        one("write_pos", lambda cursors: longer(cursors, 0)),
    ),
    Documented(
        REPLAY,
        "`force_flush` must be a length-B int32 tensor or None.",
        one("force_flush", Tensor.bool),
        one("force_flush", lambda flags: None),
    ),
    Documented(REPLAY, "ReplaySSM cache length must be at least 1.", ring(0), ring(1)),
    Documented(
        REPLAY,
        "`d_cache` must have shape [slots, HV, L, V].",
        one("d_cache", lambda cache: longer(cache, 3)),
        one("d_cache", lambda cache: longer(cache, 3)[..., :-1]),
    ),
    Documented(
        REPLAY,
        "`k_cache` must have shape [slots, H, L, K].",
        one("k_cache", lambda cache: cache[:, :-1]),
    ),
    Documented(
        REPLAY,
        "`g_cache` must have shape [slots, HV, L, K].",
        one("g_cache", lambda cache: longer(cache, 2)),
        one("g_cache", lambda cache: longer(cache, 2)[:, :, :-1]),
    ),
    Documented(
        REPLAY,
        "`g_cache` must have dtype torch.float32.",
        one("g_cache", Tensor.double),
    ),
]
each_documented = pytest.mark.parametrize(
    "documented", DOCUMENTED, ids=[documented.text for documented in DOCUMENTED]
)


def valid_call(op: str) -> Arguments:
    """A valid call whose dims are pairwise distinct; its `self` included where it is a method."""
    if op == REPLAY:
        return kda_replayssm_call(SMALL_KDA)
    return (fused_kv_call if op == FUSED else materialize_call)(SMALL_FUSED_KV)


def contents(call: Arguments) -> dict[str, Any]:
    """What a call could write into, bit for bit."""
    found: dict[str, Any] = {}
    for name, value in call.items():
        if isinstance(value, Tensor):
            found[name] = value.nan_to_num(nan=-77.0).tolist()
        elif isinstance(value, LayerStore):
            found[name] = list(value.layers)
    return found


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int16, torch.uint8, torch.bool, torch.float32, torch.bfloat16]
)
def test_case_11__a_wrong_dtype_is_named_with_what_was_expected(dtype):
    @tp.op
    def op(slots: Float[Tensor, "batch dim"], write_pos: Int32[Tensor, "batch"]) -> int:
        return 1

    slots, cursors = torch.zeros(3, 4), torch.zeros(3, dtype=torch.int32)
    assert op(slots, cursors) == 1
    with pytest.raises(tp.ContractError) as caught:
        op(slots, cursors.to(dtype))
    name = str(dtype).removeprefix("torch.")
    assert str(caught.value) == f"`write_pos` must have dtype int32: got {name}."
    assert caught.value.argument == "write_pos"
    assert "int32" in caught.value.expected
    assert name in caught.value.actual

    # A documented text says otherwise, and then it is exactly that text.
    call = valid_call(REPLAY)
    ops.kda_replayssm_decode(**own_arguments(call))
    with pytest.raises(tp.ContractError) as caught:
        ops.kda_replayssm_decode(**{**call, "write_pos": call["write_pos"].to(dtype)})
    assert str(caught.value) == "`write_pos` must be a 1D int32 tensor."
    assert caught.value.argument == "write_pos"
    assert "int32" in caught.value.expected
    assert name in caught.value.actual


@each_documented
def test_case_12__the_text_is_the_documented_one_word_for_word(documented):
    op = OPS[documented.op]
    legal = own_arguments(valid_call(documented.op))
    op(**(legal | documented.legal(legal)))

    call = valid_call(documented.op)
    broken = call | documented.broken(call)
    before = contents(call), contents(broken)
    # No `$` at the end: pytest matches the notes as well, which follow in lines of their own.
    with pytest.raises(ValueError, match=f"^{re.escape(documented.text)}") as caught:
        op(**broken)
    error = caught.value
    assert type(error) is tp.ContractError
    assert str(error) == documented.text
    assert error.args[0] == documented.text
    assert len(error.violations) == 1
    assert (contents(call), contents(broken)) == before
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        revived = pickle.loads(pickle.dumps(error, protocol))
        assert isinstance(revived, ValueError)
        assert str(revived) == documented.text
        assert (revived.slug, revived.argument) == (error.slug, error.argument)
    assert str(copy.deepcopy(error)) == documented.text


def pairs():
    """Two documented mistakes that one call can make: they change different arguments."""
    for first, second in itertools.combinations(DOCUMENTED, 2):
        call = valid_call(first.op)
        if first.op == second.op and not first.broken(call).keys() & second.broken(call).keys():
            yield pytest.param(first, second, id=f"{first.text} / {second.text}")


@pytest.mark.parametrize(("first", "second"), list(pairs()))
def test_case_13__of_two_wrong_arguments_the_first_in_documented_order_is_reported(first, second):
    op, call = OPS[first.op], valid_call(first.op)
    broken = call | second.broken(call) | first.broken(call)
    before = contents(broken)
    with pytest.raises(tp.ContractError) as caught:
        op(**broken)
    # Where a later text quotes a dim that the first mistake changes, only the first is comparable.
    assert str(caught.value) == first.text
    with tp.mode("debug"), pytest.raises(tp.ContractError) as caught:
        op(**broken)
    found = [violation.slug for violation in caught.value.violations]
    rows = {row.template.text.split("{")[0]: row.slug for row in op.contract.errors}
    slugs = [
        next(slug for start, slug in rows.items() if documented.text.startswith(start))
        for documented in (first, second)
    ]
    assert found[0] == slugs[0]
    if first.text.startswith("Invalid stacked fused KV projection"):
        return  # without kv's three axes nothing else can be compared with it
    assert slugs[1] in found
    assert contents(broken) == before


@pytest.mark.parametrize(
    "documented",
    [documented for documented in DOCUMENTED if documented.op == REPLAY],
    ids=lambda documented: documented.text,
)
def test_case_13__devices_of_the_rings_and_cursors_are_documented_last(documented):
    call = valid_call(REPLAY)
    for elsewhere in ("write_pos", "force_flush", "d_cache", "k_cache", "g_cache"):
        broken = call | documented.broken(call)
        broken[elsewhere] = broken[elsewhere].to("meta")
        with pytest.raises(tp.ContractError) as caught:
            ops.kda_replayssm_decode(**broken)
        assert str(caught.value) == documented.text
        with pytest.raises(tp.ContractError) as caught:
            ops.kda_replayssm_decode(**call | {elsewhere: call[elsewhere].to("meta")})
        assert caught.value.argument == elsewhere
        assert "meta" in caught.value.actual
