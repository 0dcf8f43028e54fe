"""The eager `kda_packed_decode` against its float64 definition."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tensorpact.backends.eager.kda_packed import kda_packed_decode
from tensorpact.demo.reference import kda_packed_reference

# Pairwise distinct, the number of value heads per query head (3) included.
BATCH, HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, SLOTS = 5, 2, 6, 16, 12, 9

OUT_TOLERANCE: dict[torch.dtype, dict[str, Any]] = {
    torch.float32: {"atol": 1e-4, "rtol": 1e-3},
    torch.bfloat16: {"atol": 1e-3, "rtol": 1e-2},
    torch.float16: {"atol": 1e-3, "rtol": 1e-2},
}
STATE_TOLERANCE: dict[str, Any] = {"atol": 3e-3, "rtol": 1e-2}
INTEGER_OF_SIZE = {2: torch.int16, 4: torch.int32}


def make_call(
    dtype: torch.dtype = torch.float32,
    state_dtype: torch.dtype = torch.float32,
    slots: list[int] | None = None,
    heads: int = HEADS,
    seed: int = 0,
) -> dict[str, Any]:
    """A valid call with one row per entry of `slots`; a negative one is a padding row."""
    slots = [4, -1, 7, 0, 2] if slots is None else slots
    generator = torch.Generator().manual_seed(seed)
    batch = len(slots)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    mixed_qkv = normal(batch, 2 * heads * KEY_DIM + VALUE_HEADS * VALUE_DIM)
    mixed_qkv[:, : 2 * heads * KEY_DIM] *= KEY_DIM**-0.5  # keys of about unit length
    mixed_qkv[torch.tensor(slots) < 0] = float("nan")  # padding is never read into a result
    return {
        "mixed_qkv": mixed_qkv.to(dtype),
        "a": normal(batch, VALUE_HEADS * KEY_DIM).to(dtype),
        "b": normal(batch, VALUE_HEADS).to(dtype),
        "A_log": 0.5 * normal(VALUE_HEADS),
        "dt_bias": normal(VALUE_HEADS * KEY_DIM),
        "scale": KEY_DIM**-0.5,
        "initial_state": normal(SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM).to(state_dtype),
        "out": torch.full((batch, 1, VALUE_HEADS, VALUE_DIM), float("nan"), dtype=dtype),
        "ssm_state_indices": torch.tensor(slots, dtype=torch.int32),
    }


def reference(call: dict[str, Any]) -> tuple[Tensor, Tensor]:
    return kda_packed_reference(**{name: x for name, x in call.items() if name != "out"})


def bits(tensor: Tensor) -> Tensor:
    """The bit pattern, in which NaN equals itself and -0.0 differs from 0.0."""
    return tensor.clone(memory_format=torch.contiguous_format).view(
        INTEGER_OF_SIZE[tensor.element_size()]
    )


def run_and_check(call: dict[str, Any]) -> None:
    """Run the op and compare all that it writes, and all that it must not write."""
    before = call["initial_state"].clone()
    expected_out, expected_state = reference(call)
    out, state = kda_packed_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]
    torch.testing.assert_close(out.double(), expected_out, **OUT_TOLERANCE[out.dtype])
    torch.testing.assert_close(state.double(), expected_state, **STATE_TOLERANCE)

    slots = call["ssm_state_indices"]
    assert bool((out[slots < 0] == 0).all())
    untouched = torch.ones(SLOTS, dtype=torch.bool)
    untouched[slots[slots >= 0].long()] = False
    assert torch.equal(bits(state[untouched]), bits(before[untouched]))


@pytest.mark.parametrize("use_l2norm", [False, True])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", OUT_TOLERANCE, ids=str)
def test_kda_packed__matches_float64_reference(
    dtype: torch.dtype, state_dtype: torch.dtype, use_l2norm: bool
) -> None:
    run_and_check(make_call(dtype, state_dtype) | {"use_qk_l2norm_in_kernel": use_l2norm})


@pytest.mark.parametrize("length", [0.0, 1e-4, 1e-3])
def test_kda_packed__l2norm_of_short_vectors(length: float) -> None:
    call = make_call() | {"use_qk_l2norm_in_kernel": True}
    call["mixed_qkv"][:, : 2 * HEADS * KEY_DIM] *= length  # squares no larger than the norm's eps
    run_and_check(call)


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_kda_packed__grouped_query_heads(heads: int) -> None:
    run_and_check(make_call(heads=heads))


def test_kda_packed__beta_keeps_float32() -> None:
    call = make_call(torch.bfloat16) | {"out": torch.empty(5, 1, VALUE_HEADS, VALUE_DIM)}
    expected_out, _ = reference(call)
    out, _ = kda_packed_decode(**call)
    torch.testing.assert_close(out.double(), expected_out, **OUT_TOLERANCE[torch.float32])


def test_kda_packed__gate_is_linear_above_20() -> None:
    call = make_call()
    call["dt_bias"] = torch.linspace(15.0, 120.0, VALUE_HEADS * KEY_DIM)
    call["A_log"] = torch.full((VALUE_HEADS,), -5.0)
    run_and_check(call)


def test_kda_packed__a_and_dt_bias_may_have_a_head_axis() -> None:
    flat, shaped = make_call(), make_call()
    shaped["a"] = shaped["a"].unflatten(-1, (VALUE_HEADS, KEY_DIM))
    shaped["dt_bias"] = shaped["dt_bias"].unflatten(-1, (VALUE_HEADS, KEY_DIM))
    for actual, expected in zip(
        kda_packed_decode(**shaped), kda_packed_decode(**flat), strict=True
    ):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    "slots",
    [
        [0, -1, 3],
        [-1, 0, 3],
        [3, -1, -7, 0],
        [-1, -1, 8],
        [8],
        [0],
        [-1],
        [-1, -1, -1, -1],
        list(range(SLOTS)),
    ],
    ids=str,
)
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kda_packed__padding_rows(slots: list[int], state_dtype: torch.dtype) -> None:
    run_and_check(make_call(state_dtype=state_dtype, slots=slots))


def test_kda_packed__only_padding_keeps_nan_and_negative_zero() -> None:
    call = make_call(slots=[-1, -1])
    call["initial_state"][0] = -0.0
    call["initial_state"][0, 0, 0, 0] = float("nan")
    before = bits(call["initial_state"])
    out, state = kda_packed_decode(**call)
    assert torch.equal(bits(state), before)
    assert bool((out == 0).all())


def test_kda_packed__int64_slots() -> None:
    call = make_call()
    run_and_check(call | {"ssm_state_indices": call["ssm_state_indices"].long()})


def test_kda_packed__slot_out_of_range_writes_nothing() -> None:
    call = make_call(slots=[0, SLOTS])
    before = call["initial_state"].clone()
    with pytest.raises(IndexError):
        kda_packed_decode(**call)
    assert torch.equal(call["initial_state"], before)
    assert bool(call["out"].isnan().all())


@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kda_packed__strided_state_and_out(state_dtype: torch.dtype) -> None:
    call = make_call(state_dtype=state_dtype)
    pool = torch.full((SLOTS, 3, VALUE_HEADS + 1, VALUE_DIM, KEY_DIM + 4), 5.0, dtype=state_dtype)
    page = pool[:, 1, 1:, :, 2 : KEY_DIM + 2]
    page.copy_(call["initial_state"])
    out_pool = torch.full((5, 2, VALUE_HEADS, VALUE_DIM + 3), 5.0)
    out_view = out_pool[:, 1:, :, :VALUE_DIM]
    run_and_check(call | {"initial_state": page, "out": out_view})
    page.fill_(5.0)
    out_view.fill_(5.0)
    assert bool((pool == 5.0).all())
    assert bool((out_pool == 5.0).all())


def test_kda_packed__strided_inputs() -> None:
    call, plain = make_call(slots=[4, 3, 7, 0, 2]), make_call(slots=[4, 3, 7, 0, 2])
    for name in ("mixed_qkv", "a", "b"):
        wide = torch.full((5, call[name].shape[1] + 3), float("nan"))
        wide[:, 1:-2] = call[name]
        call[name] = wide[:, 1:-2]
    for actual, expected in zip(kda_packed_decode(**call), kda_packed_decode(**plain), strict=True):
        assert torch.equal(actual, expected)


def test_kda_packed__no_rows() -> None:
    call = make_call(slots=[])
    before = call["initial_state"].clone()
    out, state = kda_packed_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]
    assert torch.equal(state, before)


def test_kda_packed__inputs_are_left_alone() -> None:
    call = make_call(slots=[4, 3])
    inputs = [x for name, x in call.items() if name not in ("initial_state", "out", "scale")]
    before = [x.clone() for x in inputs]
    kda_packed_decode(**call)
    assert all(map(torch.equal, inputs, before))


def test_kda_packed__a_row_does_not_depend_on_its_neighbours() -> None:
    together, alone = make_call(slots=[4, 3]), make_call(slots=[4, 3])
    for name in ("mixed_qkv", "a", "b", "out", "ssm_state_indices"):
        alone[name] = alone[name][1:]
    kda_packed_decode(**together)
    kda_packed_decode(**alone)
    torch.testing.assert_close(alone["out"], together["out"][1:])
    torch.testing.assert_close(alone["initial_state"][3], together["initial_state"][3])


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_kda_packed__compiles_to_one_graph(backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(kda_packed_decode, fullgraph=True, backend=backend)
    for slots in ([4, -1, 7, 0, 2], [-1, -1, -1, -1, -1]):
        expected, call = make_call(slots=slots), make_call(slots=slots)
        before = call["initial_state"].clone()
        kda_packed_decode(**expected)
        out, state = compiled(**call)
        assert out is call["out"]
        assert state is call["initial_state"]
        torch.testing.assert_close(out, expected["out"])
        torch.testing.assert_close(state, expected["initial_state"])
        untouched = [slot for slot in range(SLOTS) if slot not in slots]
        assert torch.equal(state[untouched], before[untouched])
