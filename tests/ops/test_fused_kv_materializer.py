"""`FusedKVMaterializer` on layers made of plain tensors: results, workspaces, what is refused."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import tensorpact as tp
from tensorpact.demo.reference import fused_kv_reference
from tensorpact.ops import FusedKVMaterializer

HEADS, HEAD_DIM, ROTARY_DIM, HIDDEN, Q_SIZE, LAYERS, MAX_POS = 2, 10, 6, 14, 50, 3, 31
KV_SIZE = HEADS * HEAD_DIM


class Rotary:
    """A rotary embedding with a cache of a fixed length."""

    is_neox_style = True

    def __init__(self, rows: int = MAX_POS, rotary_dim: int = ROTARY_DIM) -> None:
        self.rotary_dim = rotary_dim
        self.cos_sin_cache = self.table(rows)

    def table(self, rows: int) -> Tensor:
        frequencies = 0.5 ** torch.arange(self.rotary_dim // 2)
        angles = torch.arange(rows)[:, None] * frequencies
        return torch.cat((angles.cos(), angles.sin()), dim=-1)


class GrowingRotary(Rotary):
    """One whose cache grows on request, and that notes the requests."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.requests: list[int] = []

    def ensure_cos_sin_cache_length(self, max_position: int) -> None:
        self.requests.append(max_position)
        self.cos_sin_cache = self.table(max_position + 1)


def make_layer(index: int, rotary: Any, **changes: Any) -> Any:
    """A layer with weights and an eps of its own."""
    generator = torch.Generator().manual_seed(index)
    heads, head_dim = changes.get("num_kv_heads", HEADS), changes.get("head_dim", HEAD_DIM)
    rows = Q_SIZE + 2 * heads * head_dim
    attention = {
        "num_kv_heads": heads,
        "head_dim": head_dim,
        "q_size": Q_SIZE,
        "kv_size": heads * head_dim,
        "rotary_emb": rotary,
        "qkv_proj": SimpleNamespace(weight=torch.randn(rows, HIDDEN, generator=generator)),
        "k_norm": SimpleNamespace(
            weight=1.0 + 0.2 * torch.randn(head_dim, generator=generator),
            variance_epsilon=10.0 ** -(1 + index),
        ),
    }
    return SimpleNamespace(self_attn=SimpleNamespace(**attention | changes))


def make_layers(rotary: Any, dtype: torch.dtype = torch.float32) -> list[Any]:
    layers = [make_layer(index, rotary) for index in range(LAYERS)]
    for layer in layers:
        for part in (layer.self_attn.qkv_proj, layer.self_attn.k_norm):
            part.weight = part.weight.to(dtype)
    return layers


def make(
    rotary: Any = None, layers: list[Any] | None = None, **options: Any
) -> FusedKVMaterializer:
    rotary = Rotary() if rotary is None else rotary
    layers = make_layers(rotary) if layers is None else layers
    return FusedKVMaterializer(layers, rotary, HEADS, HEAD_DIM, "cpu", **options)


def make_hidden(total_ctx: int, seed: int = 9) -> Tensor:
    return torch.randn(total_ctx, HIDDEN, generator=torch.Generator().manual_seed(seed))


class Writer:
    """Keeps what it is called with: the layers in order, copies of K and V, their addresses."""

    def __init__(self) -> None:
        self.layers: list[int] = []
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.addresses: list[tuple[int, int]] = []

    def __call__(self, layer: int, k: Tensor, v: Tensor) -> None:
        self.layers.append(layer)
        self.keys.append(k.clone())
        self.values.append(v.clone())
        self.addresses.append((k.data_ptr(), v.data_ptr()))


def assert_matches_reference(
    written: Writer, layers: list[Any], rotary: Any, hidden: Tensor, positions: Tensor
) -> None:
    """The projections layer by layer, then the float64 definition of the op."""
    attentions = [layer.self_attn for layer in layers]
    projected = [hidden.double() @ a.qkv_proj.weight[Q_SIZE:].double().t() for a in attentions]
    k, v = fused_kv_reference(
        torch.stack(projected, dim=1),
        torch.stack([a.k_norm.weight for a in attentions]).double(),
        torch.tensor([a.k_norm.variance_epsilon for a in attentions], dtype=torch.float64),
        rotary.cos_sin_cache,
        positions.reshape(-1).long(),
        HEADS,
        HEAD_DIM,
        ROTARY_DIM,
    )
    assert written.layers == list(range(LAYERS))
    torch.testing.assert_close(torch.stack(written.keys).double(), k, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.stack(written.values).double(), v, atol=1e-4, rtol=1e-4)


# --- What is computed -----------------------------------------------------------------------------


@pytest.mark.parametrize("hint", [None, MAX_POS])
def test_materialize__writes_every_layer_once_in_order(hint: int | None) -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    hidden, positions = make_hidden(5), torch.tensor([30, 0, 7, 7, 12])
    written = Writer()
    result = make(rotary, layers, max_position_hint=hint).materialize(hidden, positions, written)
    assert result is None
    assert written.keys[0].shape == written.values[0].shape == (5, HEADS, HEAD_DIM)
    assert_matches_reference(written, layers, rotary, hidden, positions)


@pytest.mark.parametrize(
    "reshape",
    [
        lambda p: p[None],
        lambda p: p.view(2, 3),
        lambda p: p.view(3, 1, 2),
        lambda p: p.view(2, 3).t().contiguous().t(),
        lambda p: p.repeat_interleave(2)[::2],
    ],
    ids=["1xn", "2d", "3d", "transposed", "strided"],
)
def test_materialize__positions_of_any_shape(reshape: Callable[[Tensor], Tensor]) -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    hidden, positions = make_hidden(6), torch.tensor([30, 0, 7, 7, 12, 3])
    written = Writer()
    make(rotary, layers).materialize(hidden, reshape(positions), written)
    assert_matches_reference(written, layers, rotary, hidden, positions)


def test_materialize__one_position_expanded_over_all_tokens() -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    hidden, positions = make_hidden(6), torch.tensor(7).expand(6)
    written = Writer()
    make(rotary, layers).materialize(hidden, positions, written)
    assert_matches_reference(written, layers, rotary, hidden, positions)


def test_materialize__a_scalar_position_for_one_token() -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    hidden, positions = make_hidden(1), torch.tensor(7)
    written = Writer()
    make(rotary, layers).materialize(hidden, positions, written)
    assert_matches_reference(written, layers, rotary, hidden, positions)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    ],
    ids=str,
)
def test_materialize__positions_of_any_integer_dtype(dtype: torch.dtype) -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    hidden, positions = make_hidden(4), torch.tensor([30, 0, 7, 12]).to(dtype)
    written = Writer()
    make(rotary, layers).materialize(hidden, positions, written)
    assert_matches_reference(written, layers, rotary, hidden, positions)


@pytest.mark.parametrize("given", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_materialize__hidden_states_take_the_dtype_of_the_weights(given: torch.dtype) -> None:
    hidden, positions = make_hidden(5).to(given), torch.arange(5)
    materializer = make()
    converted, expected = Writer(), Writer()
    materializer.materialize(hidden, positions, converted)
    materializer.materialize(hidden.float(), positions, expected)
    assert converted.keys[0].dtype == torch.float32
    assert all(map(torch.equal, converted.keys, expected.keys))
    assert all(map(torch.equal, converted.values, expected.values))


def test_materialize__half_weights_give_half_results() -> None:
    rotary = Rotary()
    materializer = make(rotary, make_layers(rotary, torch.bfloat16))
    written = Writer()
    materializer.materialize(make_hidden(5), torch.arange(5), written)
    assert {x.dtype for x in written.keys + written.values} == {torch.bfloat16}


def test_materialize__strided_hidden_states() -> None:
    hidden, positions = make_hidden(5), torch.arange(5)
    wide = torch.full((10, HIDDEN + 3), float("nan"))
    wide[::2, 1 : HIDDEN + 1] = hidden
    materializer = make()
    strided, expected = Writer(), Writer()
    materializer.materialize(wide[::2, 1 : HIDDEN + 1], positions, strided)
    materializer.materialize(hidden, positions, expected)
    torch.testing.assert_close(strided.keys, expected.keys)
    torch.testing.assert_close(strided.values, expected.values)


def test_materialize__weights_are_copied() -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    materializer = make(rotary, layers)
    before, after = Writer(), Writer()
    materializer.materialize(make_hidden(5), torch.arange(5), before)
    for layer in layers:
        layer.self_attn.qkv_proj.weight.zero_()
        layer.self_attn.k_norm.weight.zero_()
    materializer.materialize(make_hidden(5), torch.arange(5), after)
    assert all(map(torch.equal, before.keys, after.keys))
    assert all(map(torch.equal, before.values, after.values))


def test_materialize__inputs_that_require_grad() -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    for layer in layers:
        for part in (layer.self_attn.qkv_proj, layer.self_attn.k_norm):
            part.weight = torch.nn.Parameter(part.weight)
    rotary.cos_sin_cache.requires_grad_()
    hidden = make_hidden(5).requires_grad_()
    grads: list[bool] = []

    def write_layer_kv(layer: int, k: Tensor, v: Tensor) -> None:
        grads.extend((k.requires_grad, v.requires_grad))

    make(rotary, layers).materialize(hidden * 2.0, torch.arange(5), write_layer_kv)
    assert grads == [False] * (2 * LAYERS)


@pytest.mark.parametrize("first", [True, False], ids=["inference-first", "normal-first"])
def test_materialize__inference_mode_and_normal_mode_in_turn(first: bool) -> None:
    materializer = make()
    written: list[Writer] = []
    for inference in (first, not first, first):
        written.append(Writer())
        with torch.inference_mode(inference):
            materializer.materialize(make_hidden(5), torch.arange(5), written[-1])
    for other in written[1:]:
        assert all(map(torch.equal, written[0].keys, other.keys))


# --- No tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "positions"),
    [
        (torch.empty(0, HIDDEN), torch.empty(0, dtype=torch.int64)),
        (torch.empty(0, HIDDEN), torch.arange(7)),
        (torch.empty(0, HIDDEN + 1), torch.tensor([-1, 10**9])),
        (torch.empty(0, 3, dtype=torch.float64), torch.ones(4, 2)),
    ],
    ids=["empty", "positions-left", "wrong-width", "wrong-everything"],
)
def test_materialize__no_tokens_returns_at_once(hidden: Tensor, positions: Tensor) -> None:
    rotary = GrowingRotary(rows=0)
    written = Writer()
    make(rotary).materialize(hidden, positions, written)
    assert written.layers == []
    assert rotary.requests == []


# --- Workspaces -----------------------------------------------------------------------------------


def test_workspace__steady_load_keeps_its_memory() -> None:
    materializer = make()
    addresses = []
    for total_ctx in (7, 7, 3, 1, 7):
        written = Writer()
        materializer.materialize(make_hidden(total_ctx), torch.arange(total_ctx), written)
        addresses.append(written.addresses)
    assert all(other == addresses[0] for other in addresses)


def test_workspace__steady_load_makes_no_tensor_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    materializer = make()
    materializer.materialize(make_hidden(7), torch.arange(7), Writer())

    def refuse(*args: Any, **kwargs: Any) -> None:
        pytest.fail("a steady load asked for memory")

    monkeypatch.setattr(Tensor, "new_empty", refuse)
    materializer.materialize(make_hidden(6), torch.arange(6), Writer())


def test_workspace__grows_by_doubling() -> None:
    materializer = make()
    capacities = []
    for total_ctx in (4, 5, 8, 9, 31, 32, 1):
        positions = torch.zeros(total_ctx, dtype=torch.int64)
        materializer.materialize(make_hidden(total_ctx), positions, Writer())
        capacities.append(materializer._workspace.capacity)
    assert capacities == [4, 8, 8, 16, 32, 32, 32]


def test_workspace__results_after_growth_and_after_a_smaller_call() -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    materializer = make(rotary, layers)
    for total_ctx in (2, 11, 5):
        hidden, positions = make_hidden(total_ctx, seed=total_ctx), torch.arange(total_ctx)
        written = Writer()
        materializer.materialize(hidden, positions, written)
        assert_matches_reference(written, layers, rotary, hidden, positions)


def test_workspace__survives_running_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    materializer = make(rotary, layers)
    materializer.materialize(make_hidden(2), torch.arange(2), Writer())
    new_empty = Tensor.new_empty
    shapes = []

    def out_of_memory(like: Tensor, *shape: Any) -> Tensor:
        shapes.append(shape)
        if len(shapes) == 2:  # room for the first of the three buffers only
            raise torch.OutOfMemoryError("no memory left")
        return new_empty(like, *shape)

    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "new_empty", out_of_memory)
        with pytest.raises(torch.OutOfMemoryError):
            materializer.materialize(make_hidden(9), torch.arange(9), Writer())
    hidden, positions, written = make_hidden(8), torch.arange(8), Writer()
    materializer.materialize(hidden, positions, written)
    assert_matches_reference(written, layers, rotary, hidden, positions)


# --- The RoPE cache -------------------------------------------------------------------------------


def test_rope_cache__with_a_hint_no_value_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    materializer = make(rotary, layers, max_position_hint=MAX_POS)
    hidden, positions, written = make_hidden(5), torch.tensor([30, 0, 7, 7, 12]), Writer()

    def refuse(*args: Any, **kwargs: Any) -> None:
        pytest.fail("a value was read")

    names = ("max", "amax", "min", "amin", "item", "tolist", "numpy", "cpu", "nonzero")
    conversions = ("__int__", "__float__", "__bool__", "__index__")
    with monkeypatch.context() as patch:
        for name in (*names, *conversions):
            patch.setattr(Tensor, name, refuse)
        materializer.materialize(hidden, positions, written)
    assert_matches_reference(written, layers, rotary, hidden, positions)


def test_rope_cache__grows_to_the_largest_position() -> None:
    rotary = GrowingRotary(rows=4)
    layers = make_layers(rotary)
    materializer = make(rotary, layers)
    hidden = make_hidden(3)
    for positions in (torch.tensor([1, 3, 0]), torch.tensor([2, 4, 90]), torch.tensor([90, 5, 6])):
        written = Writer()
        materializer.materialize(hidden, positions, written)
        assert_matches_reference(written, layers, rotary, hidden, positions)
    assert rotary.requests == [90]


def test_rope_cache__hint_grows_it_once_and_before_the_first_call() -> None:
    rotary = GrowingRotary(rows=4)
    materializer = make(rotary, max_position_hint=50)
    assert rotary.requests == [49]
    materializer.materialize(make_hidden(3), torch.tensor([0, 49, 3]), Writer())
    assert rotary.requests == [49]


def test_rope_cache__private_name_of_the_growth_method() -> None:
    rotary = Rotary(rows=4)
    requests: list[int] = []

    def grow(max_position: int) -> None:
        requests.append(max_position)
        rotary.cos_sin_cache = rotary.table(max_position + 1)

    rotary._ensure_cos_sin_cache_length = grow  # type: ignore[attr-defined]
    make(rotary).materialize(make_hidden(2), torch.tensor([0, 4]), Writer())
    assert requests == [4]


def test_rope_cache__too_short_names_both_numbers() -> None:
    materializer = make()
    written = Writer()
    with pytest.raises(RuntimeError) as caught:
        materializer.materialize(make_hidden(2), torch.tensor([0, MAX_POS]), written)
    assert str(caught.value) == (
        "The RoPE cache is too short for fused KV materialization: the largest position is 31, "
        "the cache has 31 rows."
    )
    assert written.layers == []
    # The last legal position.
    materializer.materialize(make_hidden(2), torch.tensor([0, MAX_POS - 1]), written)
    assert written.layers == [0, 1, 2]


def test_rope_cache__growth_that_falls_short() -> None:
    rotary = GrowingRotary(rows=4)
    rotary.table = lambda rows: Rotary.table(rotary, 4)  # type: ignore[method-assign]
    with pytest.raises(RuntimeError) as caught:
        make(rotary).materialize(make_hidden(2), torch.tensor([0, 9]), Writer())
    assert str(caught.value) == (
        "The RoPE cache is too short for fused KV materialization: the largest position is 9, "
        "the cache has 4 rows."
    )
    assert rotary.requests == [9]


def test_rope_cache__too_short_for_the_hint() -> None:
    make(max_position_hint=MAX_POS)
    with pytest.raises(RuntimeError) as caught:
        make(max_position_hint=MAX_POS + 1)
    assert str(caught.value) == (
        "The RoPE cache is too short for fused KV materialization: the largest position is 31, "
        "the cache has 31 rows."
    )


@pytest.mark.parametrize("width", [ROTARY_DIM // 2, ROTARY_DIM * 2])
def test_rope_cache__wrong_width_is_refused_before_anything_is_written(width: int) -> None:
    rotary = Rotary()
    materializer = make(rotary)
    rotary.cos_sin_cache = torch.ones(MAX_POS, width)
    written = Writer()
    with pytest.raises(tp.ContractError) as caught:
        materializer.materialize(make_hidden(5), torch.arange(5), written)
    assert str(caught.value) == (
        "The cos/sin cache of fused KV materialization has the wrong shape: "
        f"got (31, {width}), expected [max_pos, 6]."
    )
    assert written.layers == []


@pytest.mark.parametrize("hint", [None, MAX_POS])
def test_rope_cache__negative_position_writes_nothing(hint: int | None) -> None:
    written = Writer()
    with pytest.raises((IndexError, RuntimeError)):
        make(max_position_hint=hint).materialize(make_hidden(2), torch.tensor([3, -1]), written)
    assert written.layers == []


# --- What a call refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positions", "count"),
    [(torch.arange(4), 4), (torch.arange(6), 6), (torch.arange(6).view(3, 2), 6), ([], 0)],
    ids=["short", "long", "flattened", "none"],
)
def test_materialize__positions_of_another_count(positions: Any, count: int) -> None:
    positions = torch.as_tensor(positions, dtype=torch.int64)
    written = Writer()
    with pytest.raises(tp.ContractError) as caught:
        make().materialize(make_hidden(5), positions, written)
    assert str(caught.value) == (
        "positions must match ctx_hidden token count for fused KV materialization: "
        f"positions={count}, total_ctx=5."
    )
    assert written.layers == []


@pytest.mark.parametrize(
    "hidden",
    [torch.ones(5, HIDDEN - 1), torch.ones(5, HIDDEN + 1), torch.ones(5, 1, HIDDEN), torch.ones(5)],
    ids=["narrow", "wide", "3d", "1d"],
)
def test_materialize__hidden_states_of_another_shape(hidden: Tensor) -> None:
    written = Writer()
    with pytest.raises(tp.ContractError) as caught:
        make().materialize(hidden, torch.arange(5), written)
    assert str(caught.value) == (
        "The hidden states of fused KV materialization have the wrong shape: "
        f"got {tuple(hidden.shape)}, expected [total_ctx, 14]."
    )
    assert written.layers == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "ctx_hidden",
            torch.ones(5, HIDDEN, dtype=torch.int32),
            "`ctx_hidden` of fused KV materialization must have dtype Float: got dtype int32.",
        ),
        (
            "positions",
            torch.ones(5),
            "`positions` of fused KV materialization must have dtype Integer: got dtype float32.",
        ),
    ],
)
def test_materialize__wrong_dtypes(name: str, value: Tensor, message: str) -> None:
    written = Writer()
    call: dict[str, Any] = {
        "ctx_hidden": make_hidden(5),
        "positions": torch.arange(5),
        "write_layer_kv": written,
    }
    with pytest.raises(tp.ContractError) as caught:
        make().materialize(**call | {name: value})
    assert str(caught.value) == message
    assert written.layers == []


@pytest.mark.parametrize("callback", [None, 3, "write"])
def test_materialize__callback_that_cannot_be_called(callback: Any) -> None:
    with pytest.raises(TypeError) as caught:
        make().materialize(make_hidden(5), torch.arange(5), callback)
    assert isinstance(caught.value, tp.ContractError)
    message = str(caught.value)
    assert message.startswith("`write_layer_kv` must be ")
    assert "Callable[[int, torch.Tensor, torch.Tensor], Any]: got " in message


def test_materialize__an_error_of_the_callback_is_passed_on() -> None:
    class PoolFullError(Exception):
        """Raised by the client."""

    def write_layer_kv(layer: int, k: Tensor, v: Tensor) -> None:
        if layer == 1:
            raise PoolFullError

    with pytest.raises(PoolFullError):
        make().materialize(make_hidden(5), torch.arange(5), write_layer_kv)


# --- What the constructor refuses -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_kv_heads": 4}, "num_kv_heads: layer 1 has 4, expected 2."),
        ({"head_dim": 12}, "head_dim: layer 1 has 12, expected 10."),
        ({"kv_size": 10}, "kv_size: layer 1 has 10, expected 20."),
        (
            {"rotary_emb": Rotary(rotary_dim=4)},
            "RoPE settings (rotary_dim, neox-style): layer 1 has (4, True), expected (6, True).",
        ),
        (
            {"rotary_emb": SimpleNamespace(rotary_dim=6, is_neox_style=False)},
            "RoPE settings (rotary_dim, neox-style): layer 1 has (6, False), expected (6, True).",
        ),
        (
            {"rotary_emb": SimpleNamespace()},
            "RoPE settings (rotary_dim, neox-style): layer 1 has (10, True), expected (6, True).",
        ),
    ],
    ids=["heads", "head-dim", "kv-size", "rotary-dim", "pairs", "defaults"],
)
def test_init__layers_that_differ(changes: dict[str, Any], message: str) -> None:
    rotary = Rotary()
    layers = [make_layer(0, rotary), make_layer(1, rotary, **changes), make_layer(2, rotary)]
    with pytest.raises(ValueError, match="must share") as caught:
        make(rotary, layers)
    assert str(caught.value) == (
        f"The layers of fused KV materialization must share their {message}"
    )


def test_init__first_layer_that_differs_from_the_arguments() -> None:
    rotary = Rotary()
    with pytest.raises(ValueError, match="must share") as caught:
        FusedKVMaterializer(make_layers(rotary), rotary, HEADS + 1, HEAD_DIM, "cpu")
    assert str(caught.value) == (
        "The layers of fused KV materialization must share their num_kv_heads: "
        "layer 0 has 2, expected 3."
    )


@pytest.mark.parametrize(
    ("part", "shape", "message"),
    [
        ("qkv_proj", (89, 14), "qkv_proj.weight: got shape (89, 14), expected (90, 14)."),
        ("qkv_proj", (91, 14), "qkv_proj.weight: got shape (91, 14), expected (90, 14)."),
        ("qkv_proj", (90, 15), "qkv_proj.weight: got shape (90, 15), expected (90, 14)."),
        ("k_norm", (20,), "k_norm.weight: got shape (20,), expected (10,)."),
        ("k_norm", (2, 10), "k_norm.weight: got shape (2, 10), expected (10,)."),
    ],
)
def test_init__weights_of_another_shape(part: str, shape: tuple[int, ...], message: str) -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    getattr(layers[2].self_attn, part).weight = torch.ones(shape)
    with pytest.raises(ValueError, match="Layer 2") as caught:
        make(rotary, layers)
    assert str(caught.value) == f"Layer 2 of fused KV materialization has a wrong {message}"


def test_init__projection_with_a_bias() -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    layers[1].self_attn.qkv_proj.bias = None
    make(rotary, layers)
    layers[1].self_attn.qkv_proj.bias = torch.zeros(Q_SIZE + 2 * KV_SIZE)
    with pytest.raises(NotImplementedError) as caught:
        make(rotary, layers)
    assert str(caught.value) == (
        "Fused KV materialization projects without a bias: qkv_proj of layer 1 has one."
    )


def test_init__rope_of_neighbouring_channels() -> None:
    rotary = Rotary()
    rotary.is_neox_style = False
    with pytest.raises(NotImplementedError) as caught:
        make(rotary)
    assert str(caught.value) == (
        "Fused KV materialization rotates the two halves of a head against each other "
        "(neox-style RoPE) only."
    )


@pytest.mark.parametrize("rotary_dim", [0, 5, HEAD_DIM + 2])
def test_init__rotary_dim_that_does_not_fit(rotary_dim: int) -> None:
    rotary = Rotary()
    rotary.rotary_dim = rotary_dim
    with pytest.raises(ValueError, match="rotary/head dim") as caught:
        make(rotary, [make_layer(0, rotary)])
    assert str(caught.value) == (
        f"Invalid fused KV rotary/head dim pair: rotary_dim={rotary_dim}, head_dim=10."
    )


def test_init__no_layers() -> None:
    with pytest.raises(ValueError, match="at least one layer") as caught:
        make(Rotary(), [])
    assert str(caught.value) == "Fused KV materialization needs at least one layer: got none."


# --- On a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("weights_on", ["cuda", "cpu"])
@pytest.mark.parametrize("inputs_on", ["cuda", "cpu"])
def test_materialize__moves_its_inputs(weights_on: str, inputs_on: str) -> None:
    rotary = Rotary()
    layers = make_layers(rotary)
    materializer = FusedKVMaterializer(layers, rotary, HEADS, HEAD_DIM, weights_on)
    hidden, positions = make_hidden(5), torch.tensor([30, 0, 7, 7, 12])
    written = Writer()
    materializer.materialize(hidden.to(inputs_on), positions.to(inputs_on), written)
    assert {x.device.type for x in written.keys + written.values} == {weights_on}
    written.keys = [k.cpu() for k in written.keys]
    written.values = [v.cpu() for v in written.values]
    assert_matches_reference(written, layers, rotary, hidden, positions)


@pytest.mark.gpu
def test_materialize__on_the_host_waits_for_hidden_states_that_the_gpu_still_computes() -> None:
    rotary = Rotary()
    materializer = make(rotary, max_position_hint=MAX_POS)
    positions = torch.arange(5)
    square = torch.randn(4096, 4096, device="cuda") / 64.0
    written, expected = Writer(), Writer()
    busy = square
    for _ in range(20):
        busy = busy @ square
    hidden = busy[:5, :HIDDEN].contiguous()
    materializer.materialize(hidden, positions, written)
    torch.cuda.synchronize()
    materializer.materialize(hidden.cpu(), positions, expected)
    assert all(map(torch.equal, written.keys, expected.keys))
    assert all(map(torch.equal, written.values, expected.values))


@pytest.mark.gpu
def test_materialize__with_a_hint_nothing_waits_for_the_gpu() -> None:
    rotary = Rotary()
    rotary.cos_sin_cache = rotary.cos_sin_cache.cuda()
    materializer = FusedKVMaterializer(
        make_layers(rotary), rotary, HEADS, HEAD_DIM, "cuda", max_position_hint=MAX_POS
    )
    hidden, positions = make_hidden(5).cuda(), torch.arange(5, device="cuda", dtype=torch.int32)

    def write_layer_kv(layer: int, k: Tensor, v: Tensor) -> None:
        """Keep nothing."""

    materializer.materialize(hidden, positions, write_layer_kv)  # compiles and warms up
    torch.cuda.set_sync_debug_mode("error")
    try:
        materializer.materialize(hidden, positions, write_layer_kv)
    finally:
        torch.cuda.set_sync_debug_mode("default")
