"""Generated checks of tensors, in order: ranks and dtypes, dims, shapes, facets, relations."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from typing import Any

from tensorpact.contracts.checker.axes_code import (
    rank_mismatch,
    shape_mismatches,
    whole_shape,
)
from tensorpact.contracts.checker.code import Writer, joined
from tensorpact.contracts.checker.dims_code import DimsCode
from tensorpact.contracts.checker.facets_code import FacetsCode
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.checker.types_code import array_types, kind_test
from tensorpact.contracts.language.binding import Binding
from tensorpact.contracts.language.checks import ExtentCheck, RankCheck
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.expression import Expression, names_in
from tensorpact.contracts.language.facets import SameDtype
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
        self.chosen: set[str] = set()
        self.before_early_return = False
        self._last_test: tuple[tuple[int, int], list[str]] = ((0, 0), [])
        self.dims = DimsCode(self)

    def refuse_if(self, conditions: Iterable[str]) -> None:
        """Write one test that refuses the call where any of the conditions holds.

        It joins the test in front of it where the line stays short.
        """
        found = list(conditions)
        if not found:
            return
        lines, here = self.writer.lines, (self.writer.depth, len(self.writer.lines))
        if self._last_test[0] == here and self._fits([*self._last_test[1], *found]):
            del lines[-2:]
            found = [*self._last_test[1], *found]
        if self._fits(found):
            self.writer.write(f"if {joined(found, 'or')}:")
        else:
            self.writer.write_list("if (", found, "or", "):")
        self.writer.depth += 1
        self.writer.write(self.fail)
        self.writer.depth -= 1
        self._last_test = ((self.writer.depth, len(lines)), found)

    def _fits(self, conditions: list[str]) -> bool:
        return len(conditions) == 1 or len(joined(conditions, "or")) <= 92 - 4 * self.writer.depth

    def where_present(self, slot: Slot) -> contextlib.AbstractContextManager[None]:
        """Open a block that runs only where a slot holds a tensor."""
        condition = self.presence(slot)
        return self.writer.block(f"if {condition}:") if condition else contextlib.nullcontext()

    def presence(self, slot: Slot) -> str | None:
        """Return the condition under which a slot holds a tensor, or None for always."""
        value = self.scope.value(slot)
        if slot.other_types:
            if slot.repeated is not None:
                return kind_test(value, slot.repeated, self.scope)
            return joined(array_types(value, slot, self.scope), "or")
        return f"{value} is not None" if slot.optional else None

    def hoist_items(self) -> None:
        """Write variables for the items of fixed tuples."""
        for slot in self.slots:
            if slot.path:
                owner = next(p for p in self.contract.parameters if p.name == slot.parameter)
                item = f"{slot.parameter}[{slot.path[0]}]"
                if owner.other_hints or owner.scalars:
                    present = kind_test(slot.parameter, tuple, self.scope)
                    item = f"{item} if {present} else None"
                elif owner.optional:
                    item = f"{item} if {slot.parameter} is not None else None"
                self.writer.write(f"{self.scope.value(slot)} = {item}")

    def bind(self, binding: Binding) -> None:
        """Write the code that gives a dim its value."""
        self.dims.bind(binding)

    def write_for_early_return(self, condition: Expression) -> None:
        """Write what the condition of an early return needs, and nothing more."""
        self.before_early_return = True
        for name in names_in(condition):
            for binding in self.bindings:
                if binding.name == name:
                    self.bind(binding)
        before = [self.contract.checks[i] for i in self.contract.before_early_return]
        self.dims.write_extents({c.name for c in before if isinstance(c, ExtentCheck)})
        self.before_early_return = False

    def write_everything(self) -> None:
        """Write every check of the slots that is not written yet."""
        for binding in self.bindings:
            self.bind(binding)
        self.dims.write_extents()
        for slot in self.slots:
            self._last_test = ((0, 0), [])
            self.open(slot)
            self.write_shape(slot)
        facets = FacetsCode(self)
        facets.write_devices()
        for slot in self.slots:
            facets.write_facets(slot)
        if not self.results:
            facets.write_relations()

    # Ranks and dtypes

    def open(self, slot: Slot) -> None:
        """Write the type, rank and dtype checks of a slot, once."""
        if slot.name in self.opened:
            return
        self.opened.add(slot.name)
        value = self.scope.value(slot)
        if slot.is_output:
            self._write_output_type(slot, value)
        elif slot.path and not slot.other_types:
            self._write_item_type(slot, value)
        with self.where_present(slot):
            if slot.repeated is not None:
                with self.writer.block(f"for {self.item(slot)} in {value}:"):
                    types = joined(array_types(self.item(slot), slot, self.scope), "or")
                    self.refuse_if([f"not ({types})"])
                    self._write_rank_and_dtype(slot, self.item(slot))
            else:
                self._write_rank_and_dtype(slot, value)

    def _write_output_type(self, slot: Slot, value: str) -> None:
        if slot.other_types:
            return
        allowed = [f"{value} is None"] if slot.optional else []
        allowed += self._kinds(slot, value)
        self.refuse_if([f"not ({joined(allowed, 'or')})"])

    def _write_item_type(self, slot: Slot, value: str) -> None:
        missing = f"not ({joined(self._kinds(slot, value), 'or')})"
        self.refuse_if([f"{value} is not None and {missing}" if slot.optional else missing])

    def _kinds(self, slot: Slot, value: str) -> list[str]:
        if slot.repeated is not None:
            return [kind_test(value, slot.repeated, self.scope)]
        return array_types(value, slot, self.scope)

    def _write_rank_and_dtype(self, slot: Slot, value: str) -> None:
        conditions: list[str] = []
        if self.scope.keeps_shape(slot):
            self.writer.write(f"{self.shape(slot)} = {value}.shape")
        if self._checks_rank(slot):
            conditions += filter(None, [rank_mismatch(self.scope, slot, 0, self.shape(slot))])
        spec = slot.arrays[0]
        if self.one_dtype_set(slot) and spec.dtypes is not None and not self._dtype_follows(slot):
            conditions.append(self.scope.dtype_mismatch(value, spec.dtypes, spec.dtype_name))
        self.refuse_if(conditions)

    def _dtype_follows(self, slot: Slot) -> bool:
        """Tell whether `SameDtype` alone says all about the dtype of a slot."""
        facet = slot.facet(SameDtype)
        if facet is None or slot.name in self._read_before_early_return:
            return False
        other = next(s for s in self.contract.slots if s.name == facet.parameter)
        wanted, allowed = other.arrays[0].dtypes, slot.arrays[0].dtypes
        return other.always_there and wanted is not None and wanted <= (allowed or frozenset())

    def _checks_rank(self, slot: Slot) -> bool:
        """Tell whether the rank is looked at by itself: nothing that follows implies it."""
        if len(slot.arrays) > 1 or self.dims.unpacks(slot):
            return False
        if slot.repeated or slot.name in self._read_before_early_return:
            return True
        return whole_shape(self.scope, slot, 0) is None

    @functools.cached_property
    def _read_before_early_return(self) -> frozenset[str]:
        """Return the slots whose shapes are not compared when the call returns early."""
        checks = [self.contract.checks[position] for position in self.contract.before_early_return]
        return frozenset(check.slot.name for check in checks if isinstance(check, RankCheck))

    @staticmethod
    def one_dtype_set(slot: Slot) -> bool:
        """Tell whether all alternatives take the same dtypes."""
        return len({array.dtypes for array in slot.arrays}) == 1

    def shape(self, slot: Slot) -> str:
        """Return the variable (or the read) of a slot's shape."""
        if self.scope.keeps_shape(slot):
            owner = self.item(slot) if slot.repeated else self.scope.value(slot)
            return self.scope.shape(owner)
        return f"{self.scope.value(slot)}.shape"

    def item(self, slot: Slot) -> str:
        """Return the loop variable over a list of tensors."""
        return self.scope.part(self.scope.value(slot), "item")

    # Unions

    def choice(self, slot: Slot) -> str:
        """Return the variable that holds which alternative of a union fits."""
        return self.scope.part(self.scope.value(slot), "alternative")

    def choose_alternative(self, slot: Slot) -> None:
        """Write the choice between the alternatives of a union, by rank, dtype and known dims.

        In front of an early return wrong sizes are no fault: rank and dtype then decide alone.
        """
        if len(slot.arrays) == 1 or slot.repeated or slot.name in self.chosen:
            return
        self.chosen.add(slot.name)
        value, alternatives = self.scope.value(slot), range(len(slot.arrays))
        known = frozenset(self.dims.bound)
        tests: dict[str, int] = {}
        for array in alternatives:
            tests.setdefault(self._alternative_fits(slot, array, value, known), array)
        if self.before_early_return:
            for array in alternatives:
                misses = self._rank_or_dtype_misses(slot, array, value)
                tests.setdefault(self._none_of(misses), array)
        with self.where_present(slot):
            for number, (fits, array) in enumerate(tests.items()):
                with self.writer.block(f"{'elif' if number else 'if'} {fits}:"):
                    self.writer.write(f"{self.choice(slot)} = {array}")
            with self.writer.block("else:"):
                self.writer.write(self.fail)

    def _alternative_fits(
        self, slot: Slot, array: int, value: str, known: frozenset[str] | None
    ) -> str:
        """Return the test of one alternative, of its sizes as far as the `known` dims go."""
        misses = self._rank_or_dtype_misses(slot, array, value)
        misses += shape_mismatches(self.scope, slot, array, self.shape(slot), known)
        return self._none_of(misses)

    def _rank_or_dtype_misses(self, slot: Slot, array: int, value: str) -> list[str]:
        spec = slot.arrays[array]
        misses = [*filter(None, [rank_mismatch(self.scope, slot, array, self.shape(slot))])]
        if not self.one_dtype_set(slot) and spec.dtypes is not None:
            misses.append(self.scope.dtype_mismatch(value, spec.dtypes, spec.dtype_name))
        return misses

    @staticmethod
    def _none_of(misses: list[str]) -> str:
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
                if wanted is not None and self.one_dtype_set(slot):
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
            self.refuse_if(shape_mismatches(self.scope, slot, 0, shape))
