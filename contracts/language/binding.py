"""The possible sources of each dim's value, and the names that expressions and axes use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tensorpact.contracts.language.dims import Named
from tensorpact.contracts.language.expression import Attribute, Expression, Method, walk
from tensorpact.contracts.language.expression import Name as NameNode
from tensorpact.contracts.language.parameters import Slot


@dataclass(frozen=True, slots=True)
class FromParameter:
    """The int passed as the parameter of the same name."""

    parameter: str
    optional: bool

    @property
    def settles(self) -> bool:
        """Whether no later source can count."""
        return True


@dataclass(frozen=True, slots=True)
class FromLet:
    """The value of a `let` expression."""

    expression: Expression

    @property
    def settles(self) -> bool:
        """Whether no later source can count."""
        return True


@dataclass(frozen=True, slots=True)
class FromAxis:
    """The size of one axis. A `soft` source (a broadcasting axis) counts only if it is not 1."""

    slot: Slot
    array: int
    axis: int
    soft: bool = False

    @property
    def index(self) -> int:
        """The axis as an index into the shape, counted from the end behind a variadic axis."""
        return shape_index(self.slot, self.array, self.axis)

    @property
    def settles(self) -> bool:
        """Whether no later source can count."""
        return self.slot.always_there and not self.soft


@dataclass(frozen=True, slots=True)
class FromAxes:
    """The sizes that a `*name` pattern covers."""

    slot: Slot
    array: int
    axis: int

    @property
    def settles(self) -> bool:
        """Whether no later source can count."""
        return self.slot.always_there


@dataclass(frozen=True, slots=True)
class FromBroadcast:
    """The broadcast of the sizes that all `*#name` patterns cover."""

    parts: tuple[FromAxes, ...]

    @property
    def settles(self) -> bool:
        """Whether no later source can count."""
        return True


@dataclass(frozen=True, slots=True)
class FromOne:
    """1, where every broadcasting axis of this name has size 1."""

    sources: tuple[FromAxis, ...]

    @property
    def settles(self) -> bool:
        """Whether no later source can count."""
        return False


@dataclass(frozen=True, slots=True)
class FromSolving:
    """The solution of `factor * name + rest == size of the axis`."""

    slot: Slot
    array: int
    axis: int
    factor: Expression
    rest: Expression

    @property
    def index(self) -> int:
        """The axis as an index into the shape."""
        return shape_index(self.slot, self.array, self.axis)

    @property
    def settles(self) -> bool:
        """Whether no later source can count."""
        return False


Source: TypeAlias = (
    FromParameter | FromLet | FromAxis | FromAxes | FromBroadcast | FromOne | FromSolving
)


@dataclass(frozen=True)
class Binding:
    """One dim and its possible sources; the first one that is there in a call counts."""

    name: str
    sources: tuple[Source, ...]
    always: bool
    variadic: bool = False


def shape_index(slot: Slot, array: int, axis: int) -> int:
    """Return the position of an annotated axis in the shape of a tensor."""
    spec = slot.arrays[array]
    behind = spec.flexible is not None and axis > spec.flexible
    return axis - len(spec.axes) if behind else axis


def axes_of(slot: Slot) -> Iterator[tuple[int, int, object]]:
    """Yield (alternative, position, axis) for every axis a slot may have."""
    for array, spec in enumerate(slot.arrays):
        for position, axis in enumerate(spec.axes):
            yield array, position, axis


def named_axes(slots: Iterable[Slot]) -> frozenset[str]:
    """Return the dims that stand alone as an axis of some tensor."""
    return frozenset(
        axis.name for slot in slots for _, _, axis in axes_of(slot) if isinstance(axis, Named)
    )


def dim_names(expression: Expression) -> tuple[str, ...]:
    """Return the names an expression uses as dims; owners of attributes are not dims."""
    owners = {
        id(node.owner)
        for node in walk(expression)
        if isinstance(node, (Attribute, Method)) and isinstance(node.owner, NameNode)
    }
    found = (
        node.id
        for node in walk(expression)
        if isinstance(node, NameNode) and id(node) not in owners
    )
    return tuple(dict.fromkeys(found))


def slots_of(source: Source) -> tuple[Slot, ...]:
    """Return the slots a source reads."""
    match source:
        case FromAxis() | FromAxes() | FromSolving():
            return (source.slot,)
        case FromOne(sources):
            return tuple(item.slot for item in sources)
        case FromBroadcast(parts):
            return tuple(part.slot for part in parts)
        case _:
            return ()


def computed_from(binding: Binding, bindings: Iterable[Binding]) -> list[Binding]:
    """Return those of `bindings` whose dims the expressions of a binding read."""
    names: set[str] = set()
    for source in binding.sources:
        match source:
            case FromLet(expression):
                names.update(dim_names(expression))
            case FromSolving(_, _, _, factor, rest):
                names.update(dim_names(factor), dim_names(rest))
            case _:
                pass
    return [b for b in bindings if b.name in names and b.name != binding.name]
