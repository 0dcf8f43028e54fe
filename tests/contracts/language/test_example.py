"""Drawn calls: valid by construction, different by seed, and honest where they cannot be made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
import torch
from jaxtyping import BFloat16, Bool, Complex, Float, Float32, Int, Int32, Int64, Shaped, UInt8
from torch import Tensor

from tensorpact.contracts import fused_kv, kda_packed, kda_replayssm
from tensorpact.contracts.checker.diagnosis import diagnose
from tensorpact.contracts.checker.enforcement import ALL_TIERS, enforce
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.example import NoExampleError, draw_example
from tensorpact.contracts.language.facets import (
    Contiguous,
    IndexInto,
    InRange,
    Mutated,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.rows import predicate, relation

SEEDS = range(60)


@contract(where=["d % 128 == 0", "head_dim <= 256", "HV % H == 0", "power_of_two(p)", "q >= p + 3"])
def divisible(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "h head_dim"],
    z: Int[Tensor, "HV H"],
    p: int,
    q: int = 3,
): ...


@contract(where=["n == h*d + 1"])
def equation(x: Float[Tensor, "n d"], y: Float[Tensor, "h"]): ...


@contract()
def computed(a: Float[Tensor, "T+1"], b: Float[Tensor, "T"], c: Float[Tensor, "T-1 cdiv(T,2)"]): ...


@contract(where=["x is not None or y is not None"])
def one_of_two(x: Float[Tensor, "n"] | None = None, y: Float[Tensor, "n 2"] | None = None): ...


@contract()
def lists(feats: list[Float[Tensor, "B C ?N"]], w: Float[Tensor, "C"]): ...


@contract()
def variadic(
    x: Float[Tensor, "*batch n"],
    y: Float[Tensor, "*#batch m"],
    z: Float[Tensor, "#n 3"],
    *rest: Float[Tensor, "n"],
): ...


@contract()
def spliced(
    x: Float[Tensor, "{shape} n"],
    shape: tuple[int, ...],
    pair: tuple[Float[Tensor, "n"], Int[Tensor, "k"]],
): ...


@contract()
def values(
    x: Annotated[Float[Tensor, "a b c"], Strides("_ c 1")],
    idx: Annotated[Int64[Tensor, "k"], IndexInto("a", padding=-1, unique=True)],
    u: Annotated[Int32[Tensor, "m"], IndexInto("b", unique=True)],
    r: Annotated[Float[Tensor, "b"], InRange(0, "c")],
    mode: Literal["x", "y"] = "x",
): ...


@contract()
def union(
    x: Float32[Tensor, "n d"] | Int32[Tensor, "n d"] | Float[Tensor, "d n"] | Float[Tensor, "n"],
    y: Float[Tensor, "n"],
    z: Float[Tensor, "d"],
): ...


@contract(where=["x.dtype == y.dtype", "x.stride(0) >= d"])
def dtypes(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "d"],
    v: Annotated[Float[Tensor, "n"], SameDtype("w")],
    w: BFloat16[Tensor, "n"],
): ...


@contract(
    where=["e < 0.001", "e > 0", "w == 'fast'", "n < 40", relation("m == n", when="m > 1")],
    let={"k": "n*2", "j": "k+1"},
    early_return="n == 2",
    zero={"n": "nothing"},
)
def scalars(
    x: Float[Tensor, "j"],
    y: Float[Tensor, "n #k m"],
    e: float,
    b: bool,
    w: str = "fast",
): ...


@contract()
def kinds(
    n: int | None,
    x: Shaped[Tensor, "n d"],
    t: Tensor,
    k: UInt8[Tensor, ""],
    b: Bool[Tensor, "#q"],
    c: Complex[Tensor, "#q"],
    i: Float[Tensor, "d"] | int,
    p: Annotated[Float[torch.nn.Parameter, "d"], Mutated()],
    o: Annotated[Float[Tensor, "_ ..."] | None, Contiguous()] = None,
): ...


CONTRACTS = [
    divisible,
    equation,
    computed,
    one_of_two,
    lists,
    variadic,
    spliced,
    values,
    union,
    dtypes,
    scalars,
    kinds,
    fused_kv.fused_kv_materialize,
    kda_packed.kda_packed_decode,
    kda_replayssm.kda_replayssm_decode,
]
every_contract = pytest.mark.parametrize("drawn", CONTRACTS, ids=lambda drawn: drawn.name)


def _call(function, example):
    named = dict(example)
    rest = named.pop("rest", None)
    return function(**named) if rest is None else function(*named.values(), *rest)


@every_contract
def test_draw_example__passes_the_guard_and_every_check_of_debug_mode(drawn):
    function = enforce(drawn, lambda *args, **kwargs: None, check_result=False)
    for seed in SEEDS:
        example = draw_example(drawn, seed)
        assert list(example) == [parameter.name for parameter in drawn.parameters]
        _call(function, example)
        violations, _ = diagnose(drawn, example, tiers=ALL_TIERS)
        assert violations == ()


def _plain(value):
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.dtype, str(value.tolist()))
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


@every_contract
def test_draw_example__depends_on_its_seed_alone(drawn):
    first = _plain(list(draw_example(drawn, 7).values()))
    torch.manual_seed(99)
    random.seed(99)
    states = torch.get_rng_state(), random.getstate()
    assert _plain(list(draw_example(drawn, 7).values())) == first
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert any(_plain(list(draw_example(drawn, seed).values())) != first for seed in range(8, 12))


def test_draw_example__gives_free_dims_distinct_sizes():
    @contract(where=["d == e", "HV % H == 0"])
    def op(x: Float[Tensor, "a b c d e f g"], y: Float[Tensor, "H HV"]): ...

    for seed in SEEDS:
        example = draw_example(op, seed)
        a, b, c, d, e, f, g = example["x"].shape
        assert d == e
        assert len({a, b, c, d, f, g, *example["y"].shape}) == 8
        assert max(a, b, c, d, f, g) < 20


def test_draw_example__takes_given_sizes():
    example = draw_example(fused_kv.fused_kv_materialize, 0, sizes={"head_dim": 64, "n_layers": 1})
    assert example["head_dim"] == 64
    assert example["k_norm_weight"].shape == (1, 64)
    example = draw_example(fused_kv.fused_kv_materialize, 0, sizes={"kv_size": 12})
    assert example["num_kv_heads"] * example["head_dim"] == 12


def test_draw_example__varies_presence_dtypes_and_layouts():
    drawn = [draw_example(kda_replayssm.kda_replayssm_decode, seed) for seed in SEEDS]
    assert {example["force_flush"] is None for example in drawn} == {True, False}
    assert {example["a"].ndim for example in drawn} == {2, 3}
    assert {example["b"].dtype for example in drawn} == {
        torch.float32,
        torch.bfloat16,
        torch.float16,
    }
    assert {example["initial_state"].is_contiguous() for example in drawn} == {True, False}


def test_draw_example__makes_other_devices():
    example = draw_example(kda_packed.kda_packed_decode, 0, device="meta")
    assert example["out"].device.type == "meta"


def _opaque_type(x: Float[Tensor, "n"], f: Callable[[], int]): ...
def _instance(self: Any, x: Float[Tensor, "n {self.width}"]): ...
def _predicate(x: Float[Tensor, "n"]): ...
def _plain_op(x: Float[Tensor, "n d"], mode: Literal["a", "b"]): ...
def _two(x: Float[Tensor, "n d"]): ...


@pytest.mark.parametrize(
    ("function", "where", "sizes", "message"),
    [
        (
            _opaque_type,
            [],
            {},
            (
                "parameter `f` has no default, and a value of "
                "`collections.abc.Callable[[], int]` cannot be made up."
            ),
        ),
        (
            _plain_op,
            [],
            {},
            (
                "parameter `mode` has no default, and a value of "
                "`Literal['a', 'b']` cannot be made up."
            ),
        ),
        (_instance, [], {}, "an instance is needed, since `self.width` is read."),
        (
            _predicate,
            [predicate(lambda n: n > 10**6, "n is huge")],
            {},
            (
                "the predicate 'n is huge' refuses the drawn call. It is opaque: a draw cannot "
                "look inside it and fit the dims to it; fix some with `sizes`."
            ),
        ),
        (
            _two,
            ["n > 3", "n % 2 == 1 and n % 2 == 0"],
            {},
            "nothing satisfies 'n % 2 == 1 and n % 2 == 0'.",
        ),
        (_two, ["n * n == 2"], {}, "nothing satisfies 'n * n == 2'."),
        (
            _two,
            ["n > d", "d > n"],
            {},
            "nothing that was tried satisfies 'n > d' beside the other relations.",
        ),
        (_two, ["n > 3"], {"n": 2}, "nothing satisfies 'n > 3' with sizes {'n': 2}."),
        (_two, [], {"m": 2}, "unknown dim `m`. Known here: `d`, `n`."),
        (_two, [], {"n": -2}, "size -2 of `n` is no whole number from 0 up."),
    ],
)
def test_draw_example__says_why_there_is_none(function, where, sizes, message):
    drawn = contract(where=where)(function)
    with pytest.raises(NoExampleError) as caught:
        draw_example(drawn, 0, sizes=sizes)
    assert str(caught.value) == f"no example of `{function.__name__}`: {message}"
    assert isinstance(caught.value, ValueError)
