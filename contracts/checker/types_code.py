"""Generated checks of Python types: plain ones inline, the rest through beartype."""

from __future__ import annotations

import inspect
from typing import Any

from tensorpact.contracts.checker.code import Writer, joined
from tensorpact.contracts.checker.front_door import (
    FrontDoorViolation,
    is_real_number,
    is_whole_number,
    make_front_door,
    needs_beartype,
    tuple_length,
)
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.parameters import Parameter


def write_type_checks(
    contract: Contract[..., Any], scope: Scope, writer: Writer, fail: str
) -> None:
    """Write the checks of the Python type of every parameter."""
    conditions = [
        condition
        for parameter in contract.parameters
        if (condition := type_condition(parameter, scope)) is not None
    ]
    if conditions:
        with writer.block("if not ("):
            for index, condition in enumerate(conditions):
                lead = "and " if index else ""
                writer.write(f"{lead}({condition})" if " or " in condition else lead + condition)
        with writer.block("):"):
            writer.write(fail)
    door = make_front_door(contract.parameters)
    if door is not None:
        watched = ", ".join(p.name for p in contract.parameters if needs_beartype(p))
        scope.constant("_front_door", door)
        scope.constant("_FrontDoorViolation", FrontDoorViolation)
        with writer.block("try:"):
            writer.write(f"_front_door({watched})")
        with writer.block("except _FrontDoorViolation:"):
            writer.write(fail)


def type_condition(parameter: Parameter, scope: Scope) -> str | None:
    """Return the condition under which a parameter has its Python type, if the guard checks it."""
    if parameter.is_instance or needs_beartype(parameter):
        return None
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return None
    if any(hint in (Any, object) for hint in parameter.other_hints):
        return None
    name = parameter.name
    members: list[str] = []
    for slot in parameter.slots:
        if slot.path:
            length = tuple_length(parameter)
            members = [f"isinstance({name}, tuple) and len({name}) == {length}"]
        elif slot.repeated is not None:
            kind = scope.constant(slot.repeated.__name__, slot.repeated)
            members.append(f"isinstance({name}, {kind})")
        else:
            members += array_types(name, slot, scope)
    if parameter.optional:
        members.insert(0, f"{name} is None")
    for scalar in parameter.scalars:
        members += _scalar_members(name, scalar, scope)
    return joined(list(dict.fromkeys(members)), "or") if members else None


def array_types(value: str, slot: Any, scope: Scope) -> list[str]:
    """Return one `isinstance` per tensor class of a slot."""
    classes = dict.fromkeys(array.array_type for array in slot.arrays)
    return [f"isinstance({value}, {scope.constant(cls.__name__, cls)})" for cls in classes]


def _scalar_members(name: str, scalar: str, scope: Scope) -> list[str]:
    if scalar == "int":
        scope.constant("is_whole_number", is_whole_number)
        return [f"type({name}) is int", f"is_whole_number({name})"]
    if scalar == "float":
        scope.constant("is_real_number", is_real_number)
        return [f"type({name}) is float", f"type({name}) is int", f"is_real_number({name})"]
    if scalar == "bool":
        return [f"{name} is True", f"{name} is False"]
    return [f"isinstance({name}, str)"]
