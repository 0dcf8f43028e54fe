"""Names that collide with Python, with the generated code or with each other shadow nothing."""

from __future__ import annotations

import builtins
import keyword
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.contracts.checker.names import Names
from tensorpact.contracts.language.contract import build_contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.facets import LastDimContiguous, Mutated, Strides
from tensorpact.contracts.language.rows import predicate

GENERATED = [
    "_body", "_invalid", "_invalid_result", "_debug_call", "_debug_call_async", "_switch",
    "_in_debug_mode", "_refused", "_device", "_result", "_result_0", "_predicate", "_default_x",
    "_front_door", "Refused", "Tensor", "Float_dtypes", "int32", "float32", "is_a",
    "is_whole_number", "is_real_number", "broadcast_sizes", "broadcasts_to", "visits_twice", "cdiv",
    "power_of_two", "x_shape", "x_strides", "x_item", "x_alternative", "x_item_shape", "x_0",
    "x_dim", "x_2", "self", "cls", "op", "guarded", "torch", "dim", "None_", "e", "__debug__x",
]  # fmt: skip
BUILTINS = [name for name in vars(builtins) if name.isidentifier() and name.islower()]
SOFT = [*keyword.softkwlist, "print", "exec", "async_", "_"]
NAMES = sorted({*GENERATED, *BUILTINS, *SOFT} - {*keyword.kwlist, "__debug__", "_"})
# In a dim string a name with an underscore in front stands for a size that is not checked.
DIM_NAMES = [name for name in NAMES if not name.startswith("_")]
F = torch.zeros


def build(source: str, **clauses: Any) -> Any:
    """Enforce a function given as source, whose parameter names are hostile."""
    namespace: dict[str, Any] = {
        "__name__": __name__, "Float": Float, "Int32": Int32, "T": Tensor, "Any": Any,
        "list_": list,
        "tuple_": tuple, "int_": int, "float_": float, "Annotated": Annotated, "Mutated": Mutated,
        "LastDimContiguous": LastDimContiguous, "Strides": Strides,
    }  # fmt: skip
    exec(source, namespace)
    function = next(value for value in namespace.values() if hasattr(value, "__code__"))
    return enforce(build_contract(function, names={}, **clauses), function, check_result=True)


@pytest.mark.parametrize("name", NAMES)
def test_names__of_a_tensor_parameter(name: str) -> None:
    op = build(
        f"def op({name}: Float[T, 'n m'] | Float[T, 'n m k'], other: Float[T, 'n'],"
        f" third: Annotated[Float[T, 'm'], Mutated(), LastDimContiguous()], size: float_ = 1.0)"
        f" -> Float[T, 'n']:\n    return {name}.flatten(1).sum(1) + other",
        where=["cdiv(n, 2) >= 1", "min(n, m) >= 1", f"{name}.ndim >= 2", "abs(n - m) < 9"],
    )
    assert op(F(2, 3), F(2), F(3)).shape == (2,)
    assert op(F(2, 1, 1), F(2), F(6)[:1]).shape == (2,)
    with pytest.raises(ContractError) as caught:
        op(F(2, 3), F(3), F(3))
    assert str(caught.value) == (
        f"`{name}` must have shape [n, m]: axis 0 must be 3, got 2 in shape (2, 3); n = 3 from "
        "axis 0 of `other`."
    )
    with pytest.raises(ContractError):
        op(F(2), F(2), F(3))


@pytest.mark.parametrize("name", DIM_NAMES)
def test_names__of_an_int_parameter(name: str) -> None:
    op = build(
        f"def op({name}: int_, x: Float[T, '{name} 2*{name}'], xs: list_[Float[T, '{name} ?m']],"
        f" pair: tuple_[Float[T, '{name}'], Int32[T, '{name}']]) -> Float[T, '{name}']:\n"
        f"    return x.sum(1)",
        where=[f"{name} >= 1", f"max({name}, 2) == 2"],
    )
    good = (F(2, 4), [F(2, 1)], (F(2), F(2).int()))
    assert op(2, *good).shape == (2,)
    with pytest.raises(ContractError, match="must be 1, got 2"):
        op(1, *good)


@pytest.mark.parametrize("name", DIM_NAMES)
def test_names__of_a_dim(name: str) -> None:
    op = build(
        f"def op(x: Float[T, '{name} m'], y: Float[T, '{name}*m+1'] | None,"
        f" *xs: Float[T, '{name}']) -> tuple_[Float[T, '{name}'], Float[T, 'm']]:\n"
        f"    return x.sum(1), x.sum(0)",
        let={"total": f"{name} * m"},
        where=[f"{name} % 2 == 0", "total >= 2", "power_of_two(m)"],
    )
    assert len(op(F(2, 4), F(9), F(2), F(2))) == 2
    assert len(op(F(2, 4), None)) == 2
    with pytest.raises(ContractError) as caught:
        op(F(2, 4), F(9), F(3))
    assert str(caught.value) == (
        f"`xs[0]` must have shape [{name}]: axis 0 must be 2, got 3 in shape (3,); {name} = 2 from "
        "axis 0 of `x`."
    )


@pytest.mark.parametrize("name", NAMES)
def test_names__of_the_function(name: str) -> None:
    op = build(
        f"def {name}(x: Float[T, 'n'], by: float_ = 2.0) -> Float[T, 'n']:\n    return x * by",
        where=["cdiv(n, 2) == 1"],
    )
    assert op.__name__ == name
    assert op(F(2)).shape == (2,)
    with pytest.raises(ContractError):
        op(F(2, 2))


@pytest.mark.parametrize("name", keyword.kwlist)
def test_names__a_dim_is_no_word_of_python(name: str) -> None:
    with pytest.raises(ContractDefinitionError):
        build(f"def op(x: Float[T, '{name} m']) -> None: ...")


def test_names__a_dim_may_be_called_like_a_tensor() -> None:
    op = build(
        "def op(x: Float[T, 'x n'], n: Float[T, 'n x_2'], x_2: Float[T, 'x_2 x_shape'],"
        " x_shape: Float[T, 'x_shape x'] | None = None) -> Float[T, 'x_shape']:\n"
        "    return x_2.sum(0)",
        where=["x + n == 5", "x.shape[0] * 2 == x + 2", "x_shape is None or x_shape.ndim == x"],
    )
    assert op(F(2, 3), F(3, 4), F(4, 5), F(5, 2)).shape == (5,)
    with pytest.raises(ContractError) as caught:
        op(F(2, 3), F(3, 4), F(4, 5), F(5, 3))
    assert str(caught.value) == (
        "`x_shape` must have shape [x_shape, x]: axis 1 must be 2, got 3 in shape (5, 3); x = 2 "
        "from axis 0 of `x`."
    )


def test_names__that_python_reads_as_one_are_one() -> None:
    op = build(
        "def op(x: Float[T, '\\N{LATIN SMALL LIGATURE FI} n'], y: Float[T, 'fi']) -> None: ..."
    )
    op(F(2, 3), F(2))
    with pytest.raises(ContractError, match="axis 0 must be 2, got 4"):
        op(F(2, 3), F(4))


def test_names__of_predicates_and_defaults() -> None:
    op = build(
        "def op(x: Float[T, 'n'], _body: int_ = 2, _default__body: Any = Mutated) -> Any:\n"
        "    return _default__body",
        where=[predicate(lambda _body, n: _body == n, "equal")],
    )
    assert op(F(2)) is Mutated
    with pytest.raises(ContractError, match="equal must hold"):
        op(F(3))


def test_spelling__is_unique_and_stable() -> None:
    names = Names(["x", "x_shape"])
    assert names.spell("shape", "x", "x_shape") == "x_shape_2"
    assert names.spell("shape", "x", "x_shape") == "x_shape_2"
    assert names.spell("dim", "x") == "x_2"
    assert names.spell("dim", "x_2") == "x_2_2"
    assert names.spell("dim", "class") == "class_2"
    assert names.new("x_2") == "x_2_3"
