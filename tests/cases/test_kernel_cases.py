"""Cases from the field, 16 to 21: what damages a kernel in silence where no contract stands."""

from __future__ import annotations

from typing import Annotated, Any

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
    fused_kv_call,
    kda_packed_call,
    kda_replayssm_call,
    own_arguments,
)

FUSED = ops.fused_kv_materialize, lambda: fused_kv_call(SMALL_FUSED_KV)
PACKED = ops.kda_packed_decode, lambda: kda_packed_call(SMALL_KDA)
REPLAY = ops.kda_replayssm_decode, lambda: kda_replayssm_call(SMALL_KDA)
Case = tuple[Any, Any]


def doubled(tensor: Tensor) -> Tensor:
    """The same values with a stride of 2 in the last axis."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def row_padded(tensor: Tensor) -> Tensor:
    """The same values with a gap after each row."""
    return torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]


def turned(tensor: Tensor) -> Tensor:
    """Dense, with the first two axes swapped."""
    return tensor.transpose(0, 1).contiguous()


def refusal(case: Case, **changes: Any) -> str:
    """The text of a broken call that stands beside a valid one and writes nothing."""
    op, make = case
    valid = make()
    op(**own_arguments(valid))
    broken = valid | changes
    tensors = {name: value for name, value in broken.items() if isinstance(value, Tensor)}
    before = {name: value.clone() for name, value in tensors.items()}
    with pytest.raises(tp.ContractError) as caught:
        op(**broken)
    assert caught.value.argument in changes
    for name, value in tensors.items():
        if value.device.type != "meta":
            assert torch.equal(value.nan_to_num(), before[name].nan_to_num())
    return str(caught.value)


SLOTS_TEXT = "KDA `ssm_state_indices` must be an int32 tensor: got {}."
CURSOR_TEXT = "`write_pos` must be a 1D int32 tensor."
FLUSH_TEXT = "`force_flush` must be a length-B int32 tensor or None."


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8, torch.float32])
@pytest.mark.parametrize(
    ("case", "name", "text"),
    [
        (PACKED, "ssm_state_indices", SLOTS_TEXT),
        (REPLAY, "ssm_state_indices", SLOTS_TEXT),
        (REPLAY, "write_pos", CURSOR_TEXT),
        (REPLAY, "force_flush", FLUSH_TEXT),
    ],
)
def test_case_16__indices_of_another_dtype_than_the_kernel_reads(case, name, text, dtype):
    assert refusal(case, **{name: case[1]()[name].to(dtype)}) == text.format(dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_case_16__any_integer_dtype_where_it_is_declared(dtype):
    call = FUSED[1]()
    expected = ops.fused_kv_materialize(**own_arguments(call))
    found = ops.fused_kv_materialize(**call | {"positions": call["positions"].to(dtype)})
    assert all(map(torch.equal, found, expected))
    assert refusal(FUSED, positions=call["positions"].float()) == (
        "`positions` of fused KV materialization must have dtype Integer: got dtype float32."
    )


BATCH_TEXT = "KDA inputs must agree on the batch size: `{}` has shape {}, `mixed_qkv` has 5 rows."
POSITIONS_TEXT = (
    "The positions of fused KV materialization have the wrong shape: got {}, expected (7,)."
)
EPS_TEXT = "Invalid stacked eps shape for fused KV materialization: got {}, expected (3,)."


@pytest.mark.parametrize(
    ("case", "name", "scalar", "wrong_axis"),
    [
        (PACKED, "b", "KDA `b` must be [batch, HV] with a contiguous last axis: got shape ().",
         BATCH_TEXT.format("b", (6, 5))),
        (PACKED, "a", "KDA `a` must be [batch, HV*K] with a contiguous last axis: got shape ().",
         BATCH_TEXT.format("a", (96, 5))),
        (REPLAY, "a", "KDA `a` must be a dense tensor of 2 or 3 axes: got shape ().",
         BATCH_TEXT.format("a", (96, 5))),
        (PACKED, "out", "KDA `out` must have shape (5, 1, 6, 12): got ().",
         BATCH_TEXT.format("out", (1, 5, 6, 12))),
    ],
)  # fmt: skip
def test_case_17__a_row_parameter_as_scalar_or_with_the_batch_elsewhere(
    case, name, scalar, wrong_axis
):
    right = case[1]()[name]
    assert refusal(case, **{name: right.reshape(-1)[0].clone()}) == scalar
    assert refusal(case, **{name: turned(right)}) == wrong_axis


@pytest.mark.parametrize(
    ("case", "name", "text"),
    [
        (PACKED, "ssm_state_indices", "KDA `ssm_state_indices` must be a 1D tensor: got shape {}."),
        (REPLAY, "ssm_state_indices", "KDA `ssm_state_indices` must be a 1D tensor: got shape {}."),
        (REPLAY, "write_pos", CURSOR_TEXT),
        (REPLAY, "force_flush", FLUSH_TEXT),
        (FUSED, "eps", EPS_TEXT),
        (FUSED, "positions", POSITIONS_TEXT),
    ],
)
def test_case_17__a_vector_of_rows_as_scalar_column_or_row(case, name, text):
    right = case[1]()[name]
    for wrong in (right[0].clone(), right[:, None], right[None]):
        assert refusal(case, **{name: wrong}) == text.format(tuple(wrong.shape))


# Three rows of five: t() of a dense [5, 3], every other column of ten, the first five of eight.
VIEWS = {
    "dense": lambda: torch.zeros(3, 5),
    "t": lambda: torch.zeros(5, 3).t(),
    "every other column": lambda: torch.zeros(3, 10)[:, ::2],
    "row padded": lambda: torch.zeros(3, 8)[:, :5],
    "every other row": lambda: torch.zeros(6, 5)[::2],
    "expanded": lambda: torch.zeros(5).expand(3, 5),
}
DENSE_ROWS = {"dense", "row padded", "every other row", "expanded"}


@pytest.mark.parametrize(
    ("facet", "accepted", "must"),
    [
        (None, set(VIEWS), ""),
        (tp.Contiguous(), {"dense"}, "be contiguous"),
        (tp.LastDimContiguous(), DENSE_ROWS, "be contiguous in its last axis"),
        (tp.Strides("_ 1"), DENSE_ROWS, "be laid out with strides [_, 1]"),
        (tp.Strides("m 1"), {"dense"}, "be laid out with strides [m, 1]"),
        (tp.Strides("m+3 1"), {"row padded"}, "be laid out with strides [m+3, 1]"),
        (tp.Strides("2*m 1"), {"every other row"}, "be laid out with strides [2*m, 1]"),
        (tp.Strides("2*m 2"), {"every other column"}, "be laid out with strides [2*m, 2]"),
        (tp.Strides("1 n"), {"t"}, "be laid out with strides [1, n]"),
        (tp.Strides("1 _"), {"t"}, "be laid out with strides [1, _]"),
    ],
)
@pytest.mark.parametrize("view", VIEWS)
def test_case_18__a_view_is_accepted_exactly_where_its_strides_are(facet, accepted, must, view):
    hint: Any = Float[Tensor, "n m"]
    if facet is not None:
        hint = Annotated[hint, facet]

    @tp.op
    def op(x: hint) -> int:
        return 1

    x = VIEWS[view]()
    if view in accepted:
        assert op(x) == 1
        return
    with pytest.raises(tp.ContractError) as caught:
        op(x)
    assert str(caught.value) == f"`x` must {must}: got shape (3, 5) with strides {x.stride()}."


LAST_AXIS = "`{}` of fused KV materialization must be contiguous in its last axis: got {}."


@pytest.mark.parametrize(
    ("case", "name", "text"),
    [
        *((FUSED, name, LAST_AXIS) for name in ("kv", "k_norm_weight", "cos_sin_cache", "k_out")),
        (PACKED, "mixed_qkv",
         "KDA `{}` must be [batch, 2*H*K + HV*V] with a contiguous last axis: got {}."),
        (PACKED, "initial_state",
         "KDA `{}` must be [slots, HV, V, K] with a contiguous last axis: got {}."),
        (REPLAY, "d_cache", "KDA `{}` must have a contiguous last axis: got {}."),
    ],
)  # fmt: skip
def test_case_18__rows_with_gaps_are_computed_and_elements_with_gaps_refused(case, name, text):
    op, make = case
    expected = op(**own_arguments(make()))
    call = own_arguments(make())
    call[name] = row_padded(call[name])
    for found, wanted in zip(op(**call), expected, strict=True):
        assert torch.equal(found.nan_to_num(), wanted.nan_to_num())
    wrong = doubled(make()[name])
    layout = f"shape {tuple(wrong.shape)} with strides {wrong.stride()}"
    assert refusal(case, **{name: wrong}) == text.format(name, layout)


@pytest.mark.parametrize("name", ["k_out", "v_out"])
def test_case_19__an_output_of_another_dtype_device_or_layout__fused_kv(name):
    out = FUSED[1]()[name]
    must_match = (
        f"The {name[0].upper()} output of fused KV materialization must match kv: got device={{}}, "
        "dtype={}, expected device=cpu, dtype=torch.bfloat16."
    )
    for dtype in (torch.float32, torch.float16, torch.int16):
        changed = {name: torch.zeros_like(out, dtype=dtype)}
        assert refusal(FUSED, **changed) == must_match.format("cpu", dtype)
    assert refusal(FUSED, **{name: out.to("meta")}) == must_match.format("meta", out.dtype)
    for layout in (doubled(out), out.mT.contiguous().mT):
        got = f"shape (3, 7, 2, 16) with strides {layout.stride()}"
        assert refusal(FUSED, **{name: layout}) == LAST_AXIS.format(name, got)
    assert refusal(FUSED, **{name: out[:, :1].expand_as(out)}) == (
        f"`{name}` of fused KV materialization must not share memory: expected one place in memory "
        "for each element, got shape (3, 7, 2, 16) with strides (224, 0, 16, 1)."
    )
    padded = row_padded(out)
    found = ops.fused_kv_materialize(**FUSED[1]() | {name: padded})
    assert found["kv".index(name[0])] is padded


@pytest.mark.parametrize("case", [PACKED, REPLAY], ids=["packed", "replay"])
def test_case_19__an_output_of_another_dtype_device_or_layout__kda(case):
    out = case[1]()["out"]
    for dtype in (torch.int64, torch.int8, torch.bool):
        assert refusal(case, out=torch.zeros_like(out, dtype=dtype)) == (
            f"KDA `out` must have dtype Float: got dtype {str(dtype).removeprefix('torch.')}."
        )
    assert refusal(case, out=out.to("meta")) == (
        "KDA tensors must be on one device: `out` is on meta, expected cpu."
    )
    for layout in (row_padded(out), doubled(out), out[:1].expand_as(out)):
        assert refusal(case, out=layout) == (
            f"KDA `out` must be contiguous: got shape (5, 1, 6, 12) with strides {layout.stride()}."
        )
    wide = torch.zeros_like(out, dtype=torch.float32)
    assert case[0](**case[1]() | {"out": wide})[0] is wide
    assert wide.any()


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


RING_TEXT = (
    "`k_cache` must have as many slots as `initial_state`: got shape (39999, 4, 16, 64), "
    "expected 40000 slots."
)


def large_calls() -> dict[str, tuple[Any, Arguments, str, Tensor, str]]:
    """An op, a valid call of over 2**31 elements, and a wrong argument with its text."""
    tokens, batch, H, HV, K, V, L, slots = 2**20, 3, 4, 8, 64, 128, 16, 40_000
    real = torch.float32
    fused = {
        "kv": meta(tokens, 6, 2 * 8 * 128), "k_norm_weight": meta(6, 128),
        "eps": meta(6, dtype=real), "cos_sin_cache": meta(40_960, 64, dtype=real),
        "positions": meta(tokens, dtype=torch.int64), "num_kv_heads": 8, "head_dim": 128,
        "rotary_dim": 64,
    }  # fmt: skip
    packed = {
        "mixed_qkv": meta(batch, 2 * H * K + HV * V), "a": meta(batch, HV * K),
        "b": meta(batch, HV), "A_log": meta(HV, dtype=real), "dt_bias": meta(HV * K, dtype=real),
        "scale": 1.0, "initial_state": meta(slots, HV, V, K), "out": meta(batch, 1, HV, V),
        "ssm_state_indices": meta(batch, dtype=torch.int32),
    }  # fmt: skip
    replay = packed | {
        "d_cache": meta(slots, HV, L, V), "k_cache": meta(slots, H, L, K),
        "g_cache": meta(slots, HV, L, K, dtype=real), "write_pos": meta(batch, dtype=torch.int32),
    }  # fmt: skip
    return {
        "fused": (ops.fused_kv_materialize, fused, "positions", fused["positions"][:-1],
                  POSITIONS_TEXT.format((tokens - 1,)).replace("(7,)", f"({tokens},)")),
        "packed": (ops.kda_packed_decode, packed, "b", packed["b"][:, :-1],
                   "KDA `b` must have shape (3, 8): got (3, 7)."),
        "replay": (ops.kda_replayssm_decode, replay, "k_cache", replay["k_cache"][:-1],
                   RING_TEXT),
    }  # fmt: skip


@pytest.mark.parametrize("op_name", ["fused", "packed", "replay"])
def test_case_20__ops_take_more_elements_than_32_bits_count(op_name):
    op, call, name, wrong, text = large_calls()[op_name]
    assert max(value.numel() for value in call.values() if isinstance(value, Tensor)) > 2**31
    assert all(result.device.type == "meta" for result in op(**call))
    with pytest.raises(tp.ContractError) as caught:
        op(**call | {name: wrong})
    assert str(caught.value) == text


@pytest.mark.parametrize("columns", [2**15 - 1, 2**15, 2**17 + 3])
def test_case_20__counts_offsets_and_texts_are_exact_past_32_bits(columns):
    rows = 2**16
    limit = rows * columns

    @tp.op(
        where=["x.numel() <= limit"],
        errors=[tp.raises("big", "{x.numel()} of {rows * columns}", unless="x.numel() <= limit")],
    )
    def op(
        x: Annotated[Float[Tensor, "rows columns"], tp.Strides("columns 1")],
        flat: Float[Tensor, "rows*columns"],
        limit: int,
    ) -> int:
        return 1

    x, flat = meta(rows, columns), meta(limit)
    assert op(x, flat, limit) == 1
    with pytest.raises(tp.ContractError) as caught:
        op(x, flat, limit - 1)
    assert str(caught.value) == f"{limit} of {limit}"
    with pytest.raises(tp.ContractError) as caught:
        op(x, meta(limit + 1), limit)
    assert f"axis 0 must be {limit}, got {limit + 1} in shape ({limit + 1},)" in str(caught.value)


def test_case_21__a_batch_of_none_returns_empty_where_that_is_declared():
    call = FUSED[1]()
    empty = ops.fused_kv_materialize(**call | {"kv": call["kv"][:0]})
    assert [tuple(result.shape) for result in empty] == [(3, 0, 2, 16)] * 2
    assert empty[0] is not empty[1]
    for op, make in (PACKED, REPLAY):
        call = make()
        before = call["initial_state"].clone()
        rows = ("mixed_qkv", "a", "b", "out", "ssm_state_indices", "write_pos", "force_flush")
        none = call | {name: call[name][:0] for name in rows if name in call}
        out, state = op(**none)
        assert out is none["out"]
        assert state is call["initial_state"]
        assert torch.equal(state, before)
        one = call | {name: call[name][:1].clone() for name in rows if name in call}
        assert op(**one)[0].isfinite().all()


def test_case_21__a_batch_of_none_is_an_error_where_nothing_is_declared():
    row = tp.raises("empty", "No rows: got {tuple(x.shape)}.", unless="x: extent")

    @tp.op
    def undeclared(x: Float[Tensor, "batch dim"], slots: Int32[Tensor, "batch"]) -> int:
        return 1

    @tp.op(errors=[row])
    def documented(x: Float[Tensor, "batch dim"], slots: Int32[Tensor, "batch"]) -> int:
        return 1

    @tp.op(zero={"batch": "returns 1"})
    def declared(x: Float[Tensor, "batch dim"], slots: Int32[Tensor, "batch"]) -> int:
        return 1

    one, none, slots = torch.zeros(1, 3), torch.zeros(0, 3), torch.zeros(1, dtype=torch.int32)
    for op in (undeclared, documented, declared):
        assert op(one, slots) == 1
    assert declared(none, slots[:0]) == 1
    texts = []
    for op in (undeclared, documented):
        with pytest.raises(tp.ContractError) as caught:
            op(none, slots[:0])
        texts.append(str(caught.value))
    assert texts == [
        "`batch` must be at least 1: got 0 from axis 0 of `x`.",
        "No rows: got (0, 3).",
    ]


@pytest.mark.parametrize(
    ("name", "axis", "text"),
    [
        ("n_layers", 1, "Fused KV materialization needs n_layers >= 1: got n_layers = 0."),
        ("total_ctx", 0, None),
    ],
)
def test_case_21__only_the_dim_that_is_declared_may_be_0(name, axis, text):
    call = FUSED[1]() | {"k_out": None, "v_out": None}
    call["kv"] = call["kv"].narrow(axis, 0, 0)
    if name == "n_layers":
        call |= {"k_norm_weight": call["k_norm_weight"][:0], "eps": call["eps"][:0]}
    if text is None:
        assert ops.fused_kv_materialize(**call)[0].numel() == 0
        return
    with pytest.raises(tp.ContractError) as caught:
        ops.fused_kv_materialize(**call)
    assert str(caught.value) == text
