"""`FusedKVMaterializer`: the K/V of all layers of a model from one set of hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tensorpact.contracts import fused_kv as contracts
from tensorpact.ops.entry import op
from tensorpact.ops.fused_kv import fused_kv_materialize


class RotaryEmbedding(Protocol):
    """What is read of a rotary embedding.

    Optional attributes: `rotary_dim` (default: the head dim), `is_neox_style` (default: True),
    and a method `_ensure_cos_sin_cache_length(max_position)` or
    `ensure_cos_sin_cache_length(max_position)` that grows the cache on request.
    """

    cos_sin_cache: Tensor
    """`[max_pos, rotary_dim]`, cosines in the first half, sines in the second."""


_GROWERS = ("_ensure_cos_sin_cache_length", "ensure_cos_sin_cache_length")


class FusedKVMaterializer:
    """Projects hidden states through the K and V weights of all layers in one matrix product.

    Args:
        layers: objects with `.self_attn`, which has `num_kv_heads`, `head_dim`, `q_size`,
            `kv_size`, `rotary_emb`, `qkv_proj.weight` `[q_size + 2*kv_size, hidden]`,
            `k_norm.weight` `[head_dim]` and `k_norm.variance_epsilon`. The weights are copied.
        rotary_emb: the rotary embedding whose cache is used; see `RotaryEmbedding`.
        num_kv_heads: heads of K and of V in every layer.
        head_dim: channels of a head in every layer.
        device: where the weights and workspaces are kept.
        max_position_hint: one more than the largest position that will come. With it no device
            value is read (no synchronisation); without it the largest position is read each call.

    Raises:
        ValueError: no layers, layers that differ in head count, head dim or RoPE settings, or
            weights of another shape than these.
        NotImplementedError: RoPE that pairs neighbouring channels (not neox-style), or a
            projection with a bias.
        RuntimeError: the RoPE cache is too short for `max_position_hint`.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        rotary_emb: Any,
        num_kv_heads: int,
        head_dim: int,
        device: torch.device | str,
        max_position_hint: int | None = None,
    ) -> None:
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.rotary_emb = rotary_emb
        self.device = torch.device(device)
        self.n_layers = len(layers)
        self.kv_size = num_kv_heads * head_dim
        self.rotary_dim, neox = _rope_settings(rotary_emb, head_dim)
        if not neox:
            raise NotImplementedError(
                "Fused KV materialization rotates the two halves of a head against each other "
                "(neox-style RoPE) only."
            )
        if self.rotary_dim <= 0 or self.rotary_dim > head_dim or self.rotary_dim % 2 != 0:
            raise ValueError(
                f"Invalid fused KV rotary/head dim pair: rotary_dim={self.rotary_dim}, "
                f"head_dim={head_dim}."
            )
        if not layers:
            raise ValueError("Fused KV materialization needs at least one layer: got none.")
        attentions = [layer.self_attn for layer in layers]
        for index, attention in enumerate(attentions):
            self._refuse_other_settings(index, attention)
        self.hidden_size = int(attentions[0].qkv_proj.weight.shape[-1])
        for index, attention in enumerate(attentions):
            self._refuse_other_weights(index, attention)
        self._stack_weights(attentions)
        self.device = self.kv_weight.device  # with its index, which "cuda" alone leaves open
        self.max_position_hint = max_position_hint
        self._workspace = _Workspace()
        if max_position_hint is not None:
            self._rope_cache(max(max_position_hint - 1, 0))

    @op(contracts.fused_kv_materializer_materialize)
    def materialize(
        self,
        ctx_hidden: Any,
        positions: Any,
        write_layer_kv: Any,
    ) -> None:
        """Compute K and V of every layer and hand them over, layer by layer in order.

        Args:
            ctx_hidden: `[total_ctx, hidden]`; moved and converted to the weights' device and dtype.
            positions: one position per token, of any shape with `total_ctx` elements.
            write_layer_kv: called as `write_layer_kv(layer, k, v)` with k and v
                `[total_ctx, num_kv_heads, head_dim]`. They are views of a workspace that the next
                call overwrites: copy what has to stay.

        With `total_ctx == 0` nothing is called.

        Raises:
            ContractError: a documented error of the contract; nothing has been written then.
            RuntimeError: the RoPE cache is too short for the largest position; names both.
        """
        total_ctx = ctx_hidden.shape[0]
        if total_ctx == 0:
            return
        # A copy to the host must be awaited: the data is read here, not by work queued behind it.
        non_blocking = self.device.type != "cpu"
        # int64 before the maximum, which torch lacks for the wider unsigned types.
        flat_positions = positions.reshape(-1).to(torch.int64)
        if self.max_position_hint is not None:
            largest = max(self.max_position_hint - 1, 0)
        else:
            largest = int(flat_positions.max())
        cos_sin_cache = self._rope_cache(largest)
        flat_positions = flat_positions.to(self.device, non_blocking=non_blocking).contiguous()
        hidden = ctx_hidden.to(self.device, self.kv_weight.dtype, non_blocking=non_blocking)

        projected, k_out, v_out = self._workspace.take(self, total_ctx)
        with torch.no_grad():
            torch.mm(hidden, self.kv_weight, out=projected)
        keys, values = fused_kv_materialize(
            projected.view(total_ctx, self.n_layers, 2 * self.kv_size),
            self.k_norm_weight,
            self.eps,
            cos_sin_cache,
            flat_positions,
            self.num_kv_heads,
            self.head_dim,
            self.rotary_dim,
            k_out,
            v_out,
        )
        for layer in range(self.n_layers):
            write_layer_kv(layer, keys[layer], values[layer])

    def _refuse_other_settings(self, index: int, attention: Any) -> None:
        wanted = {
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "kv_size": self.kv_size,
            "RoPE settings (rotary_dim, neox-style)": (self.rotary_dim, True),
        }
        given = {
            "num_kv_heads": int(attention.num_kv_heads),
            "head_dim": int(attention.head_dim),
            "kv_size": int(attention.kv_size),
            "RoPE settings (rotary_dim, neox-style)": _rope_settings(
                attention.rotary_emb, self.head_dim
            ),
        }
        for what, value in wanted.items():
            if given[what] != value:
                raise ValueError(
                    f"The layers of fused KV materialization must share their {what}: "
                    f"layer {index} has {given[what]}, expected {value}."
                )

    def _refuse_other_weights(self, index: int, attention: Any) -> None:
        if getattr(attention.qkv_proj, "bias", None) is not None:
            raise NotImplementedError(
                "Fused KV materialization projects without a bias: "
                f"qkv_proj of layer {index} has one."
            )
        rows = int(attention.q_size) + 2 * self.kv_size
        for name, weight, expected in (
            ("qkv_proj.weight", attention.qkv_proj.weight, (rows, self.hidden_size)),
            ("k_norm.weight", attention.k_norm.weight, (self.head_dim,)),
        ):
            if tuple(weight.shape) != expected:
                raise ValueError(
                    f"Layer {index} of fused KV materialization has a wrong {name}: "
                    f"got shape {tuple(weight.shape)}, expected {expected}."
                )

    def _stack_weights(self, attentions: Sequence[Any]) -> None:
        """Keep the K and V rows of all layers side by side, transposed for the product."""
        with torch.no_grad():
            rows = [
                attention.qkv_proj.weight[attention.q_size : attention.q_size + 2 * self.kv_size]
                for attention in attentions
            ]
            stacked = torch.cat(rows).to(self.device)
            self.kv_weight = stacked.t().contiguous()
            norms = [attention.k_norm.weight for attention in attentions]
            self.k_norm_weight = torch.stack(norms).to(self.device).contiguous()
        epsilons = [float(attention.k_norm.variance_epsilon) for attention in attentions]
        self.eps = torch.tensor(epsilons, dtype=torch.float32, device=self.device)

    def _rope_cache(self, largest: int) -> Tensor:
        """Return the cos/sin cache, grown by its owner if it is too short."""
        if largest >= self.rotary_emb.cos_sin_cache.shape[0]:
            for name in _GROWERS:
                grow: Callable[[int], object] | None = getattr(self.rotary_emb, name, None)
                if callable(grow):
                    grow(largest)
                    break
        cache: Tensor = self.rotary_emb.cos_sin_cache
        if largest >= cache.shape[0]:
            raise RuntimeError(
                "The RoPE cache is too short for fused KV materialization: the largest position "
                f"is {largest}, the cache has {cache.shape[0]} rows."
            )
        return cache.to(self.device)


class _Workspace:
    """Buffers that are kept between calls and grow by doubling."""

    def __init__(self) -> None:
        self.capacity = 0
        self.projected = self.keys = self.values = torch.empty(0)

    def take(self, owner: FusedKVMaterializer, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the buffers cut to a number of tokens."""
        if tokens > self.capacity:
            self._grow(owner, max(tokens, 2 * self.capacity))
        return self.projected[:tokens], self.keys[:, :tokens], self.values[:, :tokens]

    def _grow(self, owner: FusedKVMaterializer, capacity: int) -> None:
        # Nothing is kept of a growth that runs out of memory, so that a smaller call still works.
        self.capacity = 0
        self.projected = self.keys = self.values = torch.empty(0)
        like = owner.kv_weight
        shape = (owner.n_layers, capacity, owner.num_kv_heads, owner.head_dim)
        # A tensor made in inference mode could not be written outside of it by a later call.
        with torch.inference_mode(False):
            self.projected = like.new_empty(capacity, owner.n_layers * 2 * owner.kv_size)
            self.keys = like.new_empty(shape)
            self.values = like.new_empty(shape)
        self.capacity = capacity


def _rope_settings(rotary_emb: Any, head_dim: int) -> tuple[int, bool]:
    rotary_dim = int(getattr(rotary_emb, "rotary_dim", head_dim))
    return rotary_dim, bool(getattr(rotary_emb, "is_neox_style", True))
