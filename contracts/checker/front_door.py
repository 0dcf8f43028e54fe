"""The Python types at the front door: plain ones are checked inline, beartype has the rest."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Union

import torch
from beartype import BeartypeConf, BeartypeStrategy, beartype
from beartype.door import is_bearable
from beartype.roar import BeartypeException
from beartype.vale import IsInstance
from jaxtyping import AbstractArray

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.parameters import Parameter


class FrontDoorViolation(Exception):
    """beartype refused an argument; the diagnosis finds out which and says so."""


CONFIGURATION = BeartypeConf(
    is_color=False,
    is_pep484_tower=False,
    strategy=BeartypeStrategy.O1,
    violation_type=FrontDoorViolation,
)

_NOT_BOOL = ~IsInstance[bool]
WHOLE_NUMBER = Annotated[Union[int, torch.SymInt], _NOT_BOOL]
REAL_NUMBER = Annotated[Union[int, float, torch.SymInt, torch.SymFloat], _NOT_BOOL]


def is_whole_number(value: object) -> bool:
    """Tell whether a value may be passed for an `int` parameter: a bool may not.

    >>> is_whole_number(3), is_whole_number(True), is_whole_number(3.0)
    (True, False, False)
    """
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def is_real_number(value: object) -> bool:
    """Tell whether a value may be passed for a `float` parameter: an int may, a bool may not.

    >>> is_real_number(3), is_real_number(0.5), is_real_number(True)
    (True, True, False)
    """
    numbers = (int, float, torch.SymInt, torch.SymFloat)
    return isinstance(value, numbers) and not isinstance(value, bool)


def needs_beartype(parameter: Parameter) -> bool:
    """Tell whether a parameter's hint is beyond what the guard checks by itself."""
    return any(hint not in (Any, object) for hint in parameter.other_hints)


def python_hint(hint: Any) -> Any:
    """Return the hint beartype checks: tensors without dims, `int` without bool, and so on."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return torch.Tensor if hint.array_type is Any else hint.array_type
    if hint is int:
        return WHOLE_NUMBER
    if hint is float:
        return REAL_NUMBER
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return python_hint(typing.get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return Union[tuple(python_hint(member) for member in typing.get_args(hint))]
    if origin in (list, tuple, collections.abc.Sequence):
        items = tuple(
            item if item is Ellipsis else python_hint(item) for item in typing.get_args(hint)
        )
        return origin[items]
    return hint


def make_front_door(parameters: tuple[Parameter, ...]) -> Callable[..., None] | None:
    """Return a beartype-decorated function over the parameters beartype has to look at.

    Raises:
        ContractDefinitionError: beartype cannot check one of the hints.
    """
    watched = [parameter for parameter in parameters if needs_beartype(parameter)]
    if not watched:
        return None

    def front_door(*arguments: object) -> None:
        """Check Python types."""

    source = f"def front_door({', '.join(parameter.name for parameter in watched)}): pass"
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    door = namespace["front_door"]
    door.__annotations__ = {p.name: python_hint(p.hint) for p in watched}
    try:
        return typing.cast(Callable[..., None], beartype(conf=CONFIGURATION)(door))
    except BeartypeException as error:
        raise ContractDefinitionError(f"beartype cannot check an annotation: {error}") from error


def has_python_type(parameter: Parameter, value: object) -> bool:
    """Tell whether a value has the Python type of a parameter (items of lists left out)."""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return True
    if needs_beartype(parameter):
        return is_bearable(value, python_hint(parameter.hint), conf=CONFIGURATION)
    if any(hint in (Any, object) for hint in parameter.other_hints):
        return True
    if value is None:
        return parameter.optional
    for slot in parameter.slots:
        if slot.path:
            length = len(typing.get_args(_tuple_hint(parameter.hint)))
            return isinstance(value, tuple) and len(value) == length
        if slot.repeated is not None:
            if isinstance(value, slot.repeated):
                return True
        elif isinstance(value, tuple(array.array_type for array in slot.arrays)):
            return True
    tests: dict[str, Callable[[object], bool]] = {
        "int": is_whole_number,
        "float": is_real_number,
        "bool": lambda item: isinstance(item, (bool, torch.SymBool)),
        "str": lambda item: isinstance(item, str),
    }
    return any(tests[scalar](value) for scalar in parameter.scalars)


def tuple_length(parameter: Parameter) -> int:
    """Return how many items the fixed tuple of a parameter has."""
    return len(typing.get_args(_tuple_hint(parameter.hint)))


def _tuple_hint(hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return hint
    for member in typing.get_args(hint):
        found = _tuple_hint(member)
        if found is not None:
            return found
    return None
