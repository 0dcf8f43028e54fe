"""Everything a contract promises, one entry each: what guard and diagnosis both read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorpact.contracts.language.binding import (
    Binding,
    FromAxis,
    FromOne,
    FromParameter,
    FromSolving,
    Source,
)
from tensorpact.contracts.language.expression import (
    Compare,
    Constant,
    Name,
    conjuncts,
)
from tensorpact.contracts.language.facets import (
    AnyDevice,
    Contiguous,
    Facet,
    Mutated,
    NoAlias,
    SameDevice,
    SameDtype,
    Tier,
)
from tensorpact.contracts.language.parameters import Parameter, Slot
from tensorpact.contracts.language.rows import Condition, Relation


@dataclass(frozen=True)
class TypeCheck:
    """The Python type of a parameter or an output."""

    parameter: Parameter | Slot
    facet: str = field(default="type", init=False)

    @property
    def argument(self) -> str:
        """The parameter or output this is about."""
        return self.parameter.name


@dataclass(frozen=True)
class RankCheck:
    """The number of axes."""

    slot: Slot
    facet: str = field(default="rank", init=False)

    @property
    def argument(self) -> str:
        """The parameter or output this is about."""
        return self.slot.name


@dataclass(frozen=True)
class DtypeCheck:
    """The dtypes of the annotation."""

    slot: Slot
    facet: str = field(default="dtype", init=False)

    @property
    def argument(self) -> str:
        """The parameter or output this is about."""
        return self.slot.name


@dataclass(frozen=True)
class AxisCheck:
    """The size of one annotated axis (or what one `*name` or spliced pattern covers)."""

    slot: Slot
    array: int
    axis: int
    facet: str = field(default="dims", init=False)

    @property
    def argument(self) -> str:
        """The parameter or output this is about."""
        return self.slot.name


@dataclass(frozen=True)
class ExtentCheck:
    """A dim is at least 1."""

    name: str
    binding: Binding
    facet: str = field(default="extent", init=False)

    @property
    def argument(self) -> str:
        """The parameter that gives the dim its value in most calls."""
        return source_argument(self.binding.sources[0]) or self.name


@dataclass(frozen=True)
class FacetCheck:
    """One facet of `Annotated[...]`, or the default that all tensors share a device."""

    slot: Slot
    subject: Facet

    @property
    def facet(self) -> str:
        """The facet word that error rows use."""
        return self.subject.kind

    @property
    def argument(self) -> str:
        """The parameter or output this is about."""
        return self.slot.name


@dataclass(frozen=True)
class MemoryCheck:
    """No memory is shared with other tensors, by address: debug mode's half of `NoAlias`."""

    slot: Slot
    others: tuple[str, ...]
    facet: str = field(default="alias", init=False)

    @property
    def argument(self) -> str:
        """The parameter or output this is about."""
        return self.slot.name


@dataclass(frozen=True)
class DeviceCheck:
    """The device is the one of the first tensor."""

    slot: Slot
    facet: str = field(default="device", init=False)

    @property
    def argument(self) -> str:
        """The parameter or output this is about."""
        return self.slot.name


@dataclass(frozen=True)
class RelationCheck:
    """One entry of `where`."""

    condition: Condition
    facet: str = field(default="relation", init=False)

    @property
    def argument(self) -> str:
        """Relations are about several arguments; this is the text of the relation."""
        return self.condition.text


Check: TypeAlias = (
    TypeCheck
    | RankCheck
    | DtypeCheck
    | AxisCheck
    | ExtentCheck
    | FacetCheck
    | MemoryCheck
    | DeviceCheck
    | RelationCheck
)


def tier_of(check: Check) -> Tier:
    """Return when a check is looked at."""
    if isinstance(check, MemoryCheck):
        return "pointer"
    return check.subject.tier if isinstance(check, FacetCheck) else "metadata"


def list_checks(
    parameters: tuple[Parameter, ...],
    slots: tuple[Slot, ...],
    bindings: tuple[Binding, ...],
    conditions: tuple[Condition, ...],
    may_be_zero: frozenset[str],
    axis_names: frozenset[str],
) -> tuple[Check, ...]:
    """Return every check of a contract, in the order in which unexplained ones are reported.

    `axis_names` are the dims that stand alone as an axis somewhere; only for these does an int
    parameter have to be at least 1.
    """
    found: list[Check] = [TypeCheck(p) for p in parameters if not p.is_instance]
    found += [TypeCheck(slot) for slot in slots if slot.is_output or slot.path or slot.repeated]
    found += [RankCheck(slot) for slot in slots]
    found += [DtypeCheck(slot) for slot in slots]
    for slot in slots:
        found += [FacetCheck(slot, f) for f in slot.facets if isinstance(f, SameDtype)]
        for array, spec in enumerate(slot.arrays):
            found += [AxisCheck(slot, array, axis) for axis in range(len(spec.axes))]
    found += list(_extents(bindings, conditions, may_be_zero, axis_names))
    for slot in slots:
        found += [FacetCheck(slot, facet) for facet in slot.facets if _own_check(facet, slot)]
        apart = [facet for facet in slot.facets if isinstance(facet, NoAlias)]
        found += [MemoryCheck(slot, facet.parameters) for facet in apart]
        if shares_device(slot):
            found.append(DeviceCheck(slot))
    found += [RelationCheck(condition) for condition in conditions]
    return tuple(found)


def source_argument(source: Source) -> str | None:
    """Return the argument a source reads, or None for computed ones."""
    match source:
        case FromParameter(parameter, _):
            return parameter
        case FromAxis() | FromSolving():
            return source.slot.name
        case FromOne(sources):
            return sources[0].slot.name
        case _:
            return None


def _own_check(facet: Facet, slot: Slot) -> bool:
    if isinstance(facet, SameDtype) or facet.tier == "declaration" or facet == SameDevice():
        return False
    # Dense memory visits no element twice, so the weaker check would be dead.
    dense = any(isinstance(other, Contiguous) for other in slot.facets)
    return not (isinstance(facet, Mutated) and dense)


def _extents(
    bindings: tuple[Binding, ...],
    conditions: tuple[Condition, ...],
    may_be_zero: frozenset[str],
    axis_names: frozenset[str],
) -> Iterator[ExtentCheck]:
    stated = {name for condition in conditions for name in _stated_positive(condition)}
    for binding in bindings:
        first = binding.sources[0]
        if not isinstance(first, (FromParameter, FromAxis)):
            continue
        if isinstance(first, FromParameter) and binding.name not in axis_names:
            continue
        if binding.name not in may_be_zero and binding.name not in stated:
            yield ExtentCheck(binding.name, binding)


def _stated_positive(condition: Condition) -> Iterator[str]:
    """Yield the dims that an unconditional relation already keeps at 1 or more."""
    if not isinstance(condition, Relation) or condition.when is not None:
        return
    for part in conjuncts(condition.expression):
        match part:
            case Compare(Name(name), ((">=", Constant(int(low))),)) if low >= 1:
                yield name
            case Compare(Name(name), ((">", Constant(int(low))),)) if low >= 0:
                yield name


def shares_device(slot: Slot) -> bool:
    """Tell whether a slot has to lie on the common device."""
    return not any(
        isinstance(facet, AnyDevice) or (isinstance(facet, SameDevice) and facet.parameter)
        for facet in slot.facets
    )


def device_anchor(slots: tuple[Slot, ...]) -> Slot | None:
    """Return the slot whose device the others share: the first one that is always there."""
    sharing = [slot for slot in slots if shares_device(slot)]
    always = [s for s in sharing if not (s.optional or s.other_types or s.repeated)]
    return next(iter(always or sharing), None)
