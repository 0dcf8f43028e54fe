"""The names of one generated function: variables, constants and the signature."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch

from tensorpact.contracts.checker.code import Locals, may_fail, reads_instance, safe_variable
from tensorpact.contracts.language.binding import FromLet, FromSolving, axes_of
from tensorpact.contracts.language.checks import ExtentCheck
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.dims import Computed, Spliced
from tensorpact.contracts.language.dtypes import dtype_text
from tensorpact.contracts.language.expression import Expression
from tensorpact.contracts.language.facets import LastDimContiguous, Mutated, Strides
from tensorpact.contracts.language.parameters import Slot
from tensorpact.contracts.language.rows import Relation
from tensorpact.contracts.language.strides import parse_strides


class Scope:
    """How a contract's parameters, dims, shapes and constants are spelled in its guard."""

    def __init__(self, contract: Contract[..., Any]) -> None:
        self.contract = contract
        self.constants: dict[str, object] = {}
        self.parameters = frozenset(parameter.name for parameter in contract.parameters)
        self.bindings = {b.name: b for b in (*contract.bindings, *contract.output_bindings)}
        dims = {
            name: name if name in self._int_parameters() else safe_variable(name, self.parameters)
            for name in self.bindings
        }
        maybe = {binding.name for binding in self.bindings.values() if not binding.always}
        maybe |= {p.name for p in contract.parameters if p.optional and p.name not in dims}
        self.locals = Locals(dims, frozenset(maybe), {})
        kept = [s for s in contract.slots if not (s.path or s.repeated) and self.needs_shape(s)]
        self.locals = replace(self.locals, shapes={s.name: f"{s.name}_shape" for s in kept})

    def _int_parameters(self) -> frozenset[str]:
        return frozenset(p.name for p in self.contract.parameters if p.binds_dim)

    def constant(self, name: str, value: object) -> str:
        """Register a global of the generated function and return its name."""
        wanted, number = name, 1
        while self.constants.get(wanted, value) is not value or wanted in self.parameters:
            number += 1
            wanted = f"{name}_{number}"
        self.constants[wanted] = value
        return wanted

    def value(self, slot: Slot) -> str:
        """Return the variable that holds what was passed in a slot."""
        if slot.is_output:
            return "_result" if not slot.path else f"_result_{slot.path[0]}"
        return slot.name if not slot.path else f"{slot.parameter}_{slot.path[0]}"

    def signature(self) -> str:
        """Return the parameter list with defaults."""
        parts: list[str] = []
        parameters = self.contract.parameters
        star_written = False
        for index, parameter in enumerate(parameters):
            text = parameter.name
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                text, star_written = f"*{text}", True
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                text = f"**{text}"
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star_written:
                parts.append("*")
                star_written = True
            if parameter.has_default:
                text = f"{text}={self._default(parameter.name, parameter.default)}"
            parts.append(text)
            last_positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY and (
                index + 1 == len(parameters)
                or parameters[index + 1].kind is not inspect.Parameter.POSITIONAL_ONLY
            )
            if last_positional:
                parts.append("/")
        return ", ".join(parts)

    def _default(self, name: str, value: object) -> str:
        simple = value is None or type(value) in (bool, int, str)
        return repr(value) if simple else self.constant(f"_default_{name}", value)

    def dtype_mismatch(self, value: str, dtypes: frozenset[torch.dtype], name: str) -> str:
        """Return the condition under which a tensor has none of these dtypes."""
        if len(dtypes) == 1:
            (dtype,) = dtypes
            return f"{value}.dtype is not {self.constant(dtype_text(dtype), dtype)}"
        known = next((k for k, v in self.constants.items() if v == dtypes), None)
        return f"{value}.dtype not in {known or self.constant(f'{name}_dtypes', dtypes)}"

    def needs_shape(self, slot: Slot) -> bool:
        """Tell whether the shape is read more than once, so that it is kept in a variable."""
        if slot.repeated or len(slot.arrays) > 1 or not self.compares_whole_shape(slot):
            return True
        return any(isinstance(facet, (LastDimContiguous, Mutated, Strides)) for facet in slot.facets)

    def compares_whole_shape(self, slot: Slot) -> bool:
        """Tell whether one comparison of the shape with a tuple says everything about it."""
        from tensorpact.contracts.checker.axes_code import whole_shape

        return len(slot.arrays) == 1 and whole_shape(self, slot, 0) is not None

    @property
    def positive(self) -> frozenset[str]:
        """The dims that are known to be at least 1 once they are bound."""
        checked = {c.name for c in self.contract.checks if isinstance(c, ExtentCheck)}
        return frozenset(name for name in checked if self.bindings[name].always)

    @property
    def risky(self) -> bool:
        """Whether some expression may raise on a bad call, so that the guard needs a `try`."""
        instances = frozenset(p.name for p in self.contract.parameters if not p.slots)
        return any(
            may_fail(node, self.positive) or reads_instance(node, instances)
            for node in self._expressions()
        )

    def _expressions(self) -> list[Expression]:
        contract = self.contract
        found = list(contract.let.values())
        if contract.early_return is not None:
            found.append(contract.early_return)
        for condition in contract.where:
            found += [condition.when] if condition.when is not None else []
            found += [condition.expression] if isinstance(condition, Relation) else []
        for slot in contract.slots:
            found += [
                axis.expression
                for _, _, axis in axes_of(slot)
                if isinstance(axis, (Computed, Spliced))
            ]
            for facet in slot.facets:
                if isinstance(facet, Strides):
                    found += [stride for stride in parse_strides(facet.pattern) if stride]
        for binding in contract.bindings:
            for source in binding.sources:
                if isinstance(source, FromSolving):
                    found += [source.rest]
                elif isinstance(source, FromLet):
                    found.append(source.expression)
        return found
