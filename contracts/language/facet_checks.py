"""Whether a tensor's annotation makes sense: its facets, and the names its axes use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tensorpact.contracts.language.binding import axes_of, dim_names
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.dims import Computed, Named, Spliced
from tensorpact.contracts.language.expression_checks import check_expression, check_reads, require
from tensorpact.contracts.language.expression_kinds import may_be_number, may_be_size
from tensorpact.contracts.language.expression_parser import parse_expression
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
from tensorpact.contracts.language.parameters import Slot
from tensorpact.contracts.language.strides import parse_strides

if TYPE_CHECKING:
    from tensorpact.contracts.language.contract import Contract


def check_slot(contract: Contract[..., Any], slot: Slot) -> None:
    """Refuse a tensor annotation with a mistake in it.

    Raises:
        ContractDefinitionError: names the axis or facet.
    """
    for _, _, axis in axes_of(slot):
        if isinstance(axis, Named) and axis.per_item and not (slot.repeated or slot.path):
            raise ContractDefinitionError(
                f"dim {axis.text!r}: only an item of a list or tuple of tensors has a size of "
                "its own."
            )
        if isinstance(axis, (Computed, Spliced)):
            _check_braces(contract, axis)
            check_reads(contract, axis.expression, f"dim {axis.text!r}")
    for facet in slot.facets:
        if isinstance(facet, Strides):
            _require_text(facet, facet.pattern)
    layouts = [facet.describe() for facet in slot.facets if facet.kind == "layout"]
    if len(layouts) > 1:
        raise ContractDefinitionError(f"several layouts: {' and '.join(layouts)}.")
    for facet in slot.facets:
        _check_parameters(contract, slot, facet)
        _check_facet(contract, slot, facet)


def _check_braces(contract: Contract[..., Any], axis: Computed | Spliced) -> None:
    """Braces mean a value that is there already: a parameter, an attribute or a `let`."""
    known = {*(parameter.name for parameter in contract.parameters), *contract.let}
    for inside in re.findall(r"{([^{}]*)}", axis.text):
        names = dim_names(parse_expression(inside))
        require(names, known, f"dim {axis.text!r}", "parameter")


def _check_parameters(contract: Contract[..., Any], slot: Slot, facet: Facet) -> None:
    tensors = {other.parameter for other in contract.slots}
    single = {other.name for other in contract.slots if not other.repeated}
    names = _named_by(facet)
    if names == ():
        raise ContractDefinitionError(f"`{type(facet).__name__}` names no parameter.")
    for name in names or ():
        if not isinstance(name, str):
            raise ContractDefinitionError(
                f"`{type(facet).__name__}` names {name!r}, which is no string."
            )
        require([name], tensors, facet.describe(), "tensor parameter")
        if name not in single:
            raise ContractDefinitionError(f"{facet.describe()}: `{name}` holds several tensors.")
        if name == slot.name and not slot.is_output:
            raise ContractDefinitionError(f"{facet.describe()}: that is the tensor itself.")


def _named_by(facet: Facet) -> tuple[Any, ...] | None:
    match facet:
        case SameDevice(None):
            return None
        case SameDtype(name) | SameDevice(name) | Is(name):
            return (name,)
        case NoAlias():
            return facet.parameters
        case _:
            return None


def _check_facet(contract: Contract[..., Any], slot: Slot, facet: Facet) -> None:
    match facet:
        case Is() if not slot.is_output:
            raise ContractDefinitionError("`Is` is for returned tensors.")
        case SameDtype(other):
            _check_same_dtype(contract, slot, other)
        case Strides():
            _check_strides(contract, slot, facet)
        case LastDimContiguous():
            if any(array.minimum_rank == 0 for array in slot.arrays):
                raise ContractDefinitionError("a tensor without axes has no last dim.")
        case IndexInto(dim):
            _require_text(facet, dim)
            require([dim], contract.dims, facet.describe(), "dim")
        case InRange():
            _check_range(contract, facet)
        case _:
            pass


def _require_text(facet: Facet, value: object) -> None:
    if not isinstance(value, str):
        raise ContractDefinitionError(f"`{type(facet).__name__}` takes a string, not {value!r}.")


def _check_same_dtype(contract: Contract[..., Any], slot: Slot, other: str) -> None:
    for wanted in contract.slots:
        if wanted.name != other:
            continue
        pairs = [(a.dtypes, b.dtypes) for a in slot.arrays for b in wanted.arrays]
        if all(a is not None and b is not None and not a & b for a, b in pairs):
            raise ContractDefinitionError(
                f"no dtype is one of its own and one of `{other}`, so no call could be valid."
            )


def _check_strides(contract: Contract[..., Any], slot: Slot, facet: Strides) -> None:
    strides = parse_strides(facet.pattern)
    if any(len(strides) != len(array.axes) or array.flexible is not None for array in slot.arrays):
        raise ContractDefinitionError(f"{facet.describe()} does not give one per axis.")
    for stride in strides:
        if stride is None:
            continue
        if not may_be_size(stride):
            raise ContractDefinitionError(f"{facet.describe()}: a stride is a whole number.")
        require(dim_names(stride), contract.dims, facet.describe(), "dim")
        check_reads(contract, stride, facet.describe())


def _check_range(contract: Contract[..., Any], facet: InRange) -> None:
    if facet.low is None and facet.high is None:
        raise ContractDefinitionError("`InRange` has no bound.")
    for bound in (facet.low, facet.high):
        if isinstance(bound, str):
            tree = parse_expression(bound)
            check_expression(contract, tree, facet.describe())
            if not may_be_number(tree):
                raise ContractDefinitionError(f"{facet.describe()}: a bound is a number.")
        elif isinstance(bound, bool) or not isinstance(bound, (int, float, type(None))):
            raise ContractDefinitionError(f"`InRange` is bounded by {bound!r}, which is no number.")
    match facet:
        case InRange(int() | float() as low, int() | float() as high) if low >= high:
            raise ContractDefinitionError(f"{facet.describe()}: no value lies there.")
