"""Does a contract make sense? Every mistake is found at decoration, with its place and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from tensorpact.contracts.language.binding import axes_of, dim_names, named_axes
from tensorpact.contracts.language.checks import AxisCheck, RelationCheck, tier_of
from tensorpact.contracts.language.definition_error import ContractDefinitionError, near_name_hint
from tensorpact.contracts.language.dims import Named
from tensorpact.contracts.language.evaluation import Unbound, Values, evaluate
from tensorpact.contracts.language.expression import (
    TENSOR_ATTRIBUTES,
    Attribute,
    Constant,
    Expression,
    Method,
    Name,
    Subscript,
    walk,
)
from tensorpact.contracts.language.facets import (
    Facet,
    IndexInto,
    InRange,
    Is,
    LastDimContiguous,
    NoAlias,
    SameDevice,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.parameters import Parameter, Slot
from tensorpact.contracts.language.rows import (
    ErrorRow,
    FacetTarget,
    Predicate,
    RelationTarget,
    same_condition,
)
from tensorpact.contracts.language.strides import parse_strides
from tensorpact.contracts.language.template import RESERVED

if TYPE_CHECKING:
    from tensorpact.contracts.language.contract import Contract


_SHAPE_FACETS = ("rank", "dims", "extent")
"""What the word `shape` in an error row stands for."""


def validate(contract: Contract[..., Any]) -> None:
    """Refuse a contract with a mistake in it.

    Raises:
        ContractDefinitionError: names what is wrong and where.
    """
    _check_names(contract)
    for slot in (*contract.slots, *contract.returned.slots):
        try:
            _check_slot(contract, slot)
        except ContractDefinitionError as error:
            raise error.at(f"`{slot.name}`") from None
    for condition in contract.where:
        place = f"relation {condition.text!r}"
        if isinstance(condition, Predicate):
            known = {*_readable(contract), *(p.name for p in contract.parameters)}
            _require(condition.names, known, place, "predicate parameter")
        else:
            _check_expression(contract, condition.expression, place)
        if condition.when is not None:
            _check_expression(contract, condition.when, f"`when` of {place}")
    if contract.early_return is not None:
        _check_expression(contract, contract.early_return, "`early_return`")
    seen: set[str] = set()
    for row in contract.errors:
        if row.slug in seen:
            raise ContractDefinitionError(f"the error slug {row.slug!r} is used twice.")
        seen.add(row.slug)
        _check_row(contract, row)
    for parameter in contract.parameters:
        _check_default(contract, parameter)


def row_checks(contract: Contract[..., Any]) -> tuple[frozenset[int], ...]:
    """Return, for each error row, the positions in `contract.checks` that it explains.

    Raises:
        ContractDefinitionError: a row names a parameter, facet or relation that is not there.
    """
    found = []
    for row in contract.errors:
        positions: set[int] = set()
        for target in row.targets:
            matching = set(_matching(contract, target))
            if not matching:
                raise _nothing_matches(contract, target).at(f"error `{row.slug}`")
            positions |= matching
        found.append(frozenset(positions))
    return tuple(found)


def _matching(contract: Contract[..., Any], target: FacetTarget | RelationTarget) -> Iterator[int]:
    for position, check in enumerate(contract.checks):
        if isinstance(target, RelationTarget):
            if isinstance(check, RelationCheck) and same_condition(target, check.condition):
                yield position
            continue
        wanted = _SHAPE_FACETS if target.facet == "shape" else (target.facet,)
        if check.facet not in wanted or target.parameter not in ("*", check.argument):
            continue
        if target.axes is not None and isinstance(check, AxisCheck):
            count = len(check.slot.arrays[check.array].axes)
            if check.axis not in range(*target.axes.indices(count)):
                continue
        yield position


def _nothing_matches(
    contract: Contract[..., Any], target: FacetTarget | RelationTarget
) -> ContractDefinitionError:
    if isinstance(target, RelationTarget):
        texts = [condition.text for condition in contract.where]
        return ContractDefinitionError(
            f"`unless` names {target.text!r}, which is no entry of `where`.",
            hint=near_name_hint(target.text, texts),
        )
    names = {parameter.name for parameter in contract.parameters}
    names |= {slot.name for slot in contract.slots}
    if target.parameter != "*" and target.parameter not in names:
        return ContractDefinitionError(
            f"`unless` names the parameter `{target.parameter}`, which does not exist.",
            hint=near_name_hint(target.parameter, names),
        )
    facets = {c.facet for c in contract.checks if target.parameter in ("*", c.argument)}
    return ContractDefinitionError(
        f"`{target.parameter}` promises nothing about its {target.facet}.",
        hint=f"It promises: {', '.join(sorted(facets - {'relation'}))}.",
    )


def _check_names(contract: Contract[..., Any]) -> None:
    parameters = {parameter.name for parameter in contract.parameters}
    for name in contract.let:
        if name in parameters:
            raise ContractDefinitionError(f"`let` {name} is also a parameter.")
    _require(contract.zero, set(contract.dims), "`zero`", "dim")
    tensors = {slot.parameter for slot in contract.slots}
    _require(contract.anchors, tensors, "`anchors`", "tensor parameter")


def _readable(contract: Contract[..., Any]) -> set[str]:
    """Names an expression may use by themselves: dims, and parameters that hold one plain value."""
    plain = {p.name for p in contract.parameters if not p.slots and not p.is_instance}
    return {*contract.dims, *plain}


def _check_expression(
    contract: Contract[..., Any], node: Expression, place: str, extra: Iterable[str] = ()
) -> None:
    optional = {s.name for s in contract.slots if s.optional}
    compared_to_none = {
        part.first.id
        for part in walk(node)
        if type(part).__name__ == "Compare"
        and isinstance(part.first, Name)  # type: ignore[union-attr]
        and all(op.startswith("is") for op, _ in part.rest)  # type: ignore[union-attr]
    }
    names = set(dim_names(node)) - (compared_to_none & optional)
    arguments = {p.name for p in contract.parameters}
    wanted = names - (compared_to_none & arguments)
    _require(wanted, {*_readable(contract), *extra}, place, "name")
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
    by_name = {parameter.name: parameter for parameter in contract.parameters}
    _require([owner.id], set(by_name), place, "parameter")
    if any(slot.repeated or slot.path for slot in by_name[owner.id].slots):
        raise ContractDefinitionError(f"`{owner.id}` holds several tensors.", place=place)
    if any(slot.other_types for slot in by_name[owner.id].slots):
        raise ContractDefinitionError(f"`{owner.id}` may hold no tensor.", place=place)
    if by_name[owner.id].slots and isinstance(node, Attribute):
        _require([node.name], set(TENSOR_ATTRIBUTES), place, "tensor attribute")


def _check_subscript(contract: Contract[..., Any], node: Subscript, place: str) -> None:
    if not (isinstance(node.index, Constant) and isinstance(node.index.value, int)):
        raise ContractDefinitionError("an axis is given as a number.", place=place)
    match node.owner:
        case Attribute(Name(owner), "shape"):
            for slot in contract.slots:
                for array in slot.arrays if slot.name == owner else ():
                    low = array.minimum_rank
                    if not -low <= node.index.value < low:
                        raise ContractDefinitionError(
                            f"`{owner}` may have {low} axes, so it has no axis "
                            f"{node.index.value} then.",
                            place=place,
                        )


def _check_slot(contract: Contract[..., Any], slot: Slot) -> None:
    for array, _, axis in axes_of(slot):
        free = isinstance(axis, Named) and axis.per_item
        if free and not (slot.repeated or slot.path):
            raise ContractDefinitionError(
                f"dim {axis.text!r}: only an item of a list or tuple of tensors has a size of "  # type: ignore[attr-defined]
                "its own."
            )
        del array
    tensors = {other.parameter for other in contract.slots}
    single = {other.name for other in contract.slots if not other.repeated}
    for facet in slot.facets:
        for name in _facet_parameters(facet):
            _require([name], tensors, facet.describe(), "tensor parameter")
            if name not in single:
                raise ContractDefinitionError(f"{facet.describe()}: `{name}` holds several tensors.")
        if isinstance(facet, Is) and not slot.is_output:
            raise ContractDefinitionError("`Is` is for returned tensors.")
        _check_facet_dims(contract, slot, facet)


def _facet_parameters(facet: Facet) -> tuple[str, ...]:
    match facet:
        case SameDtype(name) | SameDevice(name) | Is(name):
            return (name,)
        case NoAlias():
            return facet.parameters
        case _:
            return ()


def _check_facet_dims(contract: Contract[..., Any], slot: Slot, facet: Facet) -> None:
    known = set(contract.dims)
    match facet:
        case Strides(pattern):
            strides = parse_strides(pattern)
            if any(len(strides) != len(a.axes) or a.flexible is not None for a in slot.arrays):
                raise ContractDefinitionError(f"{facet.describe()} does not give one per axis.")
            for stride in strides:
                _require(dim_names(stride) if stride else (), known, facet.describe(), "dim")
        case LastDimContiguous():
            if any(array.minimum_rank == 0 for array in slot.arrays):
                raise ContractDefinitionError("a tensor without axes has no last dim.")
        case IndexInto(dim):
            _require([dim], known, facet.describe(), "dim")
        case InRange(low, high):
            from tensorpact.contracts.language.expression_parser import parse_expression

            for bound in (low, high):
                if isinstance(bound, str):
                    _check_expression(contract, parse_expression(bound), facet.describe())
        case _:
            pass


def _check_row(contract: Contract[..., Any], row: ErrorRow) -> None:
    place = f"error `{row.slug}`"
    parameters = {parameter.name for parameter in contract.parameters}
    known = {*contract.dims, *parameters, *RESERVED}
    _require(row.template.names, known, place, "placeholder")
    if row.when is not None:
        _check_expression(contract, row.when, f"`when` of {place}")


def _check_default(contract: Contract[..., Any], parameter: Parameter) -> None:
    if not parameter.has_default or parameter.is_instance:
        return
    value = parameter.default
    place = f"default of `{parameter.name}`"
    if value is None:
        if not (parameter.optional or parameter.other_hints):
            raise ContractDefinitionError(
                "is None, which the annotation does not allow.", place=place, hint="Add `| None`."
            )
        return
    if isinstance(value, torch.Tensor):
        raise ContractDefinitionError("is a tensor; use None.", place=place)
    if parameter.scalars and not parameter.other_hints and not _is_scalar(value, parameter):
        allowed = " or ".join(parameter.scalars)
        raise ContractDefinitionError(f"{value!r} is no {allowed}.", place=place)
    if parameter.binds_dim and parameter.name in named_axes(
        (*contract.slots, *contract.returned.slots)
    ):
        low = 0 if parameter.name in contract.zero else 1
        if value < low:
            raise ContractDefinitionError(f"{value} is below {low}.", place=place)
    _check_relations_of_defaults(contract)


def _is_scalar(value: object, parameter: Parameter) -> bool:
    if isinstance(value, bool):
        return "bool" in parameter.scalars
    if isinstance(value, int):
        return "int" in parameter.scalars or "float" in parameter.scalars
    return type(value).__name__ in parameter.scalars


def _check_relations_of_defaults(contract: Contract[..., Any]) -> None:
    """Refuse defaults that break a relation between parameters on their own."""
    defaults = {p.name: p.default for p in contract.parameters if p.has_default and not p.slots}
    for check in contract.checks:
        if not isinstance(check, RelationCheck) or tier_of(check) != "metadata":
            continue
        condition = check.condition
        if isinstance(condition, Predicate) or condition.when is not None:
            continue
        values = Values({}, defaults)
        try:
            holds = evaluate(condition.expression, values)
        except (Unbound, TypeError, ZeroDivisionError):
            continue
        if not holds:
            raise ContractDefinitionError(
                f"the defaults break {condition.text!r}.", place="the signature"
            )


def _require(names: Iterable[str], known: set[str], place: str, kind: str) -> None:
    for name in names:
        if name not in known:
            raise ContractDefinitionError(
                f"unknown {kind} `{name}`.", place=place, hint=near_name_hint(name, known)
            )


