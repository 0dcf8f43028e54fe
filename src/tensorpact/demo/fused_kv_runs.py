"""The fused KV family against its float64 reference."""

from __future__ import annotations

import torch
from torch import Tensor

from tensorpact.demo.cases import (
    Arguments,
    FusedKVSizes,
    LayerStore,
    fused_kv_call,
    materialize_call,
)
from tensorpact.demo.comparing import Closeness, Sameness
from tensorpact.demo.mistake import op_named
from tensorpact.demo.reference import fused_kv_reference
from tensorpact.demo.results import Check
from tensorpact.ops import fused_kv_materialize

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 1.5e-2, torch.float16: 1e-2}
_SAMPLE = 96
"""How many tokens the (slow) reference computes."""


def run_kernel(sizes: FusedKVSizes, device: str) -> tuple[Arguments, tuple[Check, ...]]:
    """Run `fused_kv_materialize` and compare; also returns the call."""
    call = fused_kv_call(sizes, device=device)
    keys, values = fused_kv_materialize(**call)
    tolerance = TOLERANCES[sizes.dtype]
    closeness = Closeness("K against float64", tolerance, tolerance)
    copied = Sameness("V is copied")
    tokens = _sample(sizes.tokens)
    inputs: Arguments = {
        name: value.cpu() if isinstance(value, Tensor) else value
        for name, value in call.items()
        if name not in ("k_out", "v_out")
    }
    inputs |= {name: inputs[name][tokens] for name in ("kv", "positions")}
    expected, _ = fused_kv_reference(**inputs)
    closeness.add(keys.cpu()[:, tokens], expected)
    last = call["kv"][:, :, sizes.kv_size :]
    copied.add(values, last.transpose(0, 1).unflatten(-1, (sizes.heads, sizes.head_dim)))
    same = Check("the outputs are the tensors passed", keys is call["k_out"])
    return call, (closeness.check(), copied.check(), same)


def run_materializer(sizes: FusedKVSizes, device: str) -> tuple[Arguments, tuple[Check, ...]]:
    """Run `FusedKVMaterializer.materialize` and compare; also returns the call."""
    call = materialize_call(sizes, device=device)
    op_named("FusedKVMaterializer.materialize")(**call)
    store: LayerStore = call["write_layer_kv"]
    owner = call["self"]
    tolerance = TOLERANCES[sizes.dtype]
    keys = Closeness("K against float64", tolerance, tolerance)
    values = Closeness("V against float64", tolerance, tolerance)
    tokens = _sample(sizes.tokens)
    hidden = call["ctx_hidden"].cpu()[tokens].double()
    projected = [
        hidden @ weight.double() for weight in owner.kv_weight.cpu().split(2 * sizes.kv_size, dim=1)
    ]
    expected_keys, expected_values = fused_kv_reference(
        torch.stack(projected, dim=1),
        owner.k_norm_weight.cpu(),
        owner.eps.cpu(),
        owner.rotary_emb.cos_sin_cache.cpu(),
        call["positions"].cpu()[tokens],
        sizes.heads,
        sizes.head_dim,
        sizes.rotary_dim,
    )
    for layer in range(len(store.layers)):
        keys.add(store.keys[layer].cpu()[tokens], expected_keys[layer])
        values.add(store.values[layer].cpu()[tokens], expected_values[layer])
    order = Check("every layer once, in order", store.layers == list(range(sizes.layers)))

    def drop(layer: int, keys: Tensor, values: Tensor) -> None:
        """Keep nothing, however often it is called."""

    return {**call, "write_layer_kv": drop}, (keys.check(), values.check(), order)


def _sample(count: int) -> Tensor:
    """Return up to `_SAMPLE` tokens, spread evenly, the first and the last among them."""
    return torch.linspace(0, count - 1, min(count, _SAMPLE)).round().long()
