"""The calls that are validated: valid ones, and for each op a list of broken ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Arguments = dict[str, Any]

# Pairwise distinct, so that no two axes can stand in for one another; the cost does not depend on
# the sizes, because no check looks at an element.
B, H, HV, K, V, L, SLOTS = 5, 2, 6, 16, 32, 4, 9
TOKENS, LAYERS, HEADS, HEAD_DIM, ROTARY_DIM, MAX_POS = 7, 3, 2, 16, 8, 64


@dataclass(frozen=True)
class Subject:
    """One op, a valid call of it, and calls that its documentation or its contract forbids.

    `key` is the broken call that every checker of shapes has to reject. `variants` are further
    valid calls.
    """

    op: str
    title: str
    valid: Arguments
    key: str
    broken: Mapping[str, Arguments]
    variants: Mapping[str, Arguments]

    @property
    def tensors(self) -> int:
        return sum(isinstance(value, torch.Tensor) for value in self.valid.values())


def subjects(device: str) -> tuple[Subject, ...]:
    """Return the calls to measure."""
    with_outputs, without = fused_call(device, outputs=True), fused_call(device, outputs=False)
    return (
        replay_subject(device),
        _fused_subject("fused_kv_materialize, outputs given", with_outputs),
        _fused_subject("fused_kv_materialize, outputs allocated", without),
    )


def replay_call(device: str) -> Arguments:
    """Return a valid call of `kda_replayssm_decode` with every tensor given."""

    def real(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    def whole() -> torch.Tensor:
        return torch.zeros(B, dtype=torch.int32, device=device)

    return {
        "mixed_qkv": real(B, 2 * H * K + HV * V),
        "a": real(B, HV * K),
        "b": real(B, HV),
        "A_log": real(HV, dtype=torch.float32),
        "dt_bias": real(HV * K, dtype=torch.float32),
        "scale": 0.25,
        "initial_state": real(SLOTS, HV, V, K, dtype=torch.float32),
        "d_cache": real(SLOTS, HV, L, V),
        "k_cache": real(SLOTS, H, L, K),
        "g_cache": real(SLOTS, HV, L, K, dtype=torch.float32),
        "out": real(B, 1, HV, V),
        "ssm_state_indices": torch.arange(B, dtype=torch.int32, device=device),
        "write_pos": whole(),
        "force_flush": whole(),
        "use_qk_l2norm_in_kernel": True,
        "lower_bound": -5.0,
    }


def replay_subject(device: str) -> Subject:
    call = replay_call(device)
    wide = torch.zeros(B, 2 * HV * K, dtype=torch.bfloat16, device=device)
    pool = torch.zeros(2, SLOTS, HV, V, K, device=device)
    other_heads = call["mixed_qkv"].new_zeros(B, 2 * 4 * K + HV * V)
    broken: dict[str, Arguments] = {
        "write_pos of another batch": {"write_pos": call["write_pos"][:-1]},
        "write_pos in int64": {"write_pos": call["write_pos"].long()},
        "force_flush as a bool mask": {"force_flush": call["force_flush"].bool()},
        "a of stride 2": {"a": wide[:, ::2]},
        "a as [batch, K, HV]": {"a": call["a"].view(B, K, HV)},
        "b with a head too many": {"b": call["b"].new_zeros(B, HV + 1)},
        "out with heads and channels swapped": {"out": call["out"].new_zeros(B, 1, V, HV)},
        "k_cache with value heads": {"k_cache": call["k_cache"].new_zeros(SLOTS, HV, L, K)},
        "g_cache in bfloat16": {"g_cache": call["g_cache"].bfloat16()},
        "a ring of length 0": {
            name: call[name][:, :, :0] for name in ("d_cache", "k_cache", "g_cache")
        },
        "HV no multiple of H": {
            "mixed_qkv": other_heads,
            "k_cache": call["k_cache"].new_zeros(SLOTS, 4, L, K),
        },
        "a transposed state": {
            "initial_state": call["initial_state"].new_zeros(SLOTS, HV, K, V).transpose(2, 3)
        },
        "write_pos on another device": {"write_pos": call["write_pos"].to("meta")},
        "rings with fewer slots than the state": {"d_cache": call["d_cache"][:-1]},
        "slot indices in int64": {"ssm_state_indices": call["ssm_state_indices"].long()},
        "d_cache in int8": {"d_cache": call["d_cache"].to(torch.int8)},
        "a number as text": {"scale": "0.25"},
    }
    variants: dict[str, Arguments] = {
        "a as [batch, HV, K]": {"a": call["a"].view(B, HV, K)},
        "a page of a pool": {"initial_state": pool[1]},
        "no force_flush": {"force_flush": None},
    }
    return Subject(
        "kda_replayssm_decode",
        "kda_replayssm_decode",
        call,
        "write_pos of another batch",
        {name: call | change for name, change in broken.items()},
        {name: call | change for name, change in variants.items()},
    )


def fused_call(device: str, *, outputs: bool) -> Arguments:
    """Return a valid call of `fused_kv_materialize`."""

    def real(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return {
        "kv": real(TOKENS, LAYERS, 2 * HEADS * HEAD_DIM),
        "k_norm_weight": real(LAYERS, HEAD_DIM),
        "eps": real(LAYERS, dtype=torch.float32),
        "cos_sin_cache": real(MAX_POS, ROTARY_DIM, dtype=torch.float32),
        "positions": torch.arange(TOKENS, device=device),
        "num_kv_heads": HEADS,
        "head_dim": HEAD_DIM,
        "rotary_dim": ROTARY_DIM,
        "k_out": real(LAYERS, TOKENS, HEADS, HEAD_DIM) if outputs else None,
        "v_out": real(LAYERS, TOKENS, HEADS, HEAD_DIM) if outputs else None,
    }


def _fused_subject(title: str, call: Arguments) -> Subject:
    kv, cos_sin, out = call["kv"], call["cos_sin_cache"], call["k_out"]
    broken: dict[str, Arguments] = {
        "kv with another trailing dim": {"kv": kv.new_zeros(TOKENS, LAYERS, kv.shape[2] + 2)},
        "kv of one layer as a matrix": {"kv": kv[:, 0]},
        "an odd rotary_dim": {"rotary_dim": 7, "cos_sin_cache": cos_sin[:, :7].contiguous()},
        "k_norm_weight of fewer layers": {"k_norm_weight": call["k_norm_weight"][:-1]},
        "eps as a matrix": {"eps": call["eps"].view(1, LAYERS)},
        "cos_sin_cache twice as wide": {"cos_sin_cache": torch.cat((cos_sin, cos_sin), 1)},
        "positions a token too short": {"positions": call["positions"][:-1]},
        "positions as reals": {"positions": call["positions"].float()},
        "kv in int32": {"kv": kv.int()},
        "kv of stride 2": {"kv": torch.cat((kv, kv), 2)[:, :, ::2]},
        "eps on another device": {"eps": call["eps"].to("meta")},
        "a real number of heads": {"num_kv_heads": float(HEADS)},
    }
    if out is not None:
        broken |= {
            "k_out of another shape": {"k_out": out.new_zeros(LAYERS, TOKENS, HEAD_DIM, HEADS)},
            "v_out in another dtype": {"v_out": call["v_out"].float()},
            "one tensor for both outputs": {"v_out": out},
        }
    variants: dict[str, Arguments] = {
        "positions in int32": {"positions": call["positions"].int()},
        "no tokens": {
            "kv": kv[:0],
            "positions": call["positions"][:0],
            "k_out": None if out is None else out[:, :0],
            "v_out": None if out is None else call["v_out"][:, :0],
        },
    }
    return Subject(
        "fused_kv_materialize",
        title,
        call,
        "kv with another trailing dim",
        {name: call | change for name, change in broken.items()},
        {name: call | change for name, change in variants.items()},
    )


def positional(function: Callable[..., object], arguments: Arguments) -> tuple[Any, ...]:
    """Put arguments into the order in which a function takes them; what is not given is left out.

    jaxtyping and dltype bind dims in the order of the parameters, so their functions have another
    order than the op.
    """
    names = inspect.signature(function).parameters
    return tuple(arguments[name] for name in names if name in arguments)
