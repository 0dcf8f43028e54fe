"""The eager `kda_replayssm_decode` against its float64 definition and the packed op."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tensorpact.backends.eager.kda_packed import kda_packed_decode
from tensorpact.backends.eager.kda_replayssm import kda_replayssm_decode
from tensorpact.demo.reference import kda_replayssm_reference

# Pairwise distinct, the number of value heads per query head (3) included.
BATCH, HEADS, VALUE_HEADS, RING, KEY_DIM, VALUE_DIM, SLOTS = 5, 2, 6, 4, 16, 12, 9

OUT_TOLERANCE: dict[torch.dtype, dict[str, Any]] = {
    torch.float32: {"atol": 1e-4, "rtol": 1e-3},
    torch.bfloat16: {"atol": 1e-3, "rtol": 1e-2},
    torch.float16: {"atol": 1e-3, "rtol": 1e-2},
}
STATE_TOLERANCE: dict[str, Any] = {"atol": 3e-3, "rtol": 1e-2}
GATE_TOLERANCE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-4}
INTEGER_OF_SIZE = {2: torch.int16, 4: torch.int32}
CACHES = ("initial_state", "d_cache", "k_cache", "g_cache")


def make_call(
    dtype: torch.dtype = torch.float32,
    state_dtype: torch.dtype = torch.float32,
    slots: list[int] | None = None,
    write_pos: list[int] | None = None,
    force_flush: list[int] | None = None,
    heads: int = HEADS,
    ring: int = RING,
    seed: int = 0,
) -> dict[str, Any]:
    """A valid call with one row per entry of `slots`; a negative one is a padding row.

    Whatever must not be read is NaN: uncommitted ring entries and the operands of padding rows.
    The default rows are: append, padding, flush at the end of the ring, append to an empty ring,
    append at the last place that does not flush.
    """
    slots = [4, -1, 7, 0, 2] if slots is None else slots
    write_pos = [1, 2, 3, 0, 2] if write_pos is None else write_pos
    batch = len(slots)
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    mixed_qkv = normal(batch, 2 * heads * KEY_DIM + VALUE_HEADS * VALUE_DIM)
    mixed_qkv[:, : 2 * heads * KEY_DIM] *= KEY_DIM**-0.5  # keys of about unit length
    mixed_qkv[torch.tensor(slots) < 0] = float("nan")
    d_cache = normal(SLOTS, VALUE_HEADS, ring, VALUE_DIM).to(dtype)
    k_cache = (normal(SLOTS, heads, ring, KEY_DIM) * KEY_DIM**-0.5).to(dtype)
    g_cache = -torch.rand(SLOTS, VALUE_HEADS, ring, KEY_DIM, generator=generator)
    for slot, committed in zip(slots, write_pos, strict=True):
        if slot >= 0:
            for cache in (d_cache, k_cache, g_cache):
                cache[slot, :, committed:] = float("nan")
    call = {
        "mixed_qkv": mixed_qkv.to(dtype),
        "a": normal(batch, VALUE_HEADS * KEY_DIM).to(dtype),
        "b": normal(batch, VALUE_HEADS).to(dtype),
        "A_log": 0.5 * normal(VALUE_HEADS),
        "dt_bias": normal(VALUE_HEADS * KEY_DIM),
        "scale": KEY_DIM**-0.5,
        "initial_state": normal(SLOTS, VALUE_HEADS, VALUE_DIM, KEY_DIM).to(state_dtype),
        "d_cache": d_cache,
        "k_cache": k_cache,
        "g_cache": g_cache,
        "out": torch.full((batch, 1, VALUE_HEADS, VALUE_DIM), float("nan"), dtype=dtype),
        "ssm_state_indices": torch.tensor(slots, dtype=torch.int32),
        "write_pos": torch.tensor(write_pos, dtype=torch.int32),
    }
    if force_flush is not None:
        call["force_flush"] = torch.tensor(force_flush, dtype=torch.int32)
    return call


def bits(tensor: Tensor) -> Tensor:
    """The bit pattern, in which NaN equals itself and -0.0 differs from 0.0."""
    return tensor.clone(memory_format=torch.contiguous_format).view(
        INTEGER_OF_SIZE[tensor.element_size()]
    )


def written_masks(call: dict[str, Any]) -> dict[str, Tensor]:
    """For each cache, True where the call is to write; computed row by row."""
    masks = {name: torch.zeros(call[name].shape, dtype=torch.bool) for name in CACHES}
    ring = call["d_cache"].shape[2]
    for row, slot in enumerate(call["ssm_state_indices"].tolist()):
        cursor = int(call["write_pos"][row])
        forced = "force_flush" in call and int(call["force_flush"][row]) != 0
        if slot < 0:
            continue
        if forced or cursor == ring - 1:
            masks["initial_state"][slot] = True
        else:
            for name in CACHES[1:]:
                masks[name][slot, :, cursor] = True
    return masks


def run_and_check(call: dict[str, Any]) -> None:
    """Run the op and compare all that it writes, and all that it must not write."""
    before = {name: call[name].clone() for name in CACHES}
    expected = kda_replayssm_reference(**{name: x for name, x in call.items() if name != "out"})
    out, state = kda_replayssm_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]
    torch.testing.assert_close(out.double(), expected.out, **OUT_TOLERANCE[out.dtype])
    assert bool((out[call["ssm_state_indices"] < 0] == 0).all())

    tolerances = {
        "initial_state": STATE_TOLERANCE,
        "d_cache": OUT_TOLERANCE[call["d_cache"].dtype],
        "k_cache": OUT_TOLERANCE[call["k_cache"].dtype],
        "g_cache": GATE_TOLERANCE,
    }
    for name, mask in written_masks(call).items():
        actual, wanted = call[name], getattr(expected, name)
        torch.testing.assert_close(actual[mask].double(), wanted[mask], **tolerances[name])
        assert torch.equal(bits(actual)[~mask], bits(before[name])[~mask]), name


@pytest.mark.parametrize("use_l2norm", [False, True])
@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", OUT_TOLERANCE, ids=str)
def test_kda_replayssm__matches_float64_reference(
    dtype: torch.dtype, state_dtype: torch.dtype, lower_bound: float | None, use_l2norm: bool
) -> None:
    options = {"use_qk_l2norm_in_kernel": use_l2norm, "lower_bound": lower_bound}
    run_and_check(make_call(dtype, state_dtype) | options)


@pytest.mark.parametrize("length", [0.0, 1e-4, 1e-3])
def test_kda_replayssm__l2norm_of_short_vectors(length: float) -> None:
    call = make_call() | {"use_qk_l2norm_in_kernel": True}
    call["mixed_qkv"][:, : 2 * HEADS * KEY_DIM] *= length  # squares no larger than the norm's eps
    run_and_check(call)


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_kda_replayssm__grouped_query_heads(heads: int) -> None:
    run_and_check(make_call(heads=heads))


def test_kda_replayssm__beta_is_rounded_through_the_dtype_of_b() -> None:
    call = make_call(torch.bfloat16, state_dtype=torch.float32)
    call["out"] = torch.empty(BATCH, 1, VALUE_HEADS, VALUE_DIM)
    run_and_check(call)
    rounded = call["out"].clone()
    kda_replayssm_decode(**call | {"b": call["b"].float()})
    assert float((call["out"] - rounded).abs().max()) > 1e-4


def test_kda_replayssm__gate_is_linear_above_20() -> None:
    call = make_call()
    call["dt_bias"] = torch.linspace(15.0, 120.0, VALUE_HEADS * KEY_DIM)
    call["A_log"] = torch.full((VALUE_HEADS,), -5.0)
    run_and_check(call)


def test_kda_replayssm__gate_that_forgets_everything() -> None:
    call = make_call()
    call["g_cache"][4, :, 0] = -torch.inf
    run_and_check(call)


def test_kda_replayssm__a_and_dt_bias_may_have_a_head_axis() -> None:
    flat, shaped = make_call(), make_call()
    shaped["a"] = shaped["a"].unflatten(-1, (VALUE_HEADS, KEY_DIM))
    shaped["dt_bias"] = shaped["dt_bias"].unflatten(-1, (VALUE_HEADS, KEY_DIM))
    kda_replayssm_decode(**flat)
    kda_replayssm_decode(**shaped)
    for name in ("out", *CACHES):
        assert torch.equal(bits(shaped[name]), bits(flat[name]))


@pytest.mark.parametrize(
    "force_flush", [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, -3, 2]], ids=str
)
def test_kda_replayssm__forced_flush(force_flush: list[int]) -> None:
    run_and_check(make_call(force_flush=force_flush))


@pytest.mark.parametrize("cursor", range(RING))
def test_kda_replayssm__every_place_of_the_ring(cursor: int) -> None:
    run_and_check(make_call(slots=[3, 0], write_pos=[cursor, RING - 1 - cursor]))


def test_kda_replayssm__ring_of_one_always_flushes() -> None:
    run_and_check(make_call(ring=1, write_pos=[0] * BATCH))


@pytest.mark.parametrize("garbage", [0, -1, RING, 2**31 - 1])
@pytest.mark.parametrize("force_flush", [False, True])
@pytest.mark.parametrize(
    "slots",
    [[0, -1, 3], [-1, 0, 3], [3, -1, -7, 0], [-1, -1, 8], [0], [-1], [-1, -1, -1, -1]],
    ids=str,
)
def test_kda_replayssm__padding_rows(slots: list[int], force_flush: bool, garbage: int) -> None:
    write_pos = [garbage if slot < 0 else slot % (RING - 1) for slot in slots]
    flags = [int(force_flush)] * len(slots)
    run_and_check(make_call(slots=slots, write_pos=write_pos, force_flush=flags))


@pytest.mark.parametrize("flush_row", [0, 1])
def test_kda_replayssm__padding_beside_a_flush_and_an_append(flush_row: int) -> None:
    write_pos = [1, 1, 1]
    write_pos[flush_row] = RING - 1
    run_and_check(make_call(slots=[0, 5, -1], write_pos=write_pos))


@pytest.mark.parametrize(("slot", "cursor"), [(SLOTS, 0), (0, RING)])
def test_kda_replayssm__index_out_of_range_writes_nothing(slot: int, cursor: int) -> None:
    call = make_call(slots=[3, 5], write_pos=[1, RING - 1])
    call["ssm_state_indices"][0] = slot
    call["write_pos"][0] = cursor
    before = {name: bits(call[name]) for name in ("out", *CACHES)}
    with pytest.raises(IndexError):
        kda_replayssm_decode(**call)
    assert all(torch.equal(bits(call[name]), old) for name, old in before.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kda_replayssm__strided_caches_and_out(dtype: torch.dtype) -> None:
    call = make_call(dtype)
    pools = {}
    for name in ("out", *CACHES):
        plain = call[name]
        first, second, third, last = plain.shape
        pool = torch.full((first, 3, second + 1, third, last + 4), 5.0, dtype=plain.dtype)
        call[name] = pool[:, 1, 1:, :, 2:-2]
        call[name].copy_(plain)
        pools[name] = pool
    run_and_check(call)
    for name, pool in pools.items():
        call[name].fill_(5.0)
        assert bool((pool == 5.0).all())


def test_kda_replayssm__no_rows() -> None:
    call = make_call(slots=[], write_pos=[])
    before = {name: call[name].clone() for name in CACHES}
    out, state = kda_replayssm_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]
    assert all(torch.equal(call[name], before[name]) for name in CACHES)


def test_kda_replayssm__inputs_are_left_alone() -> None:
    call = make_call(slots=[4, 3], write_pos=[1, 2], force_flush=[0, 1])
    inputs = [x for name, x in call.items() if name not in ("out", "scale", *CACHES)]
    before = [x.clone() for x in inputs]
    kda_replayssm_decode(**call)
    assert all(map(torch.equal, inputs, before))


@pytest.mark.parametrize("ring", [1, 4, 7])
@pytest.mark.parametrize("use_l2norm", [False, True])
def test_kda_replayssm__whole_ring_cycles_equal_the_packed_op(ring: int, use_l2norm: bool) -> None:
    slots = [4, -1, 7, 0, 2]
    write_pos = [0] * BATCH
    call = make_call(slots=slots, write_pos=write_pos, ring=ring)
    packed_state = call["initial_state"].clone()
    steps = 3 * ring + 2
    for step in range(steps):
        token = make_call(slots=slots, write_pos=write_pos, ring=ring, seed=step + 1)
        shared = {name: token[name] for name in ("mixed_qkv", "a", "b", "out")}
        # Row 2 flushes early now and then, so that the rows' rings fall out of step; at the end
        # all flush, so that the states can be compared.
        forced = [1] * BATCH if step == steps - 1 else [0, 0, step % 3 == 1, 0, 0]
        call |= shared | {
            "write_pos": torch.tensor(write_pos, dtype=torch.int32),
            "force_flush": torch.tensor(forced, dtype=torch.int32),
            "use_qk_l2norm_in_kernel": use_l2norm,
        }
        kda_replayssm_decode(**call)
        packed_out, _ = kda_packed_decode(
            **{name: call[name] for name in ("mixed_qkv", "a", "b", "A_log", "dt_bias", "scale")},
            initial_state=packed_state,
            out=torch.empty_like(call["out"]),
            ssm_state_indices=call["ssm_state_indices"],
            use_qk_l2norm_in_kernel=use_l2norm,
        )
        torch.testing.assert_close(call["out"], packed_out, **OUT_TOLERANCE[torch.float32])
        write_pos = [
            0 if flush or cursor == ring - 1 else cursor + 1
            for cursor, flush in zip(write_pos, forced, strict=True)
        ]
    torch.testing.assert_close(call["initial_state"], packed_state, **OUT_TOLERANCE[torch.float32])


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_kda_replayssm__compiles_to_one_graph(backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(kda_replayssm_decode, fullgraph=True, backend=backend)
    for slots in ([4, -1, 7, 0, 2], [-1, -1, -1, -1, -1]):
        expected = make_call(slots=slots, force_flush=[0, 1, 0, 1, 0])
        call = make_call(slots=slots, force_flush=[0, 1, 0, 1, 0])
        before = {name: call[name].clone() for name in CACHES}
        kda_replayssm_decode(**expected)
        out, state = compiled(**call)
        assert out is call["out"]
        assert state is call["initial_state"]
        masks = written_masks(call)
        torch.testing.assert_close(out, expected["out"])
        for name in CACHES:
            torch.testing.assert_close(call[name], expected[name], equal_nan=True)
            untouched = ~masks[name]
            assert torch.equal(bits(call[name])[untouched], bits(before[name])[untouched])
