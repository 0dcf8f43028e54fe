"""`FusedKVMaterializer` against the K and V that transformers' own attention puts into its cache.

The models are made from configs with random weights; nothing is downloaded.

What the library (5.24) does about partial rotary embeddings:

- Qwen3 takes its default RoPE over the whole head and does not look at `partial_rotary_factor`.
  With a scaled RoPE type that honours the factor (linear, yarn) its `inv_freq` is short, and its
  own attention fails, because its `apply_rotary_pos_emb` multiplies the whole head by cos and sin.
  Only the proportional type works: it keeps the full width and sets the last frequencies to zero,
  so these channels are rotated by no angle at all.
- GLM-4 MoE and Qwen3-Next rotate the first `partial_rotary_factor` of each head (half against half)
  and pass the rest on. GLM-4 MoE norms K with Qwen3's RMSNorm; Qwen3-Next's multiplies by
  `1 + weight`, and its query projection is twice as wide, for the gate.

So Qwen3 is covered with full RoPE (default, yarn with its attention scaling, proportional), and the
other two with partial RoPE. In a real model each layer sees hidden states of its own; here all
attention modules get the same ones, as in a draft model whose layers share the context features.
"""

import copy
import inspect
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("transformers")

from transformers import DynamicCache
from transformers.models.glm4_moe import Glm4MoeConfig
from transformers.models.glm4_moe import modeling_glm4_moe as glm4_moe
from transformers.models.qwen3 import Qwen3Config
from transformers.models.qwen3 import modeling_qwen3 as qwen3
from transformers.models.qwen3_next import Qwen3NextConfig
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next

from tensorpact.ops.transformers_adapter import RotaryTable, materializer_from_attention

pytestmark = pytest.mark.integration

N_LAYERS, HIDDEN, Q_HEADS, KV_HEADS, HEAD_DIM = 4, 40, 9, 3, 24
SLOTS = 32
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1.5e-2}
# (atol, rtol) of V, which is one matrix product. In float32 the order of the sum over `hidden`
# depends on the shape of the product (one layer's V alone, or K and V of all layers), and with it
# the last bits. In bfloat16 such a difference rarely crosses a rounding boundary; it is one unit in
# the last place if it does.
V_TOLERANCE = {torch.float32: (2e-6, 2e-6), torch.bfloat16: (2e-6, 2.0**-7)}

DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
PROPORTIONAL = {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
# Name: module of the library, class prefix, config, RoPE parameters, rotary_dim.
MODELS: dict[str, tuple[Any, str, Any, dict[str, Any], int]] = {
    "qwen3": (qwen3, "Qwen3", Qwen3Config, DEFAULT, 24),
    "qwen3-yarn": (qwen3, "Qwen3", Qwen3Config, YARN, 24),
    "qwen3-proportional": (qwen3, "Qwen3", Qwen3Config, PROPORTIONAL, 24),
    "glm4-moe-partial": (
        glm4_moe,
        "Glm4Moe",
        Glm4MoeConfig,
        DEFAULT | {"partial_rotary_factor": 0.5},
        12,
    ),
    "qwen3-next-partial": (
        qwen3_next,
        "Qwen3Next",
        Qwen3NextConfig,
        DEFAULT | {"partial_rotary_factor": 0.25},
        6,
    ),
}


def make_model(name: str, dtype: torch.dtype, **options: Any) -> tuple[Any, list[Any]]:
    """The rotary embedding and attention modules of a model; each layer has weights of its own."""
    library, prefix, config_class, rope, _ = MODELS[name]
    config = config_class(
        vocab_size=32,
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=Q_HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=256,
        rope_parameters=dict(rope),
        attn_implementation="eager",
        **{"use_qk_norm": True} if prefix == "Glm4Moe" else {},
        **options,
    )
    generator = torch.Generator().manual_seed(7)
    attentions = []
    for index in range(N_LAYERS):
        attention = getattr(library, f"{prefix}Attention")(config, index)
        for parameter in attention.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 2:  # a matrix that keeps the scale of the hidden states
                parameter.data = HIDDEN**-0.5 * noise
            else:  # norms multiply by about 0.6, so that K has the size that atol is meant for
                parameter.data += 0.2 * noise - 0.4
        # An epsilon of its own for each layer, large enough to matter.
        epsilon = "variance_epsilon" if hasattr(attention.k_norm, "variance_epsilon") else "eps"
        setattr(attention.k_norm, epsilon, 10.0 ** -(1 + index))
        attentions.append(attention.to(dtype).eval())
    # Not cast: the library loads its models with frequencies in float32 too.
    return getattr(library, f"{prefix}RotaryEmbedding")(config), attentions


def run_library(
    modules: list[Any], rotary_emb: Any, hidden: Tensor, positions: Tensor, cache: Any
) -> None:
    """Run each attention (or decoder layer) on the same hidden states `[tokens, HIDDEN]`."""
    embeddings = rotary_emb(hidden[None], positions)
    for module in modules:
        # Renamed within the 5.x series.
        names = inspect.signature(module.forward).parameters
        kwargs = {"cache" if "cache" in names else "past_key_values": cache}
        with torch.no_grad():
            module(
                hidden_states=hidden[None],
                position_embeddings=embeddings,
                attention_mask=None,
                **kwargs,
            )


class Pool:
    """A paged KV cache: what `write_layer_kv` of a serving engine writes into."""

    def __init__(self, dtype: torch.dtype) -> None:
        shape = (N_LAYERS, SLOTS, KV_HEADS, HEAD_DIM)
        self.keys = torch.full(shape, float("nan"), dtype=dtype)
        self.values = torch.full(shape, float("nan"), dtype=dtype)
        self.writes = 0

    def writer(self, slots: Tensor) -> Callable[[int, Tensor, Tensor], None]:
        def write_layer_kv(layer: int, k: Tensor, v: Tensor) -> None:
            self.keys[layer, slots] = k
            self.values[layer, slots] = v
            self.writes += 1

        return write_layer_kv


def stacked(cache: Any, what: str) -> Tensor:
    """Keys or values of a `DynamicCache` as `[layers, tokens, heads, head_dim]`."""
    per_layer = [getattr(layer, what)[0].transpose(0, 1) for layer in cache.layers]
    return torch.stack(per_layer)


def assert_same_values(actual: Tensor, expected: Tensor) -> None:
    atol, rtol = V_TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_attention__cache_holds_the_same_keys_and_values(name: str, dtype: torch.dtype) -> None:
    rotary_emb, attentions = make_model(name, dtype)
    materializer = materializer_from_attention(attentions, rotary_emb)
    assert materializer.rotary_dim == MODELS[name][-1]

    cache, pool = DynamicCache(), Pool(dtype)
    generator = torch.Generator().manual_seed(8)
    # Positions with gaps and out of order; then more tokens, further on than any row so far.
    first = torch.tensor([[3, 0, 17, 4, 60]])
    second = torch.tensor([[61, 65, 64, 129, 130, 131, 255, 200, 140, 2, 90]])
    slots = torch.randperm(SLOTS, generator=generator)[: first.numel() + second.numel()]
    start = 0
    for positions in (first, second):
        count = positions.numel()
        hidden = torch.randn(count, HIDDEN, generator=generator).to(dtype)
        run_library(attentions, rotary_emb, hidden, positions, cache)
        write_layer_kv = pool.writer(slots[start : start + count])
        materializer.materialize(hidden, positions, write_layer_kv)
        start += count

    expected_k, expected_v = stacked(cache, "keys"), stacked(cache, "values")
    assert expected_k.shape == (N_LAYERS, start, KV_HEADS, HEAD_DIM)
    assert pool.writes == 2 * N_LAYERS
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(pool.keys[:, slots], expected_k, atol=tolerance, rtol=tolerance)
    assert_same_values(pool.values[:, slots], expected_v)
    untouched = torch.ones(SLOTS, dtype=torch.bool)
    untouched[slots] = False
    assert bool(pool.keys[:, untouched].isnan().all())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_attention__values_are_equal_where_sums_are_exact(name: str, dtype: torch.dtype) -> None:
    rotary_emb, attentions = make_model(name, dtype)
    generator = torch.Generator().manual_seed(12)
    for attention in attentions:
        # Small whole numbers: every partial sum is exact in float32, in whatever order.
        weight = attention.v_proj.weight
        weight.data = torch.randint(-3, 4, weight.shape, generator=generator).to(dtype)
    hidden = torch.randint(-3, 4, (5, HIDDEN), generator=generator).to(dtype)
    positions = torch.tensor([[3, 0, 17, 4, 60]])
    cache, pool = DynamicCache(), Pool(dtype)
    run_library(attentions, rotary_emb, hidden, positions, cache)
    materializer = materializer_from_attention(attentions, rotary_emb)
    materializer.materialize(hidden, positions, pool.writer(torch.arange(5)))
    assert torch.equal(pool.values[:, :5], stacked(cache, "values"))


@pytest.mark.parametrize("name", MODELS)
def test_attention__bfloat16_keys_are_closer_to_float64_than_the_library(name: str) -> None:
    rotary_emb, attentions = make_model(name, torch.bfloat16)
    hidden = torch.randn(11, HIDDEN, generator=torch.Generator().manual_seed(9)).bfloat16()
    positions = torch.tensor([[61, 65, 64, 129, 130, 131, 255, 200, 140, 2, 90]])
    library, exact, pool = DynamicCache(), DynamicCache(), Pool(torch.bfloat16)
    run_library(attentions, rotary_emb, hidden, positions, library)
    doubled = [copy.deepcopy(attention).double() for attention in attentions]
    run_library(doubled, rotary_emb, hidden.double(), positions, exact)
    materializer = materializer_from_attention(attentions, rotary_emb)
    materializer.materialize(hidden, positions, pool.writer(torch.arange(11)))

    truth = stacked(exact, "keys")
    ours = (pool.keys[:, :11].double() - truth).abs()
    theirs = (stacked(library, "keys").double() - truth).abs()
    assert float(ours.mean()) < float(theirs.mean())
    assert float(ours.max()) <= float(theirs.max())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_qwen3__decoder_layers(dtype: torch.dtype) -> None:
    rotary_emb, attentions = make_model("qwen3", dtype)
    layers = [
        qwen3.Qwen3DecoderLayer(attention.config, attention.layer_idx).to(dtype).eval()
        for attention in attentions
    ]
    # One norm for all, so that the attentions of all layers see the same hidden states.
    norm = 1.0 + 0.2 * torch.randn(HIDDEN, generator=torch.Generator().manual_seed(10))
    for layer, attention in zip(layers, attentions, strict=True):
        layer.self_attn = attention
        layer.input_layernorm.weight.data = norm.to(dtype)
    residual = torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(11)).to(dtype)
    positions = torch.tensor([[3, 0, 17, 4, 60]])
    cache, pool = DynamicCache(), Pool(dtype)
    run_library(layers, rotary_emb, residual, positions, cache)

    ctx_hidden = layers[0].input_layernorm(residual)  # an activation that still carries a gradient
    materializer = materializer_from_attention(
        [layer.self_attn for layer in layers], rotary_emb, max_position_hint=61
    )
    materializer.materialize(ctx_hidden, positions, pool.writer(torch.arange(5)))
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        pool.keys[:, :5], stacked(cache, "keys"), atol=tolerance, rtol=tolerance
    )
    assert_same_values(pool.values[:, :5], stacked(cache, "values"))
    assert not pool.keys.requires_grad


def test_qwen3__positions_one_short_write_nothing() -> None:
    rotary_emb, attentions = make_model("qwen3", torch.float32)
    materializer = materializer_from_attention(attentions, rotary_emb)
    pool = Pool(torch.float32)
    hidden = torch.randn(5, HIDDEN)
    with pytest.raises(ValueError, match="positions must match") as caught:
        materializer.materialize(hidden, torch.arange(4)[None], pool.writer(torch.arange(5)))
    assert str(caught.value) == (
        "positions must match ctx_hidden token count for fused KV materialization: "
        "positions=4, total_ctx=5."
    )
    assert pool.writes == 0
    assert bool(pool.keys.isnan().all())
    assert bool(pool.values.isnan().all())
    # The last legal count.
    materializer.materialize(hidden, torch.arange(5)[None], pool.writer(torch.arange(5)))
    assert pool.writes == N_LAYERS


def test_qwen3__layers_with_other_head_counts() -> None:
    rotary_emb, attentions = make_model("qwen3", torch.float32)
    config = copy.deepcopy(attentions[0].config)
    config.num_key_value_heads = 1
    attentions[2] = qwen3.Qwen3Attention(config, 2)
    with pytest.raises(ValueError, match="num_kv_heads") as caught:
        materializer_from_attention(attentions, rotary_emb)
    assert str(caught.value) == (
        "The layers of fused KV materialization must share their num_kv_heads: "
        "layer 2 has 1, expected 3."
    )


def test_qwen3__attention_bias_is_refused() -> None:
    rotary_emb, attentions = make_model("qwen3", torch.float32, attention_bias=True)
    with pytest.raises(NotImplementedError) as caught:
        materializer_from_attention(attentions, rotary_emb)
    assert str(caught.value) == (
        "Fused KV materialization projects without a bias: k_proj has one."
    )


def test_qwen3__norm_of_v_is_refused() -> None:
    rotary_emb, attentions = make_model("qwen3", torch.float32)
    attentions[0].v_norm = qwen3.Qwen3RMSNorm(HEAD_DIM)
    with pytest.raises(NotImplementedError) as caught:
        materializer_from_attention(attentions, rotary_emb)
    assert str(caught.value) == (
        "Fused KV materialization copies V: this attention norms it (v_norm)."
    )


@pytest.mark.parametrize(
    ("norm", "described"),
    [
        (qwen3.Qwen3RMSNorm(KV_HEADS * HEAD_DIM), "Qwen3RMSNorm with a weight of shape (72,)"),
        (torch.nn.LayerNorm(HEAD_DIM), "LayerNorm with a weight of shape (24,)"),
    ],
    ids=["over-all-heads", "layer-norm"],
)
def test_qwen3__another_norm_of_k_is_refused(norm: torch.nn.Module, described: str) -> None:
    rotary_emb, attentions = make_model("qwen3", torch.float32)
    attentions[1].k_norm = norm
    with pytest.raises(NotImplementedError) as caught:
        materializer_from_attention(attentions, rotary_emb)
    assert str(caught.value) == (
        "Fused KV materialization needs a k_norm that is an RMSNorm over the channels of a head, "
        f"times its weight or 1 + weight: got {described}, head_dim=24."
    )


def test_qwen3__k_and_v_of_different_widths_are_refused() -> None:
    rotary_emb, attentions = make_model("qwen3", torch.float32)
    attentions[0].v_proj = torch.nn.Linear(HIDDEN, 48, bias=False)
    with pytest.raises(ValueError, match="K and V need") as caught:
        materializer_from_attention(attentions, rotary_emb)
    assert str(caught.value) == (
        "K and V need the same whole number of heads: got k_proj.weight of shape (72, 40), "
        "v_proj.weight of shape (48, 40), head_dim=24."
    )


def test_materializer_from_attention__no_modules() -> None:
    rotary_emb, _ = make_model("qwen3", torch.float32)
    with pytest.raises(ValueError, match="at least one layer"):
        materializer_from_attention([], rotary_emb)


def test_materializer_from_attention__neighbouring_channels() -> None:
    rotary_emb, attentions = make_model("qwen3", torch.float32)
    with pytest.raises(NotImplementedError, match="neox-style"):
        materializer_from_attention(attentions, rotary_emb, is_neox_style=False)


@pytest.mark.parametrize("name", MODELS)
def test_rotary_table__rows_are_the_library_s_cosines_and_sines(name: str) -> None:
    rotary_emb, _ = make_model(name, torch.float32)
    table = RotaryTable(rotary_emb)
    rotary_dim = MODELS[name][-1]
    assert (table.rotary_dim, table.cos_sin_cache.shape) == (rotary_dim, (0, rotary_dim))
    table.ensure_cos_sin_cache_length(255)
    cos, sin = rotary_emb(torch.empty(1), torch.arange(256)[None])
    half = rotary_dim // 2
    expected = torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)
    torch.testing.assert_close(table.cos_sin_cache, expected, atol=1e-6, rtol=1e-6)


def test_rotary_table__grows_on_request_only() -> None:
    rotary_emb, _ = make_model("qwen3", torch.float32)
    table = RotaryTable(rotary_emb)
    lengths = []
    for position in (0, 0, 9, 5, 10, 50, 50):
        table.ensure_cos_sin_cache_length(position)
        lengths.append(table.cos_sin_cache.shape[0])
    assert lengths == [1, 1, 10, 10, 20, 51, 51]


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", {"full_attention": "default"}])
def test_rotary_table__changing_frequencies_are_refused(rope_type: Any) -> None:
    rotary_emb = SimpleNamespace(
        rope_type=rope_type, inv_freq=torch.ones(12), attention_scaling=1.0
    )
    with pytest.raises(NotImplementedError) as caught:
        RotaryTable(rotary_emb)
    assert str(caught.value) == (
        "A table of cosines and sines needs frequencies that are the same for every sequence "
        f"length and layer: got rope_type={rope_type!r}."
    )
