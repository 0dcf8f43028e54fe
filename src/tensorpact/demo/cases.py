"""Valid arguments for every op at given sizes, for the demo and for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tensorpact.ops import FusedKVMaterializer

Arguments = dict[str, Any]
"""The arguments of one call, by parameter name."""


@dataclass(frozen=True)
class FusedKVSizes:
    """Sizes of `fused_kv_materialize`, and of the model around it for the materializer."""

    tokens: int
    layers: int
    heads: int
    head_dim: int
    rotary_dim: int
    max_pos: int
    hidden: int
    dtype: torch.dtype = torch.bfloat16

    @property
    def kv_size(self) -> int:
        """Channels of K, and of V, of one layer."""
        return self.heads * self.head_dim


@dataclass(frozen=True)
class KdaSizes:
    """Sizes of the KDA decode ops, by the letters of their contracts."""

    batch: int
    H: int
    HV: int
    K: int
    V: int
    L: int
    slots: int
    dtype: torch.dtype = torch.bfloat16
    state_dtype: torch.dtype = torch.float32

    @property
    def width(self) -> int:
        """Values a row of `mixed_qkv` holds."""
        return 2 * self.H * self.K + self.HV * self.V


SMALL_FUSED_KV = FusedKVSizes(
    tokens=7, layers=3, heads=2, head_dim=16, rotary_dim=8, max_pos=40, hidden=24
)
SMALL_KDA = KdaSizes(batch=5, H=2, HV=6, K=16, V=12, L=4, slots=9)
"""Pairwise distinct, so that no two axes can be taken for each other."""


@dataclass
class RotaryEmbedding:
    """A rotary embedding as the materializer reads it."""

    rotary_dim: int
    cos_sin_cache: Tensor
    is_neox_style: bool = True


@dataclass
class Weight:
    """Whatever has a weight: a projection, or a norm with its epsilon."""

    weight: Tensor
    variance_epsilon: float = 1e-6


@dataclass
class Attention:
    """The attention of a layer as the materializer reads it."""

    num_kv_heads: int
    head_dim: int
    q_size: int
    kv_size: int
    rotary_emb: RotaryEmbedding
    qkv_proj: Weight
    k_norm: Weight


@dataclass
class Layer:
    """A layer as the materializer reads it."""

    self_attn: Attention


@dataclass
class LayerStore:
    """Keeps what `write_layer_kv` is given."""

    layers: list[int] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def __call__(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Keep a copy of one layer's K and V."""
        self.layers.append(layer)
        self.keys.append(keys.clone())
        self.values.append(values.clone())


class _Draw:
    """Seeded tensors on one device."""

    def __init__(self, device: str, seed: int) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1) -> Tensor:
        drawn = torch.randn(*shape, generator=self.generator, device=self.device)
        return (drawn * scale).to(dtype)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def below(self, limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=self.generator, device=self.device)

    def shuffled(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator, device=self.device)


def rope_cache(max_pos: int, rotary_dim: int, device: str = "cpu") -> Tensor:
    """Return the cosines, then the sines of every position: `[max_pos, rotary_dim]`, float32."""
    channels = torch.arange(rotary_dim // 2, dtype=torch.float64, device=device)
    frequencies = 1e6 ** (-channels / max(rotary_dim // 2, 1))
    angles = torch.arange(max_pos, dtype=torch.float64, device=device)[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()


def fused_kv_call(sizes: FusedKVSizes, *, device: str = "cpu", seed: int = 0) -> Arguments:
    """Return a valid call of `fused_kv_materialize` that fills outputs of the caller."""
    draw = _Draw(device, seed)
    output = (sizes.layers, sizes.tokens, sizes.heads, sizes.head_dim)
    return {
        "kv": draw.normal(sizes.tokens, sizes.layers, 2 * sizes.kv_size, dtype=sizes.dtype),
        "k_norm_weight": (1 + 0.2 * draw.normal(sizes.layers, sizes.head_dim)).to(sizes.dtype),
        "eps": torch.full((sizes.layers,), 1e-6, device=device),
        "cos_sin_cache": rope_cache(sizes.max_pos, sizes.rotary_dim, device),
        "positions": draw.below(sizes.max_pos, sizes.tokens),
        "num_kv_heads": sizes.heads,
        "head_dim": sizes.head_dim,
        "rotary_dim": sizes.rotary_dim,
        "k_out": torch.full(output, float("nan"), dtype=sizes.dtype, device=device),
        "v_out": torch.full(output, float("nan"), dtype=sizes.dtype, device=device),
    }


def materialize_call(sizes: FusedKVSizes, *, device: str = "cpu", seed: int = 0) -> Arguments:
    """Return a valid call of `FusedKVMaterializer.materialize`, `self` included.

    The query rows of the projections are NaN: nothing may read them.
    """
    draw = _Draw(device, seed)
    rotary = RotaryEmbedding(sizes.rotary_dim, rope_cache(sizes.max_pos, sizes.rotary_dim, device))
    layers = [Layer(_attention(sizes, draw, rotary)) for _ in range(sizes.layers)]
    materializer = FusedKVMaterializer(
        layers, rotary, sizes.heads, sizes.head_dim, device, max_position_hint=sizes.max_pos
    )
    return {
        "self": materializer,
        "ctx_hidden": draw.normal(sizes.tokens, sizes.hidden, dtype=sizes.dtype),
        "positions": draw.below(sizes.max_pos, sizes.tokens),
        "write_layer_kv": LayerStore(),
    }


def _attention(sizes: FusedKVSizes, draw: _Draw, rotary: RotaryEmbedding) -> Attention:
    q_size = 4 * sizes.kv_size
    projection = torch.full(
        (q_size + 2 * sizes.kv_size, sizes.hidden),
        float("nan"),
        dtype=sizes.dtype,
        device=draw.device,
    )
    projection[q_size:].normal_(std=sizes.hidden**-0.5, generator=draw.generator)
    norm = (1 + 0.2 * draw.normal(sizes.head_dim)).to(sizes.dtype)
    return Attention(
        sizes.heads,
        sizes.head_dim,
        q_size,
        sizes.kv_size,
        rotary,
        Weight(projection),
        Weight(norm),
    )


def kda_packed_call(sizes: KdaSizes, *, device: str = "cpu", seed: int = 0) -> Arguments:
    """Return a valid call of `kda_packed_decode`; row 1 is padding."""
    draw = _Draw(device, seed)
    slots = draw.shuffled(sizes.slots)[: sizes.batch].to(torch.int32)
    if sizes.batch > 2:
        slots[1] = -1
    out = (sizes.batch, 1, sizes.HV, sizes.V)
    return {
        **_token(sizes, draw),
        "A_log": draw.normal(sizes.HV, scale=0.5),
        "dt_bias": draw.normal(sizes.HV * sizes.K),
        "scale": sizes.K**-0.5,
        "initial_state": draw.normal(
            sizes.slots, sizes.HV, sizes.V, sizes.K, dtype=sizes.state_dtype
        ),
        "out": torch.full(out, float("nan"), dtype=sizes.dtype, device=device),
        "ssm_state_indices": slots,
        "use_qk_l2norm_in_kernel": True,
    }


def kda_replayssm_call(sizes: KdaSizes, *, device: str = "cpu", seed: int = 0) -> Arguments:
    """Return a valid call of `kda_replayssm_decode`; row 1 is padding.

    The cursors of the rows are spread over the ring. What lies behind them is NaN: nothing may
    read it.
    """
    draw = _Draw(device, seed + 1)
    rows = torch.arange(sizes.batch, device=device)
    call = kda_packed_call(sizes, device=device, seed=seed)
    gates = -draw.uniform(sizes.slots, sizes.HV, sizes.L, sizes.K)
    keys = draw.normal(sizes.slots, sizes.H, sizes.L, sizes.K, scale=sizes.K**-0.5)
    call |= {
        "d_cache": draw.normal(sizes.slots, sizes.HV, sizes.L, sizes.V, dtype=sizes.dtype),
        "k_cache": keys.to(sizes.dtype),
        "g_cache": gates,
        "write_pos": (rows % sizes.L).to(torch.int32),
        "force_flush": torch.zeros(sizes.batch, dtype=torch.int32, device=device),
    }
    for slot, cursor in zip(
        call["ssm_state_indices"].tolist(), call["write_pos"].tolist(), strict=True
    ):
        for cache in ("d_cache", "k_cache", "g_cache") if slot >= 0 else ():
            call[cache][slot, :, cursor:] = float("nan")
    return call


def next_token(call: Arguments, sizes: KdaSizes, *, seed: int) -> Arguments:
    """Return the same call of a KDA op with the inputs of another token."""
    device = str(call["mixed_qkv"].device)
    return {**call, **_token(sizes, _Draw(device, seed))}


def _token(sizes: KdaSizes, draw: _Draw) -> Arguments:
    return {
        "mixed_qkv": draw.normal(sizes.batch, sizes.width, dtype=sizes.dtype),
        "a": draw.normal(sizes.batch, sizes.HV * sizes.K, dtype=sizes.dtype),
        "b": draw.normal(sizes.batch, sizes.HV, dtype=sizes.dtype),
    }


MAKERS: dict[str, Callable[..., Arguments]] = {
    "fused_kv_materialize": fused_kv_call,
    "FusedKVMaterializer.materialize": materialize_call,
    "kda_packed_decode": kda_packed_call,
    "kda_replayssm_decode": kda_replayssm_call,
}
"""How a valid call of each op is made."""


def own_copy(tensor: Tensor) -> Tensor:
    """Copy a tensor into memory of its own, with the same strides."""
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return copy.copy_(tensor)


def own_arguments(call: Arguments) -> Arguments:
    """Copy all that a call could write into."""
    copies: Arguments = {}
    for name, value in call.items():
        if isinstance(value, Tensor):
            value = own_copy(value)
        elif isinstance(value, LayerStore):
            value = LayerStore()
        copies[name] = value
    return copies
