"""Which checks come before an early return: Python types, and what its condition reads."""

from __future__ import annotations

from tensorpact.contracts.language.binding import (
    Binding,
    FromLet,
    FromSolving,
    dim_names,
    slots_of,
)
from tensorpact.contracts.language.checks import (
    Check,
    DtypeCheck,
    ExtentCheck,
    RankCheck,
    TypeCheck,
)
from tensorpact.contracts.language.expression import Expression
from tensorpact.contracts.language.parameters import Parameter


def checks_before(
    condition: Expression, bindings: tuple[Binding, ...], checks: tuple[Check, ...]
) -> frozenset[int]:
    """Return the positions of the checks that are made before the condition is looked at."""
    names: set[str] = set()
    slots: set[str] = set()
    _collect(dim_names(condition), {b.name: b for b in bindings}, names, slots)
    found = set()
    for position, check in enumerate(checks):
        match check:
            case TypeCheck(Parameter()):
                found.add(position)
            case TypeCheck(slot) | RankCheck(slot) | DtypeCheck(slot) if slot.name in slots:
                found.add(position)
            case ExtentCheck(name) if name in names:
                found.add(position)
    return frozenset(found)


def _collect(
    wanted: tuple[str, ...], bindings: dict[str, Binding], names: set[str], slots: set[str]
) -> None:
    for name in wanted:
        if name in names or name not in bindings:
            continue
        names.add(name)
        for source in bindings[name].sources:
            slots.update(slot.name for slot in slots_of(source))
            if isinstance(source, FromLet):
                _collect(dim_names(source.expression), bindings, names, slots)
            elif isinstance(source, FromSolving):
                needed = (*dim_names(source.factor), *dim_names(source.rest))
                _collect(needed, bindings, names, slots)
            if source.settles:
                break
