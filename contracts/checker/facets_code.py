"""Generated checks of facets (layout, device, aliasing, dtype of another) and of relations."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensorpact.contracts.checker.code import joined
from tensorpact.contracts.checker.sizes import visits_twice
from tensorpact.contracts.language.binding import shape_index
from tensorpact.contracts.language.checks import device_anchor, shares_device
from tensorpact.contracts.language.facets import (
    Contiguous,
    Facet,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
    SameDevice,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.parameters import Slot
from tensorpact.contracts.language.rows import Predicate
from tensorpact.contracts.language.strides import parse_strides

if TYPE_CHECKING:
    from tensorpact.contracts.checker.checks_code import ChecksCode


class FacetsCode:
    """Writes the checks that come after the shapes."""

    def __init__(self, checks: ChecksCode) -> None:
        self.checks = checks
        self.scope = checks.scope
        self.writer = checks.writer

    # Devices

    def write_devices(self) -> None:
        """Write the check that all tensors lie on the device of the first."""
        anchor = device_anchor(self.checks.contract.slots)
        sharing = [slot for slot in self.checks.slots if shares_device(slot)]
        others = [s for s in sharing if self.checks.results or s is not anchor or s.repeated]
        if anchor is None or not others:
            return
        device = self.scope.local("_device")
        if self._is_certain(anchor):
            self._compare_with_anchor(self.scope.value(anchor), others, device)
            return
        self.writer.write(f"{device} = {self._first_device()}")
        found = self.writer.block(f"if {device} is not None:")
        with found if self.checks.results else contextlib.nullcontext():
            for slot in others:
                self._write_device(slot, device)

    def _compare_with_anchor(self, anchor: str, slots: list[Slot], device: str) -> None:
        """Compare with a tensor that is always there; the CPU is one device, told at once."""
        certain = [self.scope.value(slot) for slot in slots if self._is_certain(slot)]
        if certain:
            self.writer.write_list(
                "if not (", [f"{value}.is_cpu" for value in (anchor, *certain)], "and", "):"
            )
            self.writer.depth += 1
            self.writer.write(f"{device} = {anchor}.device")
            self.checks.refuse_if(f"{value}.device != {device}" for value in certain)
            self.writer.depth -= 1
        for slot in slots:
            if not self._is_certain(slot):
                self._write_device(slot, f"{anchor}.device")

    def _is_certain(self, slot: Slot) -> bool:
        """Tell whether exactly one tensor is passed here in every valid call."""
        return slot.repeated is None and self.checks.presence(slot) is None

    def _write_device(self, slot: Slot, device: str) -> None:
        with self.checks.where_present(slot):
            if slot.repeated:
                item = self.checks.item(slot)
                with self.writer.block(f"for {item} in {self.scope.value(slot)}:"):
                    self.checks.refuse_if([f"{item}.device != {device}"])
            else:
                self.checks.refuse_if([f"{self.scope.value(slot)}.device != {device}"])

    def _first_device(self) -> str:
        """Return the device of the first tensor that is there, None where there is none."""
        text = "None"
        sharing = [slot for slot in self.checks.contract.slots if shares_device(slot)]
        for slot in reversed(sharing):
            value = self.scope.value(slot)
            first = f"{value}[0].device" if slot.repeated else f"{value}.device"
            conditions = [c for c in [self.checks.presence(slot)] if c]
            conditions += [f"{self.scope.builtin('len')}({value}) > 0"] if slot.repeated else []
            text = f"{first} if {joined(conditions, 'and')} else {text}" if conditions else first
        return text

    # Facets

    def write_facets(self, slot: Slot) -> None:
        """Write the facets of one slot."""
        facets = [f for f in slot.facets if f.tier == "metadata" and f != SameDevice()]
        if not facets:
            return
        with self.checks.where_present(slot):
            if slot.repeated:
                item = self.checks.item(slot)
                with self.writer.block(f"for {item} in {self.scope.value(slot)}:"):
                    self._write_facets(slot, facets, item)
            else:
                self._write_facets(slot, facets, self.scope.value(slot))

    def _write_facets(self, slot: Slot, facets: list[Facet], value: str) -> None:
        dense = any(isinstance(facet, Contiguous) for facet in facets)
        views = [facet for facet in facets if isinstance(facet, (LastDimContiguous, Mutated))]
        if views and not dense:
            self._write_view(views, value)
        for facet in facets:
            if isinstance(facet, Strides):
                self._write_strides(slot, facet.pattern, value)
        others = [f for f in facets if not isinstance(f, (LastDimContiguous, Mutated, Strides))]
        self.checks.refuse_if(c for facet in others for c in self._mismatches(slot, facet, value))

    def _write_view(self, facets: Sequence[Facet], value: str) -> None:
        """Write what a view must keep; dense memory keeps it anyway and is told at once."""
        shape, strides = self.scope.shape(value), self.scope.part(value, "strides")
        conditions = []
        if any(isinstance(facet, LastDimContiguous) for facet in facets):
            conditions.append(f"{strides}[-1] != 1 and {shape}[-1] > 1")
        if any(isinstance(facet, Mutated) for facet in facets):
            twice = self.scope.constant("visits_twice", visits_twice)
            conditions.append(f"{twice}({shape}, {strides})")
        with self.writer.block(f"if not {value}.is_contiguous():"):
            self.writer.write(f"{shape}, {strides} = {value}.shape, {value}.stride()")
            self.checks.refuse_if(conditions)

    def _write_strides(self, slot: Slot, pattern: str, value: str) -> None:
        shape, strides = self.scope.shape(value), self.scope.part(value, "strides")
        self.writer.write(f"{shape}, {strides} = {value}.shape, {value}.stride()")
        self.checks.refuse_if(self._stride_mismatches(slot, pattern, shape, strides))

    def _mismatches(self, slot: Slot, facet: Facet, value: str) -> list[str]:
        match facet:
            case Contiguous():
                return [f"not {value}.is_contiguous()"]
            case SameDtype(other):
                return [self._against(other, f"{value}.dtype is not {other}.dtype")]
            case SameDevice(str() as other):
                return [self._against(other, f"{value}.device != {other}.device")]
            case NoAlias():
                others = [s for s in self.checks.contract.slots if s.name in facet.parameters]
                return [f"{value} is {other.name}" for other in others if _may_be_one(slot, other)]
            case Is(other):
                return [self._against(other, f"{value} is not {other}")]
            case _:
                raise TypeError(f"the guard does not know the facet {type(facet).__name__}")

    def _against(self, other: str, condition: str) -> str:
        slot = next(s for s in self.checks.contract.slots if s.name == other)
        presence = self.checks.presence(slot)
        return joined([presence, condition], "and") if presence else condition

    def _stride_mismatches(self, slot: Slot, pattern: str, shape: str, strides: str) -> list[str]:
        found = []
        for position, stride in enumerate(parse_strides(pattern)):
            if stride is not None:
                index = shape_index(slot, 0, position)
                presence = self.scope.locals.presence(stride)
                wanted = self.scope.locals.expression(stride)
                different = f"{strides}[{index}] != {wanted}"
                found.append(joined([*presence, f"{shape}[{index}] > 1", different], "and"))
        return found

    # Relations

    def write_relations(self) -> None:
        """Write every entry of `where`."""
        spelled = self.scope.locals
        for condition in self.checks.contract.where:
            guards = []
            if condition.when is not None:
                guards += [*spelled.presence(condition.when), spelled.expression(condition.when)]
            if isinstance(condition, Predicate):
                name = self.scope.constant("_predicate", condition.function)
                given = ", ".join(f"{n}={spelled.spell(n)}" for n in condition.names)
                guards += [
                    f"{spelled.spell(n)} is not None" for n in condition.names if spelled.maybe(n)
                ]
                refusal = f"not {name}({given})"
            else:
                guards += spelled.presence(condition.expression)
                refusal = f"not ({spelled.expression(condition.expression)})"
            self.checks.refuse_if([joined([*dict.fromkeys(guards), refusal], "and")])


def _may_be_one(slot: Slot, other: Slot) -> bool:
    """Tell whether one tensor may fit two slots: none does where all ranks differ."""
    if slot.repeated or other.repeated:
        return True
    pairs = [(a, b) for a in slot.arrays for b in other.arrays]
    return any(
        a.accepts_rank(max(a.minimum_rank, b.minimum_rank))
        and b.accepts_rank(max(a.minimum_rank, b.minimum_rank))
        for a, b in pairs
    )
