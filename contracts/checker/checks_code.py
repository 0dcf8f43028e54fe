"""Generated checks of tensors, in order: ranks and dtypes, dims, shapes, facets, relations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from tensorpact.contracts.checker.axes_code import (
    covered,
    rank_mismatch,
    shape_mismatches,
    whole_shape,
)
from tensorpact.contracts.checker.code import Writer, joined, needed_names
from tensorpact.contracts.checker.facets_code import FacetsCode
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.checker.sizes import broadcast_sizes
from tensorpact.contracts.checker.types_code import array_types
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
    slots_of,
)
from tensorpact.contracts.language.checks import ExtentCheck
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.dims import Named
from tensorpact.contracts.language.expression import Binary, Expression, Name, names_in
from tensorpact.contracts.language.parameters import Slot


class ChecksCode:
    """Writes the tensor checks of one contract; remembers what is already written."""

    def __init__(
        self,
        contract: Contract[..., Any],
        scope: Scope,
        writer: Writer,
        fail: str,
        *,
        results: bool = False,
    ) -> None:
        self.contract = contract
        self.scope = scope
        self.writer = writer
        self.fail = fail
        self.results = results
        self.slots = contract.returned.slots if results else contract.slots
        self.bindings = contract.output_bindings if results else contract.bindings
        self.opened: set[str] = set()
        self.bound: set[str] = {b.name for b in contract.bindings} if results else set()
        self.chosen: set[str] = set()

    def refuse_if(self, conditions: Iterable[str]) -> None:
        """Write one test that refuses the call where any of the conditions holds."""
        found = list(conditions)
        if found:
            with self.writer.block(f"if {joined(found, 'or')}:"):
                self.writer.write(self.fail)

    def where_present(self, slot: Slot) -> contextlib.AbstractContextManager[None]:
        """Open a block that runs only where a slot holds a tensor."""
        condition = self.presence(slot)
        return self.writer.block(f"if {condition}:") if condition else contextlib.nullcontext()

    def presence(self, slot: Slot) -> str | None:
        """Return the condition under which a slot holds a tensor, or None for always."""
        value = self.scope.value(slot)
        if slot.other_types:
            return joined(array_types(value, slot, self.scope), "or")
        return f"{value} is not None" if slot.optional else None

    def hoist_items(self) -> None:
        """Write variables for the items of fixed tuples."""
        for slot in self.slots:
            if slot.path:
                owner = next(p for p in self.contract.parameters if p.name == slot.parameter)
                item = f"{slot.parameter}[{slot.path[0]}]"
                if owner.optional:
                    item = f"{item} if {slot.parameter} is not None else None"
                self.writer.write(f"{self.scope.value(slot)} = {item}")

    def write_for_early_return(self, condition: Expression) -> None:
        """Write what the condition of an early return needs, and nothing more."""
        for name in names_in(condition):
            for binding in self.bindings:
                if binding.name == name:
                    self.bind(binding)

    def write_everything(self) -> None:
        """Write every check of the slots that is not written yet."""
        for slot in self.slots:
            if self._opens_early(slot):
                self.open(slot)
        for binding in self.bindings:
            if binding.name not in self.bound:
                self.bind(binding)
        for slot in self.slots:
            self.open(slot)
            self.write_shape(slot)
        facets = FacetsCode(self)
        facets.write_devices()
        for slot in self.slots:
            facets.write_facets(slot)
        if not self.results:
            facets.write_relations()

    def _opens_early(self, slot: Slot) -> bool:
        return any(slot in slots_of(source) for b in self.bindings for source in b.sources)

    # Ranks and dtypes

    def open(self, slot: Slot) -> None:
        """Write the type, rank and dtype checks of a slot, once."""
        if slot.name in self.opened:
            return
        self.opened.add(slot.name)
        value = self.scope.value(slot)
        if slot.is_output:
            self._write_output_type(slot, value)
        elif slot.path and not slot.repeated:
            missing = joined(array_types(value, slot, self.scope), "or")
            optional = f"{value} is not None and " if slot.optional else ""
            if not slot.other_types:
                self.refuse_if([f"{optional}not ({missing})"])
        with self.where_present(slot):
            if slot.repeated is not None:
                with self.writer.block(f"for {self.item(slot)} in {value}:"):
                    types = joined(array_types(self.item(slot), slot, self.scope), "or")
                    self.refuse_if([f"not ({types})"])
                    self._write_rank_and_dtype(slot, self.item(slot))
            else:
                self._write_rank_and_dtype(slot, value)

    def _write_output_type(self, slot: Slot, value: str) -> None:
        allowed = array_types(value, slot, self.scope)
        if slot.repeated is not None:
            allowed = [f"isinstance({value}, {slot.repeated.__name__})"]
            self.scope.constant(slot.repeated.__name__, slot.repeated)
        if slot.optional:
            allowed.insert(0, f"{value} is None")
        if not slot.other_types:
            self.refuse_if([f"not ({joined(allowed, 'or')})"])

    def _write_rank_and_dtype(self, slot: Slot, value: str) -> None:
        conditions: list[str] = []
        if self.scope.needs_shape(slot):
            self.writer.write(f"{self.shape(slot)} = {value}.shape")
            if len(slot.arrays) == 1 and not self.scope.compares_whole_shape(slot):
                conditions += filter(None, [rank_mismatch(slot, 0, self.shape(slot))])
        if self._one_dtype_set(slot) and slot.arrays[0].dtypes is not None:
            spec = slot.arrays[0]
            conditions.append(self.scope.dtype_mismatch(value, spec.dtypes, spec.dtype_name))  # type: ignore[arg-type]
        self.refuse_if(conditions)

    @staticmethod
    def _one_dtype_set(slot: Slot) -> bool:
        return len({array.dtypes for array in slot.arrays}) == 1

    def shape(self, slot: Slot) -> str:
        """Return the variable (or the read) of a slot's shape."""
        if self.scope.needs_shape(slot):
            owner = self.item(slot) if slot.repeated else self.scope.value(slot)
            return f"{owner}_shape"
        return f"{self.scope.value(slot)}.shape"

    def item(self, slot: Slot) -> str:
        """Return the loop variable over a list of tensors."""
        return f"{self.scope.value(slot)}_item"

    # Dims

    def bind(self, binding: Binding) -> None:
        """Write the code that gives a dim its value, and the check that it is at least 1."""
        if binding.name in self.bound:
            return
        for needed in self._needed_first(binding):
            self.bind(needed)
        for source in binding.sources:
            for slot in slots_of(source):
                self.open(slot)
                self.choose_alternative(slot)
            if source.settles:
                break
        variable = self.scope.locals.spell(binding.name)
        self._write_sources(binding, variable)
        self.bound.add(binding.name)
        checked = any(
            isinstance(c, ExtentCheck) and c.name == binding.name for c in self.contract.checks
        )
        if checked and not self.results:
            present = [] if binding.always else [f"{variable} is not None"]
            self.refuse_if([joined([*present, f"{variable} < 1"], "and")])

    def _needed_first(self, binding: Binding) -> list[Binding]:
        names: set[str] = set()
        for source in binding.sources:
            if isinstance(source, FromLet):
                names |= needed_names(source.expression)
            elif isinstance(source, FromSolving):
                names |= needed_names(source.factor) | needed_names(source.rest)
        return [b for b in self.bindings if b.name in names and b.name != binding.name]

    def _write_sources(self, binding: Binding, variable: str) -> None:
        depth = self.writer.depth
        for source in binding.sources:
            if isinstance(source, FromParameter):
                break
            condition = self._source_condition(source)
            if condition is not None:
                self.writer.write(f"if {condition}:")
                self.writer.depth += 1
                self._write_source(source, variable)
                self.writer.depth -= 1
                self.writer.write("else:")
                self.writer.depth += 1
                continue
            self._write_source(source, variable)
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
                return joined(parts, "and") if parts else None
            case FromAxes(slot, array, _):
                parts = self._slot_condition(slot, array)
                return joined(parts, "and") if parts else None
            case FromSolving(slot, array, _, factor, rest):
                parts = self._slot_condition(slot, array)
                parts += self.scope.locals.presence(Binary("+", factor, rest))
                return joined(parts, "and") if parts else None
            case FromOne(sources):
                parts = [self._slot_condition(s.slot, s.array) for s in sources]
                return None if any(not p for p in parts) else joined(
                    [joined(p, "and") for p in parts], "or"
                )
            case FromBroadcast(pieces):
                parts = [self._slot_condition(p.slot, p.array) for p in pieces]
                return None if any(not p for p in parts) else joined(
                    [joined(p, "and") for p in parts], "or"
                )
            case FromLet(expression):
                presence = self.scope.locals.presence(expression)
                return joined(presence, "and") if presence else None
            case FromParameter():
                return None

    def _slot_condition(self, slot: Slot, array: int) -> list[str]:
        value = self.scope.value(slot)
        parts = [p for p in [self.presence(slot)] if p]
        if slot.repeated:
            parts.append(f"len({value}) > 0")
            if len(slot.arrays) > 1:
                parts.append(f"len({value}[0].shape) == {len(slot.arrays[array].axes)}")
        elif len(slot.arrays) > 1:
            parts.append(f"{self.choice(slot)} == {array}")
        return parts

    def _first_shape(self, slot: Slot) -> str:
        return f"{self.scope.value(slot)}[0].shape" if slot.repeated else self.shape(slot)

    def _write_source(self, source: Source, variable: str) -> None:
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
            case FromSolving(slot, _, _, factor, rest):
                self._write_solution(source, variable, factor, rest)
            case FromParameter():
                pass

    def _write_broadcast(self, pieces: tuple[FromAxes, ...], variable: str) -> None:
        self.scope.constant("broadcast_sizes", broadcast_sizes)
        parts = []
        for piece in pieces:
            part = covered(piece.slot, piece.array, piece.axis, self._first_shape(piece.slot))
            condition = self._slot_condition(piece.slot, piece.array)
            parts.append(f"({part} if {joined(condition, 'and')} else ())" if condition else part)
        self.writer.write(f"{variable} = broadcast_sizes({', '.join(parts)})")
        self.refuse_if([f"{variable} is None"])

    def _write_solution(
        self, source: FromSolving, variable: str, factor: Expression, rest: Expression
    ) -> None:
        spell = self.scope.locals.expression
        size = f"{self._first_shape(source.slot)}[{source.index}]"
        name = next(b.name for b in self.bindings if source in b.sources)
        low = 0 if name in self.contract.zero else 1
        remaining = Binary("-", Name(size), rest)
        self.writer.write(f"{variable} = ({spell(remaining)}) // ({spell(factor)})")
        again = Binary("+", Binary("*", factor, Name(variable)), rest)
        self.refuse_if([f"{variable} < {low}", f"{spell(again)} != {size}"])

    # Unions

    def choice(self, slot: Slot) -> str:
        """Return the variable that holds which alternative of a union fits."""
        return f"{self.scope.value(slot)}_alternative"

    def choose_alternative(self, slot: Slot) -> None:
        """Write the choice between the alternatives of a union, by rank, dtype and known dims."""
        if len(slot.arrays) == 1 or slot.repeated or slot.name in self.chosen:
            return
        self.chosen.add(slot.name)
        known = frozenset(self.bound)
        with self.where_present(slot):
            for array in range(len(slot.arrays)):
                fits = self._alternative_fits(slot, array, self.scope.value(slot), known)
                with self.writer.block(f"{'elif' if array else 'if'} {fits}:"):
                    self.writer.write(f"{self.choice(slot)} = {array}")
            with self.writer.block("else:"):
                self.writer.write(self.fail)

    def _alternative_fits(
        self, slot: Slot, array: int, value: str, known: frozenset[str] | None
    ) -> str:
        spec = slot.arrays[array]
        misses = list(filter(None, [rank_mismatch(slot, array, self.shape(slot))]))
        if not self._one_dtype_set(slot) and spec.dtypes is not None:
            misses.append(self.scope.dtype_mismatch(value, spec.dtypes, spec.dtype_name))
        misses += shape_mismatches(self.scope, slot, array, self.shape(slot), known)
        return f"not ({joined(misses, 'or')})" if misses else "True"

    # Shapes

    def write_shape(self, slot: Slot) -> None:
        """Write the checks of a slot's axes, once all dims are bound."""
        with self.where_present(slot):
            if slot.repeated is not None:
                self._write_item_shapes(slot)
            elif len(slot.arrays) == 1:
                wanted = whole_shape(self.scope, slot, 0)
                if wanted is not None:
                    self.refuse_if([f"{self.shape(slot)} != {wanted}"])
                else:
                    self.refuse_if(shape_mismatches(self.scope, slot, 0, self.shape(slot)))
            else:
                self._write_union_shapes(slot)

    def _write_union_shapes(self, slot: Slot) -> None:
        """Where dims come from the union, the alternative is chosen by now; else try them all."""
        if slot.name not in self.chosen:
            fits = []
            for array in range(len(slot.arrays)):
                wanted = whole_shape(self.scope, slot, array)
                if wanted is not None and self._one_dtype_set(slot):
                    fits.append(f"{self.shape(slot)} == {wanted}")
                else:
                    value = self.scope.value(slot)
                    fits.append(self._alternative_fits(slot, array, value, None))
            self.refuse_if([f"not ({joined(fits, 'or')})"])
            return
        for array in range(len(slot.arrays)):
            misses = shape_mismatches(self.scope, slot, array, self.shape(slot))
            if misses:
                chosen = f"{self.choice(slot)} == {array}"
                self.refuse_if([joined([chosen, joined(misses, "or")], "and")])

    def _write_item_shapes(self, slot: Slot) -> None:
        item, shape = self.item(slot), self.shape(slot)
        with self.writer.block(f"for {item} in {self.scope.value(slot)}:"):
            self.writer.write(f"{shape} = {item}.shape")
            if len(slot.arrays) > 1:
                fits = [
                    self._alternative_fits(slot, array, item, None)
                    for array in range(len(slot.arrays))
                ]
                self.refuse_if([f"not ({joined(fits, 'or')})"])
                return
            names: dict[str, str] = {}
            for position, axis in enumerate(slot.arrays[0].axes):
                if isinstance(axis, Named) and axis.per_item and axis.name not in names:
                    names[axis.name] = f"{item}_{axis.name}"
                    index = FromAxis(slot, 0, position).index
                    self.writer.write(f"{names[axis.name]} = {shape}[{index}]")
            self.refuse_if(shape_mismatches(self.scope, slot, 0, shape, item_dims=names))
