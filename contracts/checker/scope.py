"""The names of one generated function: variables, constants and the signature."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from tensorpact.contracts.checker.code import Locals
from tensorpact.contracts.checker.names import Names
from tensorpact.contracts.checker.signature import parameter_list
from tensorpact.contracts.language.binding import (
    Binding,
    FromLet,
    FromSolving,
    axes_of,
    slots_of,
)
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.dims import Computed, Spliced
from tensorpact.contracts.language.dtypes import dtype_text
from tensorpact.contracts.language.evaluation import cdiv, power_of_two
from tensorpact.contracts.language.expression import Call, Expression, walk
from tensorpact.contracts.language.facets import Strides
from tensorpact.contracts.language.parameters import Slot
from tensorpact.contracts.language.rows import Relation
from tensorpact.contracts.language.strides import parse_strides

_FUNCTIONS: dict[str, Callable[..., Any]] = {"cdiv": cdiv, "power_of_two": power_of_two}


def function_name(contract: Contract[..., Any]) -> str:
    """Return the name of the generated function."""
    name = contract.name.rpartition(".")[2]
    return name if name.isidentifier() and not keyword.iskeyword(name) else "guarded"


class Scope:
    """How a contract's parameters, dims, shapes and constants are spelled in its guard."""

    def __init__(
        self, contract: Contract[..., Any], further_expressions: Iterable[Expression] = ()
    ) -> None:
        self.contract = contract
        self.constants: dict[str, object] = {}
        self.bindings = {b.name: b for b in (*contract.bindings, *contract.output_bindings)}
        self._names = Names([function_name(contract), *(p.name for p in contract.parameters)])
        self._dtype_sets: dict[frozenset[torch.dtype], str] = {}
        integers = {p.name for p in contract.parameters if p.binds_dim}
        self.locals = Locals(
            dims={
                name: name if name in integers else self._names.spell("dim", name)
                for name in self.bindings
            },
            maybe_dims=frozenset(b.name for b in self.bindings.values() if not b.always),
            maybe_arguments=frozenset(p.name for p in contract.parameters if p.optional),
            functions={
                part.function: self._function(part.function)
                for node in (*self._expressions(), *further_expressions)
                for part in walk(node)
                if isinstance(part, Call)
            },
            shapes={},
        )
        self._sources = {slot.name for b in self.bindings.values() for slot in _read_by(b)}
        kept = [s for s in contract.slots if not (s.path or s.repeated) and self.keeps_shape(s)]
        self.locals = replace(self.locals, shapes={s.name: self.shape(s.name) for s in kept})

    def constant(self, name: str, value: object) -> str:
        """Register a global of the generated function and return its name."""
        for known, other in self.constants.items():
            if other is value:
                return known
        spelled = self._names.new(name)
        self.constants[spelled] = value
        return spelled

    def builtin(self, name: str) -> str:
        """Return how the generated function calls a builtin, whatever the parameters are named."""
        return self.constant(name, getattr(builtins, name))

    def part(self, variable: str, what: str) -> str:
        """Return the variable for something read from another variable: its shape, an item."""
        return self._names.spell(what, variable, f"{variable}_{what}")

    def shape(self, variable: str) -> str:
        """Return the variable that holds the shape of a tensor."""
        return self.part(variable, "shape")

    def value(self, slot: Slot) -> str:
        """Return the variable that holds what was passed in a slot."""
        if slot.is_output:
            result = self.local("_result")
            return self.part(result, str(slot.path[0])) if slot.path else result
        return self.part(slot.parameter, str(slot.path[0])) if slot.path else slot.name

    def local(self, name: str) -> str:
        """Return the variable for something that belongs to the whole call."""
        return self._names.spell("local", name)

    def signature(self) -> str:
        """Return the parameter list with defaults."""
        return parameter_list(self.contract.parameters, self.constant)

    def dtype_mismatch(self, value: str, dtypes: frozenset[torch.dtype], name: str) -> str:
        """Return the condition under which a tensor has none of these dtypes."""
        if len(dtypes) == 1:
            (dtype,) = dtypes
            return f"{value}.dtype is not {self.constant(dtype_text(dtype), dtype)}"
        if dtypes not in self._dtype_sets:
            self._dtype_sets[dtypes] = self.constant(f"{name}_dtypes", dtypes)
        return f"{value}.dtype not in {self._dtype_sets[dtypes]}"

    def keeps_shape(self, slot: Slot) -> bool:
        """Tell whether the shape is read more than once, so that it is kept in a variable."""
        from tensorpact.contracts.checker.axes_code import whole_shape

        if slot.repeated or len(slot.arrays) > 1 or slot.name in self._sources:
            return True
        if slot.arrays[0].takes_any_shape:
            return False
        return whole_shape(self, slot, 0) is None

    def _function(self, name: str) -> str:
        if name in _FUNCTIONS:
            return self.constant(name, _FUNCTIONS[name])
        return self.builtin(name)

    def _expressions(self) -> Iterator[Expression]:
        """Yield every expression that the guard may hold."""
        contract = self.contract
        yield from contract.let.values()
        if contract.early_return is not None:
            yield contract.early_return
        for condition in contract.where:
            if condition.when is not None:
                yield condition.when
            if isinstance(condition, Relation):
                yield condition.expression
        for slot in (*contract.slots, *contract.returned.slots):
            for _, _, axis in axes_of(slot):
                if isinstance(axis, (Computed, Spliced)):
                    yield axis.expression
            for facet in slot.facets:
                if isinstance(facet, Strides):
                    yield from filter(None, parse_strides(facet.pattern))
        for binding in self.bindings.values():
            for source in binding.sources:
                if isinstance(source, FromSolving):
                    yield from (source.factor, source.rest)
                elif isinstance(source, FromLet):
                    yield source.expression


def _read_by(binding: Binding) -> Iterator[Slot]:
    """Yield the slots whose shapes are read to give a dim its value."""
    for source in binding.sources:
        yield from slots_of(source)
        if source.settles:
            return
