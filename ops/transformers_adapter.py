"""Attention modules of Hugging Face `transformers` in the form that `FusedKVMaterializer` reads.

    materializer = materializer_from_attention(
        [layer.self_attn for layer in model.layers], model.rotary_emb
    )

The modules are read by their attributes and `transformers` itself is not imported. What a module
computes otherwise than the fused op does (a bias, a norm of V, a norm over all heads, RoPE
frequencies that depend on the sequence length) is refused, never passed over.

The library computes K from what the decoder layer's `input_layernorm` returns, so `ctx_hidden` has
to be normed already. It also rounds cosines and sines to the dtype of the hidden states, and every
step after them; the fused op computes in float32 and rounds once. In bfloat16 its K is therefore
the more exact one of the two, and differs from the library's in the last digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tensorpact.ops.fused_kv_materializer import FusedKVMaterializer


class RotaryTable:
    """The cosines and sines of a rotary embedding module as a table that grows on request.

    Args:
        rotary_emb: a module with `inv_freq` `[rotary_dim / 2]` and `attention_scaling`, the factor
            of all cosines and sines. Both are read at each growth.
        is_neox_style: whether the attention pairs the two halves of the rotated channels. The
            modules do not tell; say False for models that pair neighbouring channels, and
            `FusedKVMaterializer` refuses them.
        device: where the table is kept; where `inv_freq` is, by default.

    Attributes:
        cos_sin_cache: `[max_pos, rotary_dim]` float32, cosines in the first half, sines in the
            second. Empty until the first request.
        rotary_dim: leading channels of a head that are rotated; `head_dim` for full RoPE.
        is_neox_style: as given.

    Raises:
        NotImplementedError: frequencies that change with the sequence length (dynamic NTK,
            LongRoPE), or that differ between kinds of layers.

    Source: RoPE, Su et al. 2021.
    """

    cos_sin_cache: Tensor

    def __init__(
        self,
        rotary_emb: Any,
        *,
        is_neox_style: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        rope_type = getattr(rotary_emb, "rope_type", "default")
        if not isinstance(rope_type, str) or "dynamic" in rope_type or rope_type == "longrope":
            raise NotImplementedError(
                "A table of cosines and sines needs frequencies that are the same for every "
                f"sequence length and layer: got rope_type={rope_type!r}."
            )
        self.is_neox_style = is_neox_style
        self.rotary_dim = 2 * int(rotary_emb.inv_freq.shape[0])
        self._rotary_emb = rotary_emb
        self._device = rotary_emb.inv_freq.device if device is None else torch.device(device)
        self.cos_sin_cache = torch.empty(0, self.rotary_dim, device=self._device)

    def ensure_cos_sin_cache_length(self, max_position: int) -> None:
        """Make the table long enough for a position; its length doubles at least when it grows."""
        rows = self.cos_sin_cache.shape[0]
        if max_position < rows:
            return
        with torch.no_grad():
            inv_freq = self._rotary_emb.inv_freq.to(self._device, torch.float32)
            positions = torch.arange(max(max_position + 1, 2 * rows), device=self._device)
            angles = positions[:, None].float() * inv_freq
            cos_sin = torch.cat((angles.cos(), angles.sin()), dim=-1)
            self.cos_sin_cache = cos_sin * float(self._rotary_emb.attention_scaling)


@dataclass(frozen=True)
class PackedProjection:
    """The projections of one attention, stacked: `weight` `[q_size + 2*kv_size, hidden]`."""

    weight: Tensor


@dataclass(frozen=True)
class KeyNorm:
    """The RMSNorm of K: `weight` `[head_dim]` is the whole factor, also of a zero-centred norm."""

    weight: Tensor
    variance_epsilon: float


@dataclass(frozen=True)
class AttentionView:
    """One attention module under the names that `FusedKVMaterializer` reads."""

    num_kv_heads: int
    head_dim: int
    q_size: int
    kv_size: int
    rotary_emb: Any
    qkv_proj: PackedProjection
    k_norm: KeyNorm


@dataclass(frozen=True)
class LayerView:
    """A layer that holds nothing but its attention."""

    self_attn: AttentionView


def layer_from_attention(attention: Any, rotary_table: RotaryTable) -> LayerView:
    """Read one attention module; its weights are copied.

    Args:
        attention: a module with `q_proj`, `k_proj`, `v_proj` (`weight` `[out, hidden]`),
            `head_dim`, and `k_norm`, an RMSNorm over the channels of a head with `weight`
            `[head_dim]` and `variance_epsilon` or `eps`. The norm may multiply by `weight` (Qwen3,
            GLM-4 MoE) or by `1 + weight` (zero-centred: Qwen3-Next, Qwen3.5, Gemma); it is run on
            one vector to see which.
        rotary_table: the table of the model's rotary embedding.

    Raises:
        NotImplementedError: a bias of K or V, a norm of V, or a `k_norm` that is neither of the
            two.
        ValueError: `k_proj` has no whole number of heads, or `v_proj` has another shape.
    """
    k_proj, v_proj = attention.k_proj.weight, attention.v_proj.weight
    head_dim = int(attention.head_dim)
    # Of the weight, not of the config: under tensor parallelism a module holds its own heads only.
    kv_size = int(k_proj.shape[0])
    if kv_size % head_dim != 0 or v_proj.shape != k_proj.shape:
        raise ValueError(
            "K and V need the same whole number of heads: got k_proj.weight of shape "
            f"{tuple(k_proj.shape)}, v_proj.weight of shape {tuple(v_proj.shape)}, "
            f"head_dim={head_dim}."
        )
    for name in ("k_proj", "v_proj"):
        if getattr(getattr(attention, name), "bias", None) is not None:
            raise NotImplementedError(
                f"Fused KV materialization projects without a bias: {name} has one."
            )
    if getattr(attention, "v_norm", None) is not None:
        raise NotImplementedError(
            "Fused KV materialization copies V: this attention norms it (v_norm)."
        )
    with torch.no_grad():
        weight = torch.cat((attention.q_proj.weight, k_proj, v_proj))
        norm = _key_norm(attention.k_norm, head_dim)
    view = AttentionView(
        num_kv_heads=kv_size // head_dim,
        head_dim=head_dim,
        # All of its rows: a gated attention (Qwen3-Next) has twice as many as its queries need.
        q_size=int(attention.q_proj.weight.shape[0]),
        kv_size=kv_size,
        rotary_emb=rotary_table,
        qkv_proj=PackedProjection(weight),
        k_norm=norm,
    )
    return LayerView(view)


def materializer_from_attention(
    attentions: Sequence[Any],
    rotary_emb: Any,
    *,
    is_neox_style: bool = True,
    device: torch.device | str | None = None,
    max_position_hint: int | None = None,
) -> FusedKVMaterializer:
    """Make a materializer of the attention modules of a model.

    Args:
        attentions: the modules, in the order in which their K and V are to be written; see
            `layer_from_attention`.
        rotary_emb: the model's rotary embedding module; see `RotaryTable`.
        is_neox_style: see `RotaryTable`.
        device: where to compute; where the first module's weights are, by default.
        max_position_hint: one more than the largest position that will come, so that no device
            value has to be read; see `FusedKVMaterializer`.

    Raises:
        ValueError: no modules, or what `FusedKVMaterializer` and `layer_from_attention` refuse.
        NotImplementedError: as above.
    """
    if len(attentions) == 0:
        raise ValueError("Fused KV materialization needs at least one layer: got none.")
    where = attentions[0].k_proj.weight.device if device is None else torch.device(device)
    table = RotaryTable(rotary_emb, is_neox_style=is_neox_style, device=where)
    layers = [layer_from_attention(attention, table) for attention in attentions]
    first = layers[0].self_attn
    return FusedKVMaterializer(
        layers, table, first.num_kv_heads, first.head_dim, where, max_position_hint
    )


def _key_norm(norm: Any, head_dim: int) -> KeyNorm:
    """Find the factor by which a norm multiplies, in float32 where it is not the weight itself."""
    weight: Tensor = norm.weight
    epsilon = norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps
    if tuple(weight.shape) == (head_dim,):
        probe = torch.linspace(-1.0, 2.0, head_dim, device=weight.device)
        normed = probe * torch.rsqrt(probe.square().mean() + epsilon)
        result = norm(probe)
        for factor in (weight.detach().clone(), 1.0 + weight.float()):
            if torch.allclose(result.float(), normed * factor, rtol=1e-3, atol=1e-3):
                return KeyNorm(factor, float(epsilon))
    raise NotImplementedError(
        "Fused KV materialization needs a k_norm that is an RMSNorm over the channels of a head, "
        f"times its weight or 1 + weight: got {type(norm).__name__} with a weight of shape "
        f"{tuple(weight.shape)}, head_dim={head_dim}."
    )
