"""The Python types at the front door: plain ones are checked inline, beartype has the rest."""

from __future__ import annotations

import abc
import collections.abc
import enum
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeGuard, TypeVar, Union

import torch
from jaxtyping import AbstractArray

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.parameters import Parameter, Scalar, Slot

T = TypeVar("T")


def is_a(value: object, kind: type[T]) -> TypeGuard[T]:
    """Tell whether a value is of a class, whatever it says of itself by `__class__`.

    A class of tensors may still decide for tensors, as `torch.nn.Parameter` does.

    >>> is_a(3, int), is_a("3", int)
    (True, False)
    """
    own = type(value)
    return issubclass(own, kind) or (issubclass(own, torch.Tensor) and isinstance(value, kind))


def is_whole_number(value: object) -> bool:
    """Tell whether a value may be passed for an `int` parameter: a bool may not.

    >>> is_whole_number(3), is_whole_number(True), is_whole_number(3.0)
    (True, False, False)
    """
    return issubclass(type(value), (numbers.Integral, torch.SymInt)) and type(value) is not bool


def is_real_number(value: object) -> bool:
    """Tell whether a value may be passed for a `float` parameter: an int may, a bool may not.

    >>> is_real_number(3), is_real_number(0.5), is_real_number(True)
    (True, True, False)
    """
    kind = type(value)
    exact = issubclass(kind, numbers.Rational)
    return is_whole_number(value) or (
        issubclass(kind, (numbers.Real, torch.SymFloat)) and not exact
    )


def is_truth_value(value: object) -> bool:
    """Tell whether a value may be passed for a `bool` parameter."""
    return issubclass(type(value), (bool, torch.SymBool))


def is_text(value: object) -> bool:
    """Tell whether a value may be passed for a `str` parameter."""
    return issubclass(type(value), str)


SCALAR_TESTS: Mapping[Scalar, tuple[type, Callable[[object], bool]]] = {
    "int": (int, is_whole_number),
    "float": (float, is_real_number),
    "bool": (bool, is_truth_value),
    "str": (str, is_text),
}
"""For each scalar: the class that passes at once, and the whole test."""


def needs_beartype(parameter: Parameter) -> bool:
    """Tell whether a parameter's hint is beyond what the guard checks by itself."""
    return any(hint not in (Any, object) for hint in parameter.other_hints)


Test: TypeAlias = Callable[[object], bool]


def test_of(hint: Any) -> Test:
    """Return a test for a hint: tensors without dims, `int` without bool, the rest by beartype.

    Lists and tuples are looked at item by item, all of them at every call. beartype answers yes
    or no and is never asked why: its explanations print the values.
    """
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        kind = torch.Tensor if hint.array_type is Any else hint.array_type
        return lambda value: is_a(value, kind)
    if isinstance(hint, type) and hint in _PLAIN_TESTS:
        return _PLAIN_TESTS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return test_of(arguments[0])
    if origin in (Union, types.UnionType):
        tests = [test_of(member) for member in arguments]
        return lambda value: any(test(value) for test in tests)
    if origin is tuple and Ellipsis not in arguments:
        tests = [test_of(item) for item in arguments]
        return lambda value: (
            is_a(value, tuple)
            and len(value) == len(tests)
            and all(test(item) for test, item in zip(tests, value, strict=True))
        )
    if origin in _CONTAINERS:
        kind, item_test = _CONTAINERS[origin], test_of(arguments[0])
        return lambda value: is_a(value, kind) and all(map(item_test, value))
    if type(hint) in (type, abc.ABCMeta, enum.EnumMeta):
        return lambda value: is_a(value, hint)
    if origin is collections.abc.Callable:
        return callable
    return _beartype_test(hint)


def _beartype_test(hint: Any) -> Test:
    """Return beartype's test for a hint; beartype is imported when a contract first needs it."""
    from beartype import BeartypeConf
    from beartype.door import is_bearable
    from beartype.roar import BeartypeException

    configuration = BeartypeConf(is_pep484_tower=False)
    try:
        is_bearable(None, hint, conf=configuration)
    except BeartypeException as error:
        raise ContractDefinitionError(f"{hint!r} is no type that beartype can check.") from error
    # The compiler cannot trace beartype's bookkeeping; such a hint counts in eager calls only.
    return lambda value: (
        torch.compiler.is_dynamo_compiling() or is_bearable(value, hint, conf=configuration)
    )


_CONTAINERS: Mapping[Any, Any] = {
    list: list,
    tuple: tuple,
    collections.abc.Sequence: collections.abc.Sequence,
}
_PLAIN_TESTS: Mapping[Any, Test] = {
    **dict(SCALAR_TESTS.values()),
    type(None): lambda value: value is None,
    torch.Size: lambda value: is_a(value, torch.Size),
}


def make_front_door(parameters: tuple[Parameter, ...]) -> Callable[..., bool] | None:
    """Return a test over the values of the parameters that `needs_beartype` names.

    Raises:
        ContractDefinitionError: beartype cannot check one of the hints.
    """
    hints = [parameter.hint for parameter in parameters if needs_beartype(parameter)]
    if not hints:
        return None
    tests = [test_of(hint) for hint in hints]
    if len(tests) == 1:
        return tests[0]

    def front_door(*values: object) -> bool:
        return all(test(value) for test, value in zip(tests, values, strict=True))

    return front_door


def has_python_type(parameter: Parameter, value: object) -> bool:
    """Tell whether a value has the Python type of a parameter (items of lists left out)."""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return True
    if needs_beartype(parameter):
        return _passes(test_of(parameter.hint), value)
    if any(hint in (Any, object) for hint in parameter.other_hints):
        return True
    if value is None:
        return parameter.optional
    tests = [SCALAR_TESTS[scalar][1] for scalar in parameter.scalars]
    return any(test(value) for test in tests) or any(
        _holds(parameter, slot, value) for slot in parameter.slots
    )


def _holds(parameter: Parameter, slot: Slot, value: object) -> bool:
    """Tell whether a value has the outer type of a slot."""
    if slot.path:
        return is_a(value, tuple) and len(value) == tuple_length(parameter)
    if slot.repeated is not None:
        return is_a(value, slot.repeated)
    return any(is_a(value, array.array_type) for array in slot.arrays)


def _passes(test: Test, value: object) -> bool:
    """Ask a test; a value that cannot even be looked at has no type that anyone asked for."""
    try:
        return test(value)
    except Exception:
        return False


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
