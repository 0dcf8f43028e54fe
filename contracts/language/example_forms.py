"""In which form a parameter of a drawn call is passed, and what its plain values may be."""

from __future__ import annotations

import functools
import inspect
import random
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tensorpact.contracts.language.contract import RESERVED_PARAMETERS, Contract
from tensorpact.contracts.language.expression import Constant, Expression, walk
from tensorpact.contracts.language.parameters import Parameter, Scalar
from tensorpact.contracts.language.rows import Relation
from tensorpact.contracts.language.search import Domain


class NoExampleError(ValueError):
    """No valid call can be drawn from a contract; the text says what stands in the way."""


@dataclass(frozen=True)
class Form:
    """Tensors, sizes, a drawn scalar, or one certain value."""

    kind: Literal["tensors", "sizes", "scalar", "value"]
    scalar: Scalar = "int"
    value: Any = None

    @property
    def is_none(self) -> bool:
        """Whether None is passed."""
        return self.kind == "value" and self.value is None


def forms_of(parameter: Parameter, generator: random.Random) -> tuple[Form, ...]:
    """Return the forms a parameter may take, the drawn one first.

    Raises:
        NoExampleError: it has no default and its type cannot be made up.
    """
    default = Form("value", value=parameter.default)
    match parameter.kind:
        case inspect.Parameter.VAR_KEYWORD:
            return (Form("value", value={}),)
        case inspect.Parameter.VAR_POSITIONAL:
            return (Form("tensors") if parameter.slots else Form("value", value=()),)
    if parameter.has_default and parameter.name in RESERVED_PARAMETERS:
        return (default,)
    found = [Form("scalar", scalar) for scalar in parameter.scalars]
    if parameter.slots:
        found.append(Form("tensors"))
    if parameter.is_sizes:
        found.append(Form("sizes"))
    if parameter.optional or any(slot.optional and not slot.path for slot in parameter.slots):
        found.append(Form("value"))
    if not found and not parameter.has_default:
        if not any(hint in (Any, object) for hint in parameter.other_hints):
            raise NoExampleError(
                f"parameter `{parameter.name}` has no default, and a value of "
                f"{_hint_text(parameter.hint)} cannot be made up."
            )
        found.append(Form("value"))
    if parameter.has_default and (not found or parameter.is_sizes):
        found.append(default)
    generator.shuffle(found)
    if parameter.has_default and set(parameter.scalars) == {"str"} and not parameter.slots:
        # A made-up string would mean nothing; it is there for relations that ask for one.
        found = [default, *found]
    return tuple(found)


def _hint_text(hint: Any) -> str:
    return f"`{hint.__name__}`" if isinstance(hint, type) else f"`{hint}`".replace("typing.", "")


def scalar_domain(
    contract: Contract[..., Any],
    parameter: Parameter,
    scalar: Scalar,
    generator: random.Random,
) -> Domain:
    """Return what a scalar that is no size may be: its default first in half of the draws."""
    constants = contract_constants(contract)
    candidates: list[Any]
    match scalar:
        case "bool":
            candidates = [True, False]
        case "str":
            candidates = [value for value in constants if isinstance(value, str)] or ["text"]
        case "float":
            candidates = [0.5, 1.0, 0.25, 2.0]
        case "int":
            candidates = [1, 2, 3, 4, 5, 6]
    generator.shuffle(candidates)
    if scalar in ("int", "float"):
        kind = int if scalar == "int" else float
        numbers = [value for value in constants if isinstance(value, (int, float))]
        candidates += [0, -1, *around(numbers)]
        candidates = [kind(value) for value in candidates]
    own = parameter.default if parameter.has_default else None
    if own is not None and (generator.random() < 0.5 or scalar == "str"):
        candidates.insert(0, own)
    elif own is not None:
        candidates = [*(value for value in candidates if value != own), own]
    unique = tuple(dict.fromkeys(candidates))
    return Domain(unique, open=scalar == "int")


def size_domain(contract: Contract[..., Any], generator: random.Random, count: int) -> Domain:
    """Return what a dim may be, small sizes first; 1 leads now and then.

    `count` dims are drawn together, so that there are enough small sizes for all.
    """
    small = list(range(2, 8 + max(count - 5, 0)))
    generator.shuffle(small)
    first = [1] if generator.random() < 0.125 else []
    numbers = [value for value in contract_constants(contract) if isinstance(value, int)]
    larger = sorted(n for n in (*around(numbers), 16, 32, 64, 128, 256) if n > 0)
    candidates = tuple(dict.fromkeys([*first, *small, 1, *range(8, 13), *larger]))
    return Domain(candidates, low=1, open=True, distinct=True)


def around(numbers: Iterable[float]) -> list[float]:
    """Return numbers at which relations with these constants change their answer."""
    found: list[float] = []
    for number in numbers:
        half = number // 2 if isinstance(number, int) else number / 2
        found += [number, number + 1, number - 1, 2 * number, half]
    return found


@functools.lru_cache(maxsize=1024)
def contract_constants(contract: Contract[..., Any]) -> tuple[Any, ...]:
    """Return the literals of a contract's relations and `let` definitions."""
    trees: list[Expression] = [*contract.let.values()]
    for condition in contract.where:
        trees += [condition.expression] if isinstance(condition, Relation) else []
        trees += [condition.when] if condition.when is not None else []
    trees += [contract.early_return] if contract.early_return is not None else []
    found = (node.value for tree in trees for node in walk(tree) if isinstance(node, Constant))
    plain = {(type(value), value): value for value in found if type(value) in (int, float, str)}
    return tuple(plain.values())


def tuple_hints(hint: Any) -> tuple[Any, ...]:
    """Return the items of the fixed tuple inside a parameter's hint."""
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)
    for member in typing.get_args(hint):
        found = tuple_hints(member)
        if found:
            return found
    return ()
