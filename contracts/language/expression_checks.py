"""Whether an expression means something in its contract: its names, attributes and kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tensorpact.contracts.language.binding import dim_names
from tensorpact.contracts.language.definition_error import ContractDefinitionError, near_name_hint
from tensorpact.contracts.language.expression import (
    TENSOR_ATTRIBUTES,
    Attribute,
    Call,
    Compare,
    Constant,
    Expression,
    Logic,
    Method,
    Name,
    Subscript,
    Unary,
    names_in,
    text_of,
    walk,
)
from tensorpact.contracts.language.parameters import Parameter

if TYPE_CHECKING:
    from tensorpact.contracts.language.contract import Contract

_READS_OF_ONE_AXIS = ("size", "stride")


def require(names: Iterable[str], known: Iterable[str], place: str, kind: str) -> None:
    """Refuse a name that is not known, with a hint at a near one."""
    available = set(known)
    for name in names:
        if name not in available:
            raise ContractDefinitionError(
                f"unknown {kind} `{name}`.", place=place, hint=near_name_hint(name, available)
            )


def readable_names(contract: Contract[..., Any]) -> set[str]:
    """Names an expression may use by themselves: dims, and parameters that hold one plain value."""
    plain = {p.name for p in contract.parameters if not p.slots and not p.is_instance}
    return {*contract.dims, *plain}


def check_condition(contract: Contract[..., Any], node: Expression, place: str) -> None:
    """Refuse an expression that is not true or false, or that is the same in every call."""
    check_expression(contract, node, place)
    if not names_in(node):
        raise ContractDefinitionError("reads no dim and no parameter.", place=place)
    wrong = _not_a_condition(contract, node)
    if wrong is not None:
        raise ContractDefinitionError(
            f"`{text_of(wrong)}` is neither true nor false.", place=place, hint="Compare it."
        )


def _not_a_condition(contract: Contract[..., Any], node: Expression) -> Expression | None:
    """Return the part of a condition that has no truth value, if there is one."""
    match node:
        case Logic(_, operands):
            found = (_not_a_condition(contract, operand) for operand in operands)
            return next((part for part in found if part is not None), None)
        case Unary("not", operand):
            return _not_a_condition(contract, operand)
        case Compare() | Call("power_of_two", _) | Method(_, "is_contiguous", _):
            return None
        case Name(name):
            parameter = _parameter(contract, name)
            may_be_true = parameter is not None and (
                "bool" in parameter.scalars or bool(parameter.other_hints)
            )
            return None if may_be_true else node
        case Attribute(Name(owner), _):
            parameter = _parameter(contract, owner)
            return node if parameter is not None and parameter.slots else None
        case Attribute():
            return None
        case _:
            return node


def check_expression(
    contract: Contract[..., Any], node: Expression, place: str, extra: Iterable[str] = ()
) -> None:
    """Refuse names and attributes that nothing gives a value."""
    compared = {
        part.first.id
        for part in walk(node)
        if isinstance(part, Compare)
        and isinstance(part.first, Name)
        and all(operator.startswith("is") for operator, _ in part.rest)
    }
    for name in sorted(compared):
        _check_may_be_none(contract, name, place)
    arguments = {parameter.name for parameter in contract.parameters}
    wanted = [name for name in dim_names(node) if name not in compared & arguments]
    require(wanted, {*readable_names(contract), *extra}, place, "name")
    check_reads(contract, node, place)


def _check_may_be_none(contract: Contract[..., Any], name: str, place: str) -> None:
    parameter = _parameter(contract, name)
    binding = next((b for b in contract.bindings if b.name == name), None)
    if parameter is not None:
        never = not (
            parameter.optional
            or parameter.is_instance
            or parameter.other_hints
            or any(slot.optional for slot in parameter.slots)
        )
    else:
        never = binding is not None and binding.always
    if never:
        raise ContractDefinitionError(f"`{name}` is never None.", place=place)


def check_reads(contract: Contract[..., Any], node: Expression, place: str) -> None:
    """Refuse attributes that a tensor does not have, and axes that it need not have."""
    for part in walk(node):
        if isinstance(part, (Attribute, Method)):
            _check_read(contract, part, place)
        elif isinstance(part, Subscript):
            _check_subscript(contract, part, place)


def _check_read(contract: Contract[..., Any], node: Attribute | Method, place: str) -> None:
    owner = node.owner
    if isinstance(owner, Attribute):
        return
    if not isinstance(owner, Name):
        raise ContractDefinitionError("attributes are read of a parameter only.", place=place)
    require([owner.id], [p.name for p in contract.parameters], place, "parameter")
    parameter = _parameter(contract, owner.id)
    slots = () if parameter is None else parameter.slots
    if any(slot.repeated or slot.path for slot in slots):
        raise ContractDefinitionError(f"`{owner.id}` holds several tensors.", place=place)
    if any(slot.other_types for slot in slots):
        raise ContractDefinitionError(f"`{owner.id}` may hold no tensor.", place=place)
    if slots and isinstance(node, Attribute):
        require([node.name], TENSOR_ATTRIBUTES, place, "tensor attribute")
    if isinstance(node, Method):
        _check_method(contract, node, owner.id, place)


def _check_method(contract: Contract[..., Any], node: Method, owner: str, place: str) -> None:
    most = 1 if node.name in _READS_OF_ONE_AXIS else 0
    if len(node.arguments) > most:
        raise ContractDefinitionError(
            f"`{node.name}()` got {len(node.arguments)} arguments.", place=place
        )
    for argument in node.arguments:
        _check_axis(contract, owner, argument, place)


def _check_subscript(contract: Contract[..., Any], node: Subscript, place: str) -> None:
    match node.owner:
        case Attribute(Name(owner), "shape"):
            _check_axis(contract, owner, node.index, place)
        case Method(Name(owner), name, ()) if name in _READS_OF_ONE_AXIS:
            _check_axis(contract, owner, node.index, place)
        case Attribute():
            _axis_number(node.index, place)
        case Name(name):
            _axis_number(node.index, place)
            parameter = _parameter(contract, name)
            several = any(b.name == name and b.variadic for b in contract.bindings)
            if not several and not (parameter is not None and parameter.is_sizes):
                raise ContractDefinitionError(f"`{name}` does not hold several sizes.", place=place)
        case _:
            raise ContractDefinitionError("only a shape has axes.", place=place)


def _axis_number(node: Expression, place: str) -> int:
    match node:
        case Constant(int(number)) if not isinstance(number, bool):
            return number
    raise ContractDefinitionError("an axis is given as a number.", place=place)


def _check_axis(contract: Contract[..., Any], owner: str, node: Expression, place: str) -> None:
    axis = _axis_number(node, place)
    for slot in contract.slots:
        for array in slot.arrays if slot.name == owner else ():
            low = array.minimum_rank
            if not -low <= axis < low:
                raise ContractDefinitionError(
                    f"`{owner}` may have {low} axes, so it has no axis {axis} then.", place=place
                )


def _parameter(contract: Contract[..., Any], name: str) -> Parameter | None:
    return next((p for p in contract.parameters if p.name == name), None)
