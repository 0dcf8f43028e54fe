"""Calls of the three ops and their comparison with the float64 definitions, on any device."""

import os
from typing import Any

import torch
from torch import Tensor

from tensorpact.backends.triton.fused_kv import fused_kv_materialize
from tensorpact.backends.triton.kda_packed import kda_packed_decode
from tensorpact.backends.triton.kda_replayssm import kda_replayssm_decode
from tensorpact.demo.reference import (
    fused_kv_reference,
    kda_packed_reference,
    kda_replayssm_reference,
)

KV_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1.5e-2, torch.float16: 1e-2}
OUT_TOLERANCE: dict[torch.dtype, dict[str, Any]] = {
    torch.float32: {"atol": 1e-4, "rtol": 1e-3},
    torch.bfloat16: {"atol": 1e-3, "rtol": 1e-2},
    torch.float16: {"atol": 1e-3, "rtol": 1e-2},
}
if os.environ.get("TRITON_INTERPRET") == "1":
    # The interpreter cuts bfloat16 off where the hardware rounds: twice the error, and beta and
    # the results each have one.
    OUT_TOLERANCE[torch.bfloat16] = {"atol": 4e-3, "rtol": 4e-2}
STATE_TOLERANCE: dict[str, Any] = {"atol": 3e-3, "rtol": 1e-2}
GATE_TOLERANCE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-4}
CACHES = ("initial_state", "d_cache", "k_cache", "g_cache")


def on_cpu(call: dict[str, Any]) -> dict[str, Any]:
    """Copies of a call's tensors on the CPU."""
    return {n: x.cpu().clone() if isinstance(x, Tensor) else x for n, x in call.items()}


def bits(tensor: Tensor) -> Tensor:
    """The bit pattern, in which NaN equals itself and -0.0 differs from 0.0."""
    kind = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.cpu().clone(memory_format=torch.contiguous_format).view(kind)


def fused_call(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    total_ctx: int = 7,
    n_layers: int = 3,
    num_kv_heads: int = 2,
    head_dim: int = 80,
    rotary_dim: int = 80,
    max_pos: int = 31,
    seed: int = 0,
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    angles = torch.rand(max_pos, rotary_dim // 2, generator=generator) * 6.28
    call = {
        "kv": normal(total_ctx, n_layers, 2 * num_kv_heads * head_dim).to(dtype),
        "k_norm_weight": (1.0 + 0.2 * normal(n_layers, head_dim)).to(dtype),
        "eps": torch.tensor([10.0 ** -(1 + layer % 6) for layer in range(n_layers)]),
        "cos_sin_cache": torch.cat((angles.cos(), angles.sin()), dim=-1),
        "positions": torch.randint(0, max_pos, (total_ctx,), generator=generator),
    }
    sizes = {"num_kv_heads": num_kv_heads, "head_dim": head_dim, "rotary_dim": rotary_dim}
    return {name: x.to(device) for name, x in call.items()} | sizes


def check_fused(call: dict[str, Any], **outputs: Tensor) -> tuple[Tensor, Tensor]:
    expected_k, expected_v = fused_kv_reference(**on_cpu(call))
    k, v = fused_kv_materialize(**call, **outputs)
    tolerance = KV_TOLERANCE[call["kv"].dtype]
    torch.testing.assert_close(k.cpu().double(), expected_k, atol=tolerance, rtol=tolerance)
    assert torch.equal(bits(v), bits(expected_v))
    return k, v


def kda_call(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    state_dtype: torch.dtype = torch.float32,
    slots: tuple[int, ...] = (4, -1, 7, 0, 2),
    heads: int = 2,
    value_heads: int = 6,
    key_dim: int = 16,
    value_dim: int = 12,
    slot_count: int = 9,
    seed: int = 0,
) -> dict[str, Any]:
    """A call of the packed op; operands of padding rows are NaN, which must not be read."""
    generator = torch.Generator().manual_seed(seed)
    batch = len(slots)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    mixed_qkv = normal(batch, 2 * heads * key_dim + value_heads * value_dim)
    mixed_qkv[:, : 2 * heads * key_dim] *= key_dim**-0.5  # keys of about unit length
    mixed_qkv[torch.tensor(slots) < 0] = float("nan")
    call = {
        "mixed_qkv": mixed_qkv.to(dtype),
        "a": normal(batch, value_heads * key_dim).to(dtype),
        "b": normal(batch, value_heads).to(dtype),
        "A_log": 0.5 * normal(value_heads),
        "dt_bias": normal(value_heads * key_dim),
        "initial_state": normal(slot_count, value_heads, value_dim, key_dim).to(state_dtype),
        "out": torch.full((batch, 1, value_heads, value_dim), float("nan"), dtype=dtype),
        "ssm_state_indices": torch.tensor(slots, dtype=torch.int32),
    }
    return {name: x.to(device) for name, x in call.items()} | {"scale": key_dim**-0.5}


def check_packed(call: dict[str, Any]) -> None:
    before = on_cpu(call)
    expected_out, expected_state = kda_packed_reference(
        **{name: x for name, x in before.items() if name != "out"}
    )
    out, state = kda_packed_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]
    torch.testing.assert_close(out.cpu().double(), expected_out, **OUT_TOLERANCE[out.dtype])
    torch.testing.assert_close(state.cpu().double(), expected_state, **STATE_TOLERANCE)
    slots = before["ssm_state_indices"]
    assert bool((out[(slots < 0).to(out.device)] == 0).all())
    untouched = torch.ones(state.shape[0], dtype=torch.bool)
    untouched[slots[slots >= 0].long()] = False
    assert torch.equal(bits(state)[untouched], bits(before["initial_state"])[untouched])


def replay_call(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    state_dtype: torch.dtype = torch.float32,
    slots: tuple[int, ...] = (4, -1, 7, 0, 2),
    write_pos: tuple[int, ...] = (1, 2, 3, 0, 2),
    force_flush: tuple[int, ...] | None = None,
    ring: int = 4,
    heads: int = 2,
    value_heads: int = 6,
    key_dim: int = 16,
    value_dim: int = 12,
    slot_count: int = 9,
    seed: int = 0,
) -> dict[str, Any]:
    """A call of the replaying op; uncommitted ring entries are NaN, which must not be read."""
    call = kda_call(
        device, dtype, state_dtype, slots, heads, value_heads, key_dim, value_dim, slot_count, seed
    )
    generator = torch.Generator().manual_seed(seed + 1000)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    d_cache = normal(slot_count, value_heads, ring, value_dim).to(dtype)
    k_cache = (normal(slot_count, heads, ring, key_dim) * key_dim**-0.5).to(dtype)
    g_cache = -torch.rand(slot_count, value_heads, ring, key_dim, generator=generator)
    for slot, committed in zip(slots, write_pos, strict=True):
        if slot >= 0:
            for cache in (d_cache, k_cache, g_cache):
                cache[slot, :, committed:] = float("nan")
    more = {
        "d_cache": d_cache,
        "k_cache": k_cache,
        "g_cache": g_cache,
        "write_pos": torch.tensor(write_pos, dtype=torch.int32),
    }
    if force_flush is not None:
        more["force_flush"] = torch.tensor(force_flush, dtype=torch.int32)
    return call | {name: x.to(device) for name, x in more.items()}


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


def check_replay(call: dict[str, Any]) -> None:
    """Run the op and compare all that it writes, and all that it must not write."""
    before = on_cpu(call)
    expected = kda_replayssm_reference(**{n: x for n, x in before.items() if n != "out"})
    out, state = kda_replayssm_decode(**call)
    assert out is call["out"]
    assert state is call["initial_state"]
    torch.testing.assert_close(out.cpu().double(), expected.out, **OUT_TOLERANCE[out.dtype])
    assert bool((out[call["ssm_state_indices"] < 0] == 0).all())
    tolerances = {
        "initial_state": STATE_TOLERANCE,
        "d_cache": OUT_TOLERANCE[call["d_cache"].dtype],
        "k_cache": OUT_TOLERANCE[call["k_cache"].dtype],
        "g_cache": GATE_TOLERANCE,
    }
    for name, mask in written_masks(before).items():
        actual, wanted = call[name].cpu(), getattr(expected, name)
        torch.testing.assert_close(actual[mask].double(), wanted[mask], **tolerances[name])
        assert torch.equal(bits(actual)[~mask], bits(before[name])[~mask]), name
