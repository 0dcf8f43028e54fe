"""Annotations as Python gives them: resolved, and refused where nobody could check them."""

from __future__ import annotations

import collections.abc
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union

import torch
from jaxtyping import AbstractArray

from tensorpact.contracts.language.definition_error import ContractDefinitionError, near_name_hint


def resolve_hints(function: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate the annotations of a function, strings included, keeping their metadata.

    `names` are what the function's own module does not know, such as the locals of an enclosing
    function.

    Raises:
        ContractDefinitionError: an annotation names something that does not exist.
    """
    try:
        hints = typing.get_type_hints(function, localns=dict(names), include_extras=True)
        return {name: see_through(hint) for name, hint in hints.items()}
    except NameError as error:
        known = {*names, *getattr(function, "__globals__", {})}
        problem = f"an annotation cannot be resolved: {error}."
        raise ContractDefinitionError(problem, hint=_near_only(str(error.name), known)) from error
    except ContractDefinitionError:
        raise
    except Exception as error:
        problem = f"an annotation cannot be resolved: {type(error).__name__}: {error}."
        raise ContractDefinitionError(problem) from error


def see_through(hint: Any) -> Any:
    """Replace aliases, new types and type variables by what they stand for, at any depth."""
    if hasattr(hint, "__value__"):
        return see_through(hint.__value__)
    if isinstance(hint, typing.NewType):
        return see_through(hint.__supertype__)
    if isinstance(hint, typing.TypeVar):
        members = hint.__constraints__ or (hint.__bound__ or Any,)
        return functools.reduce(_united, map(see_through, members))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return Annotated[(see_through(arguments[0]), *arguments[1:])]
    if origin in (Union, types.UnionType):
        return functools.reduce(_united, map(see_through, arguments))
    if origin in (list, tuple, collections.abc.Sequence) and arguments:
        items = tuple(item if item is Ellipsis else see_through(item) for item in arguments)
        return origin[items if origin is tuple else items[0]]
    return hint


def _united(one: Any, other: Any) -> Any:
    return Union[one, other]  # noqa: UP007 - not every hint knows `|`


def refuse_hint(hint: Any) -> None:
    """Refuse what is no type, and tensors with dims in a place where nobody would look at them."""
    if isinstance(hint, (bool, int, float, bytes, list, tuple, dict, set)):
        raise ContractDefinitionError(f"{hint!r} is no type.")
    if typing.get_origin(hint) is not collections.abc.Callable and _holds_dims(hint):
        raise ContractDefinitionError(
            f"the dims of tensors inside `{typing.get_origin(hint).__name__}[...]` cannot be "
            "checked.",
            hint="Take the tensors as parameters, a list or a tuple.",
        )


def _holds_dims(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_holds_dims(member) for member in typing.get_args(hint))


def without_none(hint: Any) -> Any:
    """Return the other member of a union of two with None."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        return members[0] if len(members) == 1 else hint
    return hint


def is_sizes_hint(hint: Any) -> bool:
    """Tell whether a hint is a tuple or list of sizes."""
    if hint is torch.Size:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    return (
        origin in (tuple, list, collections.abc.Sequence)
        and arguments[:1] == (int,)
        and (origin is not tuple or arguments[1:] == (Ellipsis,))
    )


def _near_only(name: str, known: collections.abc.Iterable[str]) -> str:
    hint = near_name_hint(name, known)
    return hint if hint.startswith("Did") else ""
