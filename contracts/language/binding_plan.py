"""How every dim gets its value: a fixed plan made at decoration, followed at each call.

The order is: int parameters; `let` definitions as soon as they can be computed; the tensors named
as anchors (their plain dims, then their expressions with one unknown); plain dims of tensors that
are always passed, of optional tensors and of union members; expressions with one unknown.
Nothing depends on the order in which the arguments are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

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
    axes_of,
    computed_from,
    dim_names,
)
from tensorpact.contracts.language.definition_error import ContractDefinitionError, near_name_hint
from tensorpact.contracts.language.dims import Computed, Named, Spliced, Variadic
from tensorpact.contracts.language.evaluation import linear_in
from tensorpact.contracts.language.expression import Expression
from tensorpact.contracts.language.parameters import Parameter, Slot


def plan_bindings(
    parameters: Iterable[Parameter],
    slots: tuple[Slot, ...],
    let: Mapping[str, Expression],
    anchors: tuple[str, ...],
    already: tuple[Binding, ...] = (),
    names: frozenset[str] = frozenset(),
) -> tuple[Binding, ...]:
    """Return the bindings of all dims in the order in which they are computed.

    `already` are bound and stay as they are; `names` are further parameters that may be spliced.

    Raises:
        ContractDefinitionError: a dim of an expression is bound nowhere.
    """
    planner = _Planner(slots, let, {binding.name: binding for binding in already})
    for parameter in parameters:
        if parameter.binds_dim:
            source = FromParameter(parameter.name, parameter.optional)
            planner.add(Binding(parameter.name, (source,), not parameter.optional))
    planner.settle_lets()
    for anchor in anchors:
        anchored = [slot for slot in slots if slot.parameter == anchor]
        planner.bind_plain(anchored)
        planner.solve(anchored)
    planner.bind_plain([slot for slot in slots if slot.always_there])
    planner.bind_plain(slots)
    planner.solve(slots)
    planner.refuse_unbound({*names, *(p.name for p in parameters)})
    return tuple(planner.bound.values())[len(already) :]


class _Planner:
    """The bindings found so far, in order."""

    def __init__(
        self, slots: tuple[Slot, ...], let: Mapping[str, Expression], bound: dict[str, Binding]
    ) -> None:
        self.slots = slots
        self.let = let
        self.bound = bound
        self.settled = frozenset(bound)

    def add(self, binding: Binding) -> None:
        self.bound[binding.name] = binding

    def settle_lets(self) -> None:
        """Bind every `let` name whose expression only reads what is bound."""
        progress = True
        while progress:
            progress = False
            for name, expression in self.let.items():
                reads = dim_names(expression)
                if name not in self.bound and all(read in self.bound for read in reads):
                    always = all(self.bound[read].always for read in reads)
                    self.add(Binding(name, (FromLet(expression),), always))
                    progress = True

    def bind_plain(self, preferred: Iterable[Slot]) -> None:
        """Bind the plain dims of some slots; other slots are further sources of the same dims."""
        for slot in preferred:
            for _, _, axis in axes_of(slot):
                if isinstance(axis, Named) and axis.per_item:
                    continue
                if not isinstance(axis, (Named, Variadic)) or axis.name is None:
                    continue
                if axis.name not in self.bound and axis.name not in self.let:
                    self.add(self.plain_binding(axis.name, slot))
        self.settle_lets()

    def plain_binding(self, name: str, preferred: Slot) -> Binding:
        order = [preferred, *(slot for slot in self.slots if slot is not preferred)]
        order.sort(key=lambda slot: (slot is not preferred, not slot.always_there))
        strict: list[Source] = []
        soft: list[FromAxis] = []
        parts: list[FromAxes] = []
        variadic = False
        for slot in order:
            for array, position, axis in axes_of(slot):
                if isinstance(axis, Variadic) and axis.name == name:
                    variadic = True
                    covering = FromAxes(slot, array, position)
                    (parts if axis.broadcast else strict).append(covering)
                elif isinstance(axis, Named) and axis.name == name and not axis.per_item:
                    if axis.broadcast:
                        soft.append(FromAxis(slot, array, position, soft=True))
                    else:
                        strict.append(FromAxis(slot, array, position))
        if variadic and (soft or any(isinstance(source, FromAxis) for source in strict)):
            raise ContractDefinitionError(f"`{name}` is one axis in one place and `*{name}` else.")
        sources: list[Source] = [*strict, *soft]
        always = any(source.settles for source in strict)
        if soft:
            sources.append(FromOne(tuple(soft)))
            always = always or any(source.slot.always_there for source in soft)
        if parts:
            sources.append(FromBroadcast(tuple(parts)))
            always = always or any(part.slot.always_there for part in parts)
        return Binding(name, tuple(sources), always, variadic)

    def solve(self, slots: Iterable[Slot]) -> None:
        """Solve axes that hold an expression with one unknown, until nothing more is found."""
        progress = True
        while progress:
            progress = False
            for slot in sorted(slots, key=lambda slot: not slot.always_there):
                for array, position, axis in axes_of(slot):
                    progress = self.solve_axis(slot, array, position, axis) or progress
            self.settle_lets()

    def solve_axis(self, slot: Slot, array: int, position: int, axis: object) -> bool:
        if not isinstance(axis, Computed) or axis.broadcast:
            return False
        names = dim_names(axis.expression)
        local = {
            other.name
            for other in slot.arrays[array].axes
            if isinstance(other, Named) and other.per_item
        }
        unknown = [name for name in names if name not in self.bound]
        if local.intersection(names):
            return False
        if len(unknown) == 1:
            name = unknown[0]
        elif not unknown:
            return self.add_fallback(slot, array, position, axis.expression, names)
        else:
            return False
        parts = linear_in(axis.expression, name)
        if parts is None or name in self.let:
            return False
        source = FromSolving(slot, array, position, *parts)
        known = all(self.bound[other].always for other in names if other != name)
        self.add(Binding(name, (source,), slot.always_there and known))
        return True

    def add_fallback(
        self, slot: Slot, array: int, position: int, expression: Expression, names: tuple[str, ...]
    ) -> bool:
        """Let an expression also give a dim that is otherwise bound by optional tensors only."""
        for name in names:
            binding = self.bound[name]
            if name in self.settled:
                continue
            optional = not binding.always and isinstance(binding.sources[0], (FromAxis, FromOne))
            seen = any(isinstance(source, FromSolving) for source in binding.sources)
            others = all(self.bound[other].always for other in names if other != name)
            parts = linear_in(expression, name)
            if optional and not seen and others and parts is not None and slot.always_there:
                source = FromSolving(slot, array, position, *parts)
                self.rebind(Binding(name, (*binding.sources, source), True))
                return True
        return False

    def rebind(self, binding: Binding) -> None:
        """Replace a binding; what is computed from it is found again by the loops that run."""
        self.unbind(binding.name)
        self.add(binding)
        self.settle_lets()

    def unbind(self, name: str) -> None:
        """Forget how a dim is computed, and all that is computed from it; plain axes stay."""
        gone = self.bound.pop(name)
        for reader in list(self.bound.values()):
            if reader.name in self.bound and computed_from(reader, [gone]):
                self.unbind(reader.name)
        plain = tuple(s for s in gone.sources if not isinstance(s, (FromLet, FromSolving)))
        if plain:
            self.add(replace(gone, sources=plain, always=False))

    def refuse_unbound(self, parameters: set[str]) -> None:
        for name in self.let:
            if name not in self.bound:
                raise self.unbound(name, f"`let` {name}", dim_names(self.let[name]), parameters)
        for slot in self.slots:
            for array, _, axis in axes_of(slot):
                if not isinstance(axis, (Computed, Spliced)):
                    continue
                local = {
                    other.name
                    for other in slot.arrays[array].axes
                    if isinstance(other, Named) and other.per_item
                }
                for name in dim_names(axis.expression):
                    known = name in self.bound or name in local
                    spliced = isinstance(axis, Spliced) and name in parameters
                    if not known and not spliced:
                        place = f"parameter `{slot.name}`, dim {axis.text!r}"
                        raise self.unbound(name, place, (name,), parameters)

    def unbound(
        self, name: str, place: str, reads: tuple[str, ...], parameters: set[str]
    ) -> ContractDefinitionError:
        missing = next((read for read in reads if read not in self.bound), name)
        known = {*self.bound, *self.let} - {missing}
        return ContractDefinitionError(
            f"nothing binds the dim `{missing}`: no axis, int parameter or `let` gives it a value, "
            "and it cannot be solved for.",
            place=place,
            hint=near_name_hint(missing, known),
        )
