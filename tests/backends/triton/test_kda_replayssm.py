"""The Triton `kda_replayssm_decode` against its float64 definition and the packed op."""

from typing import Any

import pytest
import torch
from triton_calls import CACHES, OUT_TOLERANCE, bits, check_replay, kda_call, replay_call

from tensorpact.backends.triton.kda_packed import kda_packed_decode
from tensorpact.backends.triton.kda_replayssm import kda_replayssm_decode

RING = 4


@pytest.mark.parametrize("use_l2norm", [False, True])
@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", OUT_TOLERANCE, ids=str)
def test_kda_replayssm__matches_float64_reference(
    device: torch.device,
    dtype: torch.dtype,
    state_dtype: torch.dtype,
    lower_bound: float | None,
    use_l2norm: bool,
) -> None:
    options = {"use_qk_l2norm_in_kernel": use_l2norm, "lower_bound": lower_bound}
    check_replay(replay_call(device, dtype, state_dtype) | options)


@pytest.mark.parametrize(
    ("key_dim", "value_dim"), [(128, 96), (72, 80), (256, 20), (20, 256), (1, 3), (33, 130)]
)
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kda_replayssm__sizes(
    device: torch.device, state_dtype: torch.dtype, key_dim: int, value_dim: int
) -> None:
    # float16: the interpreter cuts bfloat16 off where the hardware rounds.
    sizes: dict[str, Any] = {"key_dim": key_dim, "value_dim": value_dim}
    places: dict[str, Any] = {"slots": (3, -1, 0), "write_pos": (RING - 1, 0, 2)}
    check_replay(replay_call(device, torch.float16, state_dtype, **places, **sizes))


@pytest.mark.parametrize("ring", [1, 2, 16, 17, 64])
def test_kda_replayssm__ring_lengths(device: torch.device, ring: int) -> None:
    cursors = (0, ring - 1, ring // 2, max(ring - 2, 0))
    check_replay(replay_call(device, slots=(3, 0, 8, 5), write_pos=cursors, ring=ring))


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_kda_replayssm__grouped_query_heads(device: torch.device, heads: int) -> None:
    check_replay(replay_call(device, heads=heads))


@pytest.mark.parametrize("length", [0.0, 1e-3])
def test_kda_replayssm__l2norm_of_short_vectors(device: torch.device, length: float) -> None:
    call = replay_call(device) | {"use_qk_l2norm_in_kernel": True}
    call["mixed_qkv"][:, : 2 * 2 * 16] *= length
    check_replay(call)


def test_kda_replayssm__beta_is_rounded_through_the_dtype_of_b(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("the interpreter cuts bfloat16 off where the hardware rounds")
    call = replay_call(device, torch.bfloat16)
    check_replay(call | {"out": call["out"].float()})


def test_kda_replayssm__gate_is_linear_above_20(device: torch.device) -> None:
    call = replay_call(device)
    call["dt_bias"] = torch.linspace(15.0, 120.0, 6 * 16, device=device)
    call["A_log"] = torch.full((6,), -5.0, device=device)
    check_replay(call)


def test_kda_replayssm__gate_close_to_zero(device: torch.device) -> None:
    call = replay_call(device)
    call["dt_bias"] = torch.linspace(-30.0, 0.0, 6 * 16, device=device)
    check_replay(call)


def test_kda_replayssm__gate_that_forgets_everything(device: torch.device) -> None:
    call = replay_call(device)
    call["g_cache"][4, :, 0] = -torch.inf
    check_replay(call)


def test_kda_replayssm__a_and_dt_bias_may_have_a_head_axis(device: torch.device) -> None:
    call = replay_call(device)
    call["a"] = call["a"].unflatten(-1, (6, 16))
    call["dt_bias"] = call["dt_bias"].unflatten(-1, (6, 16))
    check_replay(call)


@pytest.mark.parametrize(
    "force_flush", [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (0, 1, 0, -3, 2)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_kda_replayssm__forced_flush(
    device: torch.device, dtype: torch.dtype, force_flush: tuple[int, ...]
) -> None:
    check_replay(replay_call(device, dtype, force_flush=force_flush))


@pytest.mark.parametrize("garbage", [-1, RING, 2**31 - 1])
@pytest.mark.parametrize("slots", [(0, -1, 3), (3, -1, -7, 0), (-1,), (-1, -1)], ids=str)
def test_kda_replayssm__padding_rows(
    device: torch.device, slots: tuple[int, ...], garbage: int
) -> None:
    write_pos = tuple(garbage if slot < 0 else slot % (RING - 1) for slot in slots)
    check_replay(replay_call(device, slots=slots, write_pos=write_pos))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kda_replayssm__strided_caches(device: torch.device, dtype: torch.dtype) -> None:
    call = replay_call(device, dtype)
    pools = {}
    for name in CACHES:
        plain = call[name]
        first, second, third, last = plain.shape
        shape = (first, 3, third, second + 1, last + 4)
        pool = torch.full(shape, 5.0, dtype=plain.dtype, device=device)
        call[name] = pool[:, 1, :, 1:, 2:-2].transpose(1, 2)
        call[name].copy_(plain)
        pools[name] = pool
    check_replay(call)
    for name, pool in pools.items():
        call[name].fill_(5.0)
        assert bool((pool == 5.0).all())


def test_kda_replayssm__views_that_are_not_aligned(device: torch.device) -> None:
    call = replay_call(device, torch.bfloat16)
    for name in ("mixed_qkv", *CACHES):
        plain = call[name]
        flat = torch.empty(plain.numel() + 1, dtype=plain.dtype, device=device)
        call[name] = flat[1:].view(plain.shape)
        call[name].copy_(plain)
    for name in ("ssm_state_indices", "write_pos"):
        call[name] = torch.cat((call[name][:1], call[name]))[1:]
    check_replay(call)


def test_kda_replayssm__no_rows(device: torch.device) -> None:
    call = replay_call(device, slots=(), write_pos=())
    out, state = kda_replayssm_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]


def test_kda_replayssm__inputs_are_left_alone(device: torch.device) -> None:
    call = replay_call(device, slots=(4, 3), write_pos=(1, 2), force_flush=(0, 1))
    inputs = [x for name, x in call.items() if name not in ("out", "scale", *CACHES)]
    before = [x.clone() for x in inputs]
    kda_replayssm_decode(**call)
    assert all(map(torch.equal, inputs, before))


@pytest.mark.parametrize("ring", [1, 3])
def test_kda_replayssm__whole_ring_cycles_equal_the_packed_op(
    device: torch.device, ring: int
) -> None:
    slots = (4, -1, 7, 0, 2)
    call = replay_call(device, slots=slots, write_pos=(0,) * 5, ring=ring)
    packed_state = call["initial_state"].clone()
    write_pos = [0] * 5
    steps = 3 * ring + 2
    for step in range(steps):
        token = kda_call(device, slots=slots, seed=step + 1)
        shared = {name: token[name] for name in ("mixed_qkv", "a", "b", "out")}
        forced = [1] * 5 if step == steps - 1 else [0, 0, int(step % 3 == 1), 0, 0]
        call |= shared | {
            "write_pos": torch.tensor(write_pos, dtype=torch.int32, device=device),
            "force_flush": torch.tensor(forced, dtype=torch.int32, device=device),
        }
        kda_replayssm_decode(**call)
        packed_out, _ = kda_packed_decode(
            **{name: call[name] for name in ("mixed_qkv", "a", "b", "A_log", "dt_bias", "scale")},
            initial_state=packed_state,
            out=torch.empty_like(call["out"]),
            ssm_state_indices=call["ssm_state_indices"],
        )
        torch.testing.assert_close(call["out"], packed_out, **OUT_TOLERANCE[torch.float32])
        write_pos = [
            0 if flush or cursor == ring - 1 else cursor + 1
            for cursor, flush in zip(write_pos, forced, strict=True)
        ]
    torch.testing.assert_close(call["initial_state"], packed_state, **OUT_TOLERANCE[torch.float32])
    assert torch.equal(bits(call["out"][1]), bits(torch.zeros_like(call["out"][1])))
