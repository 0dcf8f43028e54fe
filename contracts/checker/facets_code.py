"""Generated checks of facets (layout, device, aliasing, dtype of another) and of relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorpact.contracts.checker.code import joined
from tensorpact.contracts.checker.sizes import visits_twice
from tensorpact.contracts.language.binding import shape_index
from tensorpact.contracts.language.checks import device_anchor, shares_device
from tensorpact.contracts.language.evaluation import cdiv, power_of_two
from tensorpact.contracts.language.expression import Call, Expression, walk
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

_FUNCTIONS = {"cdiv": cdiv, "power_of_two": power_of_two}


class FacetsCode:
    """Writes the checks that come after the shapes."""

    def __init__(self, checks: ChecksCode) -> None:
        self.checks = checks
        self.scope = checks.scope
        self.writer = checks.writer
        for node in self.scope._expressions():
            for part in walk(node):
                if isinstance(part, Call) and part.function in _FUNCTIONS:
                    self.scope.constant(part.function, _FUNCTIONS[part.function])

    # Devices

    def write_devices(self) -> None:
        """Write the check that all tensors lie on the device of the first."""
        sharing = [slot for slot in self.checks.slots if shares_device(slot)]
        anchor = device_anchor(self.checks.contract.slots)
        if self.checks.results:
            if anchor is None or not sharing:
                return
            others = sharing
        else:
            if anchor is None or (len(sharing) == 1 and not sharing[0].repeated):
                return
            others = [slot for slot in sharing if slot is not anchor or slot.repeated]
        self.writer.write(f"_device = {self._anchor_device(anchor)}")
        always = [slot for slot in others if slot.always_there]
        self.checks.refuse_if(f"{self.scope.value(slot)}.device != _device" for slot in always)
        for slot in others:
            if slot not in always:
                self._write_device(slot)

    def _write_device(self, slot: Slot) -> None:
        with self.checks.where_present(slot):
            if slot.repeated:
                with self.writer.block(f"for {self.checks.item(slot)} in {self.scope.value(slot)}:"):
                    self.checks.refuse_if([f"{self.checks.item(slot)}.device != _device"])
            else:
                self.checks.refuse_if([f"{self.scope.value(slot)}.device != _device"])

    def _anchor_device(self, anchor: Slot) -> str:
        if anchor.always_there or len(anchor.arrays) > 1 and self.checks.presence(anchor) is None:
            value = self.scope.value(anchor)
            return f"{value}.device" if not anchor.repeated else f"{value}[0].device"
        text = "None"
        sharing = [slot for slot in self.checks.contract.slots if shares_device(slot)]
        for slot in reversed(sharing):
            value = self.scope.value(slot)
            first = f"{value}[0].device" if slot.repeated else f"{value}.device"
            conditions = [c for c in [self.checks.presence(slot)] if c]
            conditions += [f"len({value}) > 0"] if slot.repeated else []
            text = f"{first} if {joined(conditions, 'and')} else {text}" if conditions else first
        return text

    # Facets

    def write_facets(self, slot: Slot) -> None:
        """Write the facets of one slot."""
        facets = [f for f in slot.facets if f.tier == "metadata"]
        dense = any(isinstance(facet, Contiguous) for facet in facets)
        facets = [f for f in facets if not (dense and isinstance(f, Mutated))]
        if not facets:
            return
        with self.checks.where_present(slot):
            if slot.repeated:
                item = self.checks.item(slot)
                with self.writer.block(f"for {item} in {self.scope.value(slot)}:"):
                    self.writer.write(f"{item}_shape = {item}.shape")
                    self._write_facets(slot, facets, item)
            else:
                self._write_facets(slot, facets, self.scope.value(slot))

    def _write_facets(self, slot: Slot, facets: list[Facet], value: str) -> None:
        if any(isinstance(facet, (LastDimContiguous, Strides, Mutated)) for facet in facets):
            self.writer.write(f"{value}_strides = {value}.stride()")
        self.checks.refuse_if(
            condition for facet in facets for condition in self._mismatches(slot, facet, value)
        )

    def _mismatches(self, slot: Slot, facet: Facet, value: str) -> list[str]:
        shape, strides = f"{value}_shape", f"{value}_strides"
        match facet:
            case Contiguous():
                return [f"not {value}.is_contiguous()"]
            case LastDimContiguous():
                return [f"{strides}[-1] != 1 and {shape}[-1] > 1"]
            case Mutated():
                self.scope.constant("visits_twice", visits_twice)
                return [f"0 in {strides} and visits_twice({shape}, {strides})"]
            case Strides(pattern):
                return self._stride_mismatches(slot, pattern, shape, strides)
            case SameDtype(other):
                return [self._against(other, f"{value}.dtype is not {other}.dtype")]
            case SameDevice(other):
                return [self._against(other, f"{value}.device != {other}.device")]
            case NoAlias():
                return [f"{value} is {other}" for other in facet.parameters]
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
        for number, condition in enumerate(self.checks.contract.where):
            guards = self._presence(condition.when) if condition.when is not None else []
            if condition.when is not None:
                guards.append(self.scope.locals.expression(condition.when))
            if isinstance(condition, Predicate):
                name = self.scope.constant(f"_predicate_{number}", condition.function)
                given = ", ".join(f"{n}={self.scope.locals.spell(n)}" for n in condition.names)
                maybe = sorted(set(condition.names) & self.scope.locals.maybe)
                guards += [f"{self.scope.locals.spell(n)} is not None" for n in maybe]
                refusal = f"not {name}({given})"
            else:
                guards += self._presence(condition.expression)
                refusal = f"not ({self.scope.locals.expression(condition.expression)})"
            self.checks.refuse_if([joined([*dict.fromkeys(guards), refusal], "and")])

    def _presence(self, node: Expression) -> list[str]:
        return sorted(self.scope.locals.presence(node))
