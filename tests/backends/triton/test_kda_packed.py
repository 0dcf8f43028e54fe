"""The Triton `kda_packed_decode` against its float64 definition."""

import pytest
import torch
from triton_calls import OUT_TOLERANCE, check_packed, kda_call

from tensorpact.backends.triton.kda_packed import kda_packed_decode


@pytest.mark.parametrize("use_l2norm", [False, True])
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", OUT_TOLERANCE, ids=str)
def test_kda_packed__matches_float64_reference(
    device: torch.device, dtype: torch.dtype, state_dtype: torch.dtype, use_l2norm: bool
) -> None:
    check_packed(kda_call(device, dtype, state_dtype) | {"use_qk_l2norm_in_kernel": use_l2norm})


@pytest.mark.parametrize(
    ("key_dim", "value_dim"), [(128, 96), (72, 80), (256, 20), (20, 256), (1, 3), (33, 130)]
)
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kda_packed__sizes(
    device: torch.device, state_dtype: torch.dtype, key_dim: int, value_dim: int
) -> None:
    sizes = {"key_dim": key_dim, "value_dim": value_dim}
    check_packed(kda_call(device, state_dtype=state_dtype, slots=(3, -1, 0), **sizes))


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_kda_packed__grouped_query_heads(device: torch.device, heads: int) -> None:
    check_packed(kda_call(device, heads=heads))


@pytest.mark.parametrize("length", [0.0, 1e-4, 1e-3])
def test_kda_packed__l2norm_of_short_vectors(device: torch.device, length: float) -> None:
    call = kda_call(device) | {"use_qk_l2norm_in_kernel": True}
    call["mixed_qkv"][:, : 2 * 2 * 16] *= length
    check_packed(call)


def test_kda_packed__beta_keeps_float32(device: torch.device) -> None:
    call = kda_call(device, torch.bfloat16)
    check_packed(call | {"out": call["out"].float()})


def test_kda_packed__strided_operands(device: torch.device) -> None:
    call = kda_call(device)
    for name in ("mixed_qkv", "a", "b"):
        wide = torch.full((5, call[name].shape[1] + 7), float("nan"), device=device)
        wide[:, 3:-4] = call[name]
        call[name] = wide[:, 3:-4]
    plain = call["initial_state"]
    pool = torch.full((9, 3, 13, 6, 20), 5.0, device=device)
    call["initial_state"] = pool[:, 1, 1:, :, 2:-2].transpose(1, 2)
    call["initial_state"].copy_(plain)
    check_packed(call)
    call["initial_state"].fill_(5.0)
    assert bool((pool == 5.0).all())


@pytest.mark.parametrize("slots", [(-1,), (-1, -7, 0), (0, -1)], ids=str)
def test_kda_packed__padding_rows(device: torch.device, slots: tuple[int, ...]) -> None:
    check_packed(kda_call(device, slots=slots))


def test_kda_packed__no_rows(device: torch.device) -> None:
    call = kda_call(device, slots=())
    out, state = kda_packed_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]
