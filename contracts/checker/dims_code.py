"""Generated code that gives every dim its value, and the check that it is at least 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorpact.contracts.checker.axes_code import covered
from tensorpact.contracts.checker.code import joined
from tensorpact.contracts.checker.sizes import broadcast_sizes
from tensorpact.contracts.language.binding import (
    Binding,
    FromAxes,
    FromAxis,
    FromBroadcast,
    FromLet,
    FromOne,
    FromParameter,
    FromSolving,
    Source,
    computed_from,
    slots_of,
)
from tensorpact.contracts.language.checks import ExtentCheck
from tensorpact.contracts.language.dims import Named
from tensorpact.contracts.language.expression import Binary, Constant, Expression, Name
from tensorpact.contracts.language.parameters import Slot

if TYPE_CHECKING:
    from tensorpact.contracts.checker.checks_code import ChecksCode

_SIZE = "the size of the axis"
"""A name no dim can have."""


class DimsCode:
    """Writes the binding of dims; remembers which are bound."""

    def __init__(self, checks: ChecksCode) -> None:
        self.checks = checks
        self.scope = checks.scope
        self.writer = checks.writer
        contract = checks.contract
        self.bound: set[str] = {b.name for b in contract.bindings} if checks.results else set()
        self.extents = (
            []
            if checks.results
            else [check for check in contract.checks if isinstance(check, ExtentCheck)]
        )

    def bind(self, binding: Binding) -> None:
        """Write the code that gives a dim its value, once."""
        if binding.name in self.bound:
            return
        for needed in computed_from(binding, self.checks.bindings):
            self.bind(needed)
        for source in binding.sources:
            for slot in slots_of(source):
                self.checks.open(slot)
                self.checks.choose_alternative(slot)
            if source.settles:
                break
        first = binding.sources[0]
        if isinstance(first, FromAxis) and self.unpacks(first.slot):
            self._unpack(first.slot)
        else:
            self._write_sources(binding, self.scope.locals.spell(binding.name))
            self.bound.add(binding.name)

    def write_extents(self, names: set[str] | None = None) -> None:
        """Refuse empty dims: those of these names, or all that are not written yet."""
        due = [c for c in self.extents if names is None or c.name in names]
        self.extents = [check for check in self.extents if check not in due]
        conditions = []
        for check in due:
            variable = self.scope.locals.spell(check.name)
            present = [] if check.binding.always else [f"{variable} is not None"]
            conditions.append(joined([*present, f"{variable} < 1"], "and"))
        self.checks.refuse_if(conditions)

    def unpacks(self, slot: Slot) -> bool:
        """Tell whether a shape is taken apart in one go: each axis is what binds its dim."""
        if not slot.always_there:
            return False
        names = [axis.name for axis in slot.arrays[0].axes if isinstance(axis, Named)]
        if not names or len({*names}) != len(slot.arrays[0].axes):
            return False
        bindings = {binding.name: binding for binding in self.checks.bindings}
        return all(
            name in bindings and bindings[name].sources[0] == FromAxis(slot, 0, position)
            for position, name in enumerate(names)
        )

    def _unpack(self, slot: Slot) -> None:
        names = [axis.name for axis in slot.arrays[0].axes if isinstance(axis, Named)]
        variables = ", ".join(self.scope.locals.spell(name) for name in names)
        comma = "," if len(names) == 1 else ""
        self.writer.write(f"{variables}{comma} = {self.checks.shape(slot)}")
        self.bound.update(names)

    def _write_sources(self, binding: Binding, variable: str) -> None:
        depth = self.writer.depth
        for source in binding.sources:
            if isinstance(source, FromParameter):
                break
            condition = self._source_condition(source)
            if condition is not None:
                self.writer.write(f"if {condition}:")
                self.writer.depth += 1
                self._write_source(source, binding.name, variable)
                self.writer.depth -= 1
                self.writer.write("else:")
                self.writer.depth += 1
                continue
            self._write_source(source, binding.name, variable)
            break
        else:
            self.writer.write(f"{variable} = None")
        self.writer.depth = depth

    def _source_condition(self, source: Source) -> str | None:
        """Return the condition under which a source is there, or None for always."""
        match source:
            case FromAxis(slot, array, _, soft):
                parts = self._slot_condition(slot, array)
                if soft:
                    parts.append(f"{self._first_shape(slot)}[{source.index}] != 1")
            case FromAxes(slot, array, _):
                parts = self._slot_condition(slot, array)
            case FromSolving(slot, array, _, factor, rest):
                parts = self._slot_condition(slot, array)
                parts += self.scope.locals.presence(Binary("+", factor, rest))
            case FromOne(sources) | FromBroadcast(sources):
                pieces = [self._slot_condition(s.slot, s.array) for s in sources]
                always = any(not piece for piece in pieces)
                parts = [] if always else [joined([joined(p, "and") for p in pieces], "or")]
            case FromLet(expression):
                parts = self.scope.locals.presence(expression)
            case FromParameter():
                parts = []
        return joined(parts, "and") if parts else None

    def _slot_condition(self, slot: Slot, array: int) -> list[str]:
        value = self.scope.value(slot)
        parts = [p for p in [self.checks.presence(slot)] if p]
        if slot.repeated:
            length = f"{self.scope.builtin('len')}({value})"
            parts.append(f"{length} > 0")
            if len(slot.arrays) > 1:
                rank = f"{self.scope.builtin('len')}({value}[0].shape)"
                parts.append(f"{rank} == {len(slot.arrays[array].axes)}")
        elif len(slot.arrays) > 1:
            parts.append(f"{self.checks.choice(slot)} == {array}")
        return parts

    def _first_shape(self, slot: Slot) -> str:
        value = self.scope.value(slot)
        return f"{value}[0].shape" if slot.repeated else self.checks.shape(slot)

    def _write_source(self, source: Source, name: str, variable: str) -> None:
        write = self.writer.write
        match source:
            case FromAxis(slot, _, _, _):
                write(f"{variable} = {self._first_shape(slot)}[{source.index}]")
            case FromAxes(slot, array, position):
                write(f"{variable} = {covered(slot, array, position, self._first_shape(slot))}")
            case FromOne():
                write(f"{variable} = 1")
            case FromBroadcast(pieces):
                self._write_broadcast(pieces, variable)
            case FromLet(expression):
                write(f"{variable} = {self.scope.locals.expression(expression)}")
            case FromSolving():
                self._write_solution(source, name, variable)
            case FromParameter():
                pass

    def _write_broadcast(self, pieces: tuple[FromAxes, ...], variable: str) -> None:
        function = self.scope.constant("broadcast_sizes", broadcast_sizes)
        parts = []
        for piece in pieces:
            part = covered(piece.slot, piece.array, piece.axis, self._first_shape(piece.slot))
            condition = self._slot_condition(piece.slot, piece.array)
            parts.append(f"({part} if {joined(condition, 'and')} else ())" if condition else part)
        self.writer.write(f"{variable} = {function}({', '.join(parts)})")
        self.checks.refuse_if([f"{variable} is None"])

    def _write_solution(self, source: FromSolving, name: str, variable: str) -> None:
        size = f"{self._first_shape(source.slot)}[{source.index}]"
        spell = self.scope.locals.with_item({_SIZE: size}).expression
        low = 0 if name in self.checks.contract.zero else 1
        solution: Expression = Name(_SIZE)
        again: Expression = Name(name)
        if source.factor != Constant(1):
            again = Binary("*", source.factor, again)
        if source.rest != Constant(0):
            solution = Binary("-", solution, source.rest)
            again = Binary("+", again, source.rest)
        if source.factor != Constant(1):
            solution = Binary("//", solution, source.factor)
        self.writer.write(f"{variable} = {spell(solution)}")
        self.checks.refuse_if([f"{variable} < {low}", f"{spell(again)} != {size}"])
