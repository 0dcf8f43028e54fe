"""Generated checks of Python types: plain ones inline, the rest through beartype."""

from __future__ import annotations

import inspect
from typing import Any

from tensorpact.contracts.checker.code import Writer, joined
from tensorpact.contracts.checker.front_door import (
    SCALAR_TESTS,
    is_a,
    make_front_door,
    needs_beartype,
    tuple_length,
)
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.parameters import Parameter, Scalar, Slot


def write_type_checks(
    contract: Contract[..., Any], scope: Scope, writer: Writer, fail: str
) -> None:
    """Write the checks of the Python type of every parameter."""
    conditions = [
        condition
        for parameter in contract.parameters
        if (condition := type_condition(parameter, scope)) is not None
    ]
    door = make_front_door(contract.parameters)
    if door is not None:
        watched = ", ".join(p.name for p in contract.parameters if needs_beartype(p))
        conditions.append(f"{scope.constant('_front_door', door)}({watched})")
    if conditions:
        writer.write_list("if not (", conditions, "and", "):")
        writer.depth += 1
        writer.write(fail)
        writer.depth -= 1


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
            length = f"{scope.builtin('len')}({name}) == {tuple_length(parameter)}"
            members = [f"({kind_test(name, tuple, scope)}) and {length}"]
        elif slot.repeated is not None:
            members.append(kind_test(name, slot.repeated, scope))
        else:
            members += array_types(name, slot, scope)
    if parameter.optional:
        members.insert(0, f"{name} is None")
    for scalar in parameter.scalars:
        members += _scalar_tests(name, scalar, scope)
    return joined(list(dict.fromkeys(members)), "or") if members else None


def array_types(value: str, slot: Slot, scope: Scope) -> list[str]:
    """Return one test per tensor class of a slot."""
    return [
        kind_test(value, kind, scope)
        for kind in dict.fromkeys(array.array_type for array in slot.arrays)
    ]


def kind_test(value: str, kind: type, scope: Scope) -> str:
    """Return the test for a class: the exact class at once, a subclass by a call."""
    spelled = scope.constant(kind.__name__, kind)
    call = f"{scope.constant('is_a', is_a)}({value}, {spelled})"
    if inspect.isabstract(kind):
        return call
    return f"{scope.builtin('type')}({value}) is {spelled} or {call}"


def _scalar_tests(value: str, scalar: Scalar, scope: Scope) -> list[str]:
    kind, test = SCALAR_TESTS[scalar]
    exact = f"{scope.builtin('type')}({value}) is {scope.builtin(kind.__name__)}"
    return [exact, f"{scope.constant(test.__name__, test)}({value})"]
