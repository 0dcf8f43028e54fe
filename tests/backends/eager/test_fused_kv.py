"""The eager `fused_kv_materialize` against its float64 definition."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tensorpact.backends.eager.fused_kv import fused_kv_materialize
from tensorpact.demo.reference import fused_kv_reference

TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-4,
    torch.bfloat16: 1.5e-2,
    torch.float16: 1e-2,
}


def make_call(
    dtype: torch.dtype = torch.float32,
    total_ctx: int = 7,
    n_layers: int = 3,
    num_kv_heads: int = 2,
    head_dim: int = 80,
    rotary_dim: int = 80,
    max_pos: int = 31,
    seed: int = 0,
) -> dict[str, Any]:
    """A valid call; every layer has a weight and an eps of its own, eps large enough to matter."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    angles = torch.rand(max_pos, rotary_dim // 2, generator=generator) * 6.28
    return {
        "kv": normal(total_ctx, n_layers, 2 * num_kv_heads * head_dim).to(dtype),
        "k_norm_weight": (1.0 + 0.2 * normal(n_layers, head_dim)).to(dtype),
        "eps": torch.tensor([10.0 ** -(1 + layer % 6) for layer in range(n_layers)]),
        "cos_sin_cache": torch.cat((angles.cos(), angles.sin()), dim=-1),
        "positions": torch.randint(0, max_pos, (total_ctx,), generator=generator),
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
    }


def assert_matches_reference(k: Tensor, v: Tensor, call: dict[str, Any]) -> None:
    expected_k, expected_v = fused_kv_reference(**call)
    tolerance = TOLERANCE[call["kv"].dtype]
    assert k.dtype == v.dtype == call["kv"].dtype
    torch.testing.assert_close(k.double(), expected_k, atol=tolerance, rtol=tolerance)
    assert torch.equal(v, expected_v)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("num_kv_heads", "head_dim", "rotary_dim"),
    [(2, 80, 80), (2, 128, 64), (4, 256, 256), (1, 6, 2), (5, 128, 128)],
)
def test_fused_kv__matches_float64_reference(
    dtype: torch.dtype, num_kv_heads: int, head_dim: int, rotary_dim: int
) -> None:
    call = make_call(dtype, num_kv_heads=num_kv_heads, head_dim=head_dim, rotary_dim=rotary_dim)
    k, v = fused_kv_materialize(**call)
    assert k.shape == v.shape == (3, 7, num_kv_heads, head_dim)
    assert_matches_reference(k, v, call)


def test_fused_kv__channels_past_rotary_dim_ignore_the_position() -> None:
    call = make_call(head_dim=128, rotary_dim=64)
    k, _ = fused_kv_materialize(**call)
    elsewhere, _ = fused_kv_materialize(**call | {"positions": (call["positions"] + 1) % 31})
    assert torch.equal(k[..., 64:], elsewhere[..., 64:])
    assert not torch.equal(k[..., :64], elsewhere[..., :64])


def test_fused_kv__last_legal_position() -> None:
    call = make_call()
    call["positions"] = torch.tensor([30, 0, 30, 0, 1, 29, 30])
    assert_matches_reference(*fused_kv_materialize(**call), call)


@pytest.mark.parametrize("position", [-1, 31])
def test_fused_kv__position_outside_the_cache_writes_nothing(position: int) -> None:
    call = make_call()
    call["positions"][3] = position
    k_out, v_out = torch.full((2, 3, 7, 2, 80), 5.0).unbind(0)
    with pytest.raises((IndexError, RuntimeError)):
        fused_kv_materialize(**call, k_out=k_out, v_out=v_out)
    assert bool((k_out == 5.0).all())
    assert bool((v_out == 5.0).all())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_fused_kv__any_integer_positions(dtype: torch.dtype) -> None:
    call = make_call()
    expected, _ = fused_kv_materialize(**call)
    k, _ = fused_kv_materialize(**call | {"positions": call["positions"].to(dtype)})
    assert torch.equal(k, expected)


def test_fused_kv__v_is_copied_bit_for_bit() -> None:
    call = make_call(torch.bfloat16)
    bits = torch.randint(-(2**15), 2**15, call["kv"].shape, dtype=torch.int16)
    call["kv"] = bits.view(torch.bfloat16)  # every bit pattern, NaN payloads and -0.0 included
    _, v = fused_kv_materialize(**call)
    expected = torch.unflatten(bits, -1, (2, 2, 80))[:, :, 1].transpose(0, 1)
    assert torch.equal(v.view(torch.int16), expected)


def test_fused_kv__strided_kv_view() -> None:
    call = make_call()
    expected = fused_kv_materialize(**call)
    wide = torch.full((7, 5, 400), float("nan"))
    wide[:, 1:4, 40:360] = call["kv"]
    actual = fused_kv_materialize(**call | {"kv": wide[:, 1:4, 40:360]})
    assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_kv__strided_outputs_are_written_and_returned(dtype: torch.dtype) -> None:
    call = make_call(dtype)
    # Workspaces with room for more layers, tokens, heads and channels, filled with a mark.
    k_pool = torch.full((4, 11, 3, 96), 5.0, dtype=dtype)
    v_pool = torch.full((5, 9, 4, 88), 5.0, dtype=dtype)
    k_out, v_out = k_pool[1:, 2:9, 1:, 8:88], v_pool[:3, :7, ::2, :80]
    k, v = fused_kv_materialize(**call, k_out=k_out, v_out=v_out)
    assert k is k_out
    assert v is v_out
    assert_matches_reference(k, v, call)
    k_out.fill_(5.0)
    v_out.fill_(5.0)
    assert bool((k_pool == 5.0).all())
    assert bool((v_pool == 5.0).all())


@pytest.mark.parametrize("name", ["k_out", "v_out"])
def test_fused_kv__one_output_given(name: str) -> None:
    call = make_call()
    given = torch.empty(3, 7, 2, 80)
    k, v = fused_kv_materialize(**call | {name: given})
    assert (k is given) == (name == "k_out")
    assert (v is given) == (name == "v_out")
    assert_matches_reference(k, v, call)


def test_fused_kv__no_tokens_gives_two_different_empty_tensors() -> None:
    call = make_call(torch.bfloat16, total_ctx=0)
    call["kv"] = call["kv"][..., :1]  # no later check runs, so the width may be anything
    k_out, v_out = torch.empty(2, 3, 0, 2, 80, dtype=torch.bfloat16).unbind(0)
    k, v = fused_kv_materialize(**call, k_out=k_out, v_out=v_out)
    assert len({id(tensor) for tensor in (k, v, k_out, v_out)}) == 4
    for tensor in (k, v):
        assert tensor.shape == (3, 0, 2, 80)
        assert (tensor.dtype, tensor.device) == (torch.bfloat16, call["kv"].device)


def test_fused_kv__one_token() -> None:
    call = make_call(total_ctx=1)
    assert_matches_reference(*fused_kv_materialize(**call), call)


def test_fused_kv__inputs_are_left_alone() -> None:
    call = make_call()
    before = {name: x.clone() for name, x in call.items() if isinstance(x, Tensor)}
    fused_kv_materialize(**call)
    assert all(torch.equal(call[name], x) for name, x in before.items())


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_fused_kv__compiles_to_one_graph(backend: str) -> None:
    torch.compiler.reset()
    call = make_call(head_dim=128, rotary_dim=64)
    expected = fused_kv_materialize(**call)
    compiled = torch.compile(fused_kv_materialize, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(**call), expected)

    k_out, v_out = torch.empty(2, 3, 7, 2, 200)[..., :128].unbind(0)
    k, v = compiled(**call, k_out=k_out, v_out=v_out)
    assert k is k_out
    assert v is v_out
    torch.testing.assert_close((k, v), expected)
