"""The Triton `fused_kv_materialize` against its float64 definition."""

import pytest
import torch
from triton_calls import KV_TOLERANCE, bits, check_fused, fused_call

from tensorpact.backends.triton.fused_kv import fused_kv_materialize


@pytest.mark.parametrize("dtype", KV_TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("num_kv_heads", "head_dim", "rotary_dim"),
    [(2, 80, 80), (2, 128, 64), (4, 256, 256), (1, 6, 2), (5, 128, 128), (3, 192, 96), (2, 7, 4)],
)
def test_fused_kv__matches_float64_reference(
    device: torch.device, dtype: torch.dtype, num_kv_heads: int, head_dim: int, rotary_dim: int
) -> None:
    sizes = {"num_kv_heads": num_kv_heads, "head_dim": head_dim, "rotary_dim": rotary_dim}
    check_fused(fused_call(device, dtype, **sizes))


@pytest.mark.parametrize("total_ctx", [1, 2, 33])
def test_fused_kv__token_counts(device: torch.device, total_ctx: int) -> None:
    check_fused(fused_call(device, torch.bfloat16, total_ctx=total_ctx, head_dim=16, rotary_dim=16))


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str
)
def test_fused_kv__any_integer_positions(device: torch.device, dtype: torch.dtype) -> None:
    call = fused_call(device)
    check_fused(call | {"positions": call["positions"].to(dtype)})


def test_fused_kv__positions_on_another_device(device: torch.device) -> None:
    call = fused_call(device)
    check_fused(call | {"positions": call["positions"].cpu()})


def test_fused_kv__half_precision_parameters(device: torch.device) -> None:
    call = fused_call(device, torch.bfloat16)
    names = ("eps", "cos_sin_cache", "k_norm_weight")
    check_fused(call | {name: call[name].half() for name in names})


def test_fused_kv__v_is_copied_bit_for_bit(device: torch.device) -> None:
    call = fused_call(device, torch.bfloat16)
    pattern = torch.randint(-(2**15), 2**15, call["kv"].shape, dtype=torch.int16)
    call["kv"] = pattern.view(torch.bfloat16).to(device)  # NaN payloads and -0.0 included
    _, v = fused_kv_materialize(**call)
    assert torch.equal(bits(v), torch.unflatten(pattern, -1, (2, 2, 80))[:, :, 1].transpose(0, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_kv__strided_inputs_and_outputs(device: torch.device, dtype: torch.dtype) -> None:
    call = fused_call(device, dtype)
    wide = torch.full((7, 5, 403), float("nan"), dtype=dtype, device=device)
    wide[:, 1:4, 41:361] = call["kv"]
    call["kv"] = wide[:, 1:4, 41:361]
    cos_sin = torch.full((31, 83), float("nan"), device=device)
    cos_sin[:, 2:82] = call["cos_sin_cache"]
    call["cos_sin_cache"] = cos_sin[:, 2:82]
    # Workspaces with room for more layers, tokens, heads and channels, filled with a mark.
    k_pool = torch.full((4, 11, 3, 96), 5.0, dtype=dtype, device=device)
    v_pool = torch.full((5, 9, 4, 89), 5.0, dtype=dtype, device=device)
    k_out, v_out = k_pool[1:, 2:9, 1:, 8:88], v_pool[:3, :7, ::2, 3:83]
    k, v = check_fused(call, k_out=k_out, v_out=v_out)
    assert k is k_out
    assert v is v_out
    k_out.fill_(5.0)
    v_out.fill_(5.0)
    assert bool((k_pool == 5.0).all())
    assert bool((v_pool == 5.0).all())


def test_fused_kv__heads_outermost(device: torch.device) -> None:
    call = fused_call(device)
    outputs = torch.empty(2, 2, 3, 7, 80, device=device).permute(0, 2, 3, 1, 4)
    check_fused(call, k_out=outputs[0], v_out=outputs[1])


def test_fused_kv__no_tokens_gives_two_different_empty_tensors(device: torch.device) -> None:
    k, v = fused_kv_materialize(**fused_call(device, torch.bfloat16, total_ctx=0))
    assert k is not v
    assert k.shape == v.shape == (3, 0, 2, 80)
    assert k.dtype == v.dtype == torch.bfloat16


def test_fused_kv__inputs_are_left_alone(device: torch.device) -> None:
    call = fused_call(device)
    before = {name: x.clone() for name, x in call.items() if isinstance(x, torch.Tensor)}
    fused_kv_materialize(**call)
    assert all(torch.equal(call[name], x) for name, x in before.items())
