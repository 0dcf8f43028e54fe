"""Where dims get their values: in any order of the parameters, and each with a source."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.contracts.checker.examination import examine
from tensorpact.contracts.language.binding import FromAxis, FromLet, FromParameter, FromSolving
from tensorpact.contracts.language.contract import build_contract, contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.example import draw_example


def _packed(
    qkv: Float[Tensor, "batch 2*H*K+HV*V"],
    state: Float[Tensor, "slots HV V K"],
    cache: Float[Tensor, "slots H L K"] | None,
    pos: Int32[Tensor, "batch"],
    L: int,
): ...


def _optional(
    x: Float[Tensor, "n"] | None,
    y: Float[Tensor, "n+m"],
    z: Float[Tensor, "m #n"],
    w: Float[Tensor, "k"] | Float[Tensor, "k 2"],
): ...


def _reordered(function, order):
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
    ]

    def op(): ...

    op.__signature__ = signature.replace(parameters=[parameters[i] for i in order])
    op.__annotations__ = {
        p.name: function.__annotations__[p.name] for p in op.__signature__.parameters.values()
    }
    return build_contract(op, names=globals())


@pytest.mark.parametrize("function", [_packed, _optional])
def test_plan_bindings__does_not_depend_on_the_order_of_the_parameters(function):
    original = build_contract(function, names=globals())
    count = len(original.parameters)
    for order in itertools.islice(itertools.permutations(range(count)), 24):
        permuted = _reordered(function, order)
        for seed in range(6):
            call = draw_example(original, seed)
            bound = examine(original, call).dims
            assert examine(permuted, call).dims == bound
            enforce(permuted, lambda **call: None, check_result=False)(**call)


def test_plan_bindings__remembers_each_source():
    @contract(let={"kv_size": "heads * 4"})
    def op(x: Float[Tensor, "2*kv_size+n m"], heads: int): ...

    sources = {binding.name: type(binding.sources[0]) for binding in op.bindings}
    assert sources == {"heads": FromParameter, "kv_size": FromLet, "m": FromAxis, "n": FromSolving}


@pytest.mark.parametrize(
    ("dims", "missing"),
    [("n*n", "n"), ("n//2", "n"), ("n+m", "n"), ("n-n", "n"), ("0*n", "n"), ("min(n,2)", "n")],
)
def test_plan_bindings__refuses_what_cannot_be_solved(dims, missing):
    def op(x): ...

    op.__annotations__ = {"x": Float[Tensor, dims]}
    with pytest.raises(ContractDefinitionError) as caught:
        contract()(op)
    assert caught.value.problem == (
        f"nothing binds the dim `{missing}`: no axis, int parameter or `let` gives it a value, and "
        "it cannot be solved for."
    )


# The cases from the field, 1 to 9


def _guarded(function, result=None, **clauses):
    built = contract(**clauses)(function)
    return enforce(built, result or (lambda *args, **kwargs: None), check_result=result is not None)


def _refusal(function, *arguments):
    with pytest.raises(ContractError) as caught:
        function(*arguments)
    return caught.value


def test_case_1__an_expression_may_come_before_its_name():
    def op(a: Float[Tensor, "T+1"], b: Float[Tensor, "T"]): ...

    function = _guarded(op)
    function(torch.zeros(3), torch.zeros(2))
    assert _refusal(function, torch.zeros(3), torch.zeros(3)).argument == "a"


def test_case_2__the_message_says_what_was_expected_and_from_where():
    def op(kv: Float[Tensor, "ctx 2*kv_size"], k: Float[Tensor, "kv_size"]): ...

    error = _refusal(_guarded(op), torch.zeros(16, 16), torch.zeros(7))
    assert error.argument == "kv"
    assert "14" in error.expected
    assert "axis 0 of `k`" in error.violations[0].origin


def test_case_3__a_misspelt_dim_fails_at_decoration():
    with pytest.raises(ContractDefinitionError) as caught:

        @contract()
        def op(kv: Float[Tensor, "ctx 2*kv_sze"], k: Float[Tensor, "kv_size"]): ...

    assert caught.value.hint == "Did you mean `kv_size`?"


def test_case_4__results_are_held_to_the_contract():
    def op(x: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d//2"]: ...

    assert _guarded(op, lambda x: x[:, :3])(torch.zeros(4, 6)).shape == (4, 3)
    assert _refusal(_guarded(op, lambda x: x), torch.zeros(4, 6)).violations[0].facet == "dims"


def test_case_5__a_dim_may_be_free_per_item():
    def op(feats: list[Float[Tensor, "B C ?N"]]): ...

    function = _guarded(op)
    function([torch.zeros(2, 3, 4), torch.zeros(2, 3, 5)])
    for _ in range(20):
        error = _refusal(function, [torch.zeros(2, 3, 4), torch.zeros(2, 4, 5)])
        assert error.argument == "feats[1]"


def test_case_6__bounds_and_divisibility():
    def op(x: Float[Tensor, "m d"]): ...

    function = _guarded(op, where=["m >= 2", "d % 8 == 0"])
    function(torch.zeros(2, 16))
    assert _refusal(function, torch.zeros(1, 16)).argument == "m >= 2"
    assert _refusal(function, torch.zeros(2, 15)).argument == "d % 8 == 0"


def test_case_7__a_default_gives_a_dim():
    def op(n: int, head_dim: int = 16) -> Float[Tensor, "n head_dim"]: ...

    good = _guarded(op, lambda n, head_dim: torch.zeros(n, head_dim))
    assert good(3).shape == (3, 16)
    _refusal(_guarded(op, lambda n, head_dim: torch.zeros(n, 8)), 3)


def test_case_8__methods_static_methods_and_nested_functions():
    class Layer:
        @contract()
        def declared(self, x: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...

        run = enforce(declared, lambda self, x: x, check_result=True)

        @staticmethod
        def declared_static(x: Float[Tensor, "n"] | None = None): ...

        run_static = staticmethod(_guarded(declared_static, lambda x=None: x))

    layer = Layer()
    assert inspect.ismethod(layer.run)
    assert layer.run(torch.zeros(2)).shape == (2,)
    assert Layer.run_static() is None
    assert _refusal(layer.run, torch.zeros(2, 2)).violations[0].facet == "rank"


def test_case_9__an_annotation_that_cannot_be_resolved_fails_at_decoration():
    def op(x: Missing[Tensor, "n"]): ...

    with pytest.raises(ContractDefinitionError):
        contract()(op)
