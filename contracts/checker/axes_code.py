"""Generated checks of shapes."""

from __future__ import annotations

from tensorpact.contracts.checker.code import Locals, divisors, joined
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.checker.sizes import broadcasts_to
from tensorpact.contracts.language.binding import (
    FromAxes,
    FromAxis,
    FromSolving,
    dim_names,
    shape_index,
)
from tensorpact.contracts.language.dims import (
    Anonymous,
    Axis,
    Computed,
    Fixed,
    Named,
    Spliced,
    Variadic,
)
from tensorpact.contracts.language.parameters import Slot


def whole_shape(scope: Scope, slot: Slot, array: int) -> str | None:
    """Return the tuple the shape has to equal, or None where one comparison does not say it all.

    None also where nothing is left to compare, since every axis is what gives its dim a value.
    """
    axes = slot.arrays[array].axes
    if axes and all(settles_dim(scope, slot, array, position) for position in range(len(axes))):
        return None
    sizes: list[str] = []
    for axis in axes:
        size = _single_size(scope, scope.locals, axis)
        if size is None:
            return None
        sizes.append(size)
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def settles_dim(scope: Scope, slot: Slot, array: int, position: int) -> bool:
    """Tell whether a dim always gets its value from this very axis, so that it fits by itself."""
    if not slot.always_there:
        return False
    axis = slot.arrays[array].axes[position]
    match axis:
        case Named(str() as name, broadcast) | Variadic(str() as name, broadcast):
            names = [] if broadcast else [name]
        case Computed(expression, False):
            names = [*dim_names(expression)]
        case _:
            return False
    return any(_binds_here(scope, name, slot, array, position) for name in names)


def _binds_here(scope: Scope, name: str, slot: Slot, array: int, position: int) -> bool:
    binding = scope.bindings.get(name)
    first = binding.sources[0] if binding is not None and binding.always else None
    if not isinstance(first, (FromAxis, FromAxes, FromSolving)):
        return False
    return first.slot == slot and (first.array, first.axis) == (array, position)


def shape_mismatches(
    scope: Scope, slot: Slot, array: int, shape: str, known: frozenset[str] | None = None
) -> list[str]:
    """Return the conditions under which an alternative's axes do not fit a shape of its rank.

    `known` restricts them to axes whose dims are bound already; None means that all are.
    """
    found: list[str] = []
    own = _own_dims(slot, array)
    sizes = {name: f"{shape}[{shape_index(slot, array, p)}]" for name, p in own.items()}
    local = scope.locals.with_item(sizes)
    for position, axis in enumerate(slot.arrays[array].axes):
        if position in own.values() or settles_dim(scope, slot, array, position):
            continue
        if known is not None and _reads(axis) & scope.bindings.keys() - {*known, *own}:
            continue
        index = shape_index(slot, array, position)
        condition = _axis_mismatch(scope, slot, array, position, f"{shape}[{index}]", shape, local)
        if condition is not None:
            found.append(condition)
    return found


def _own_dims(slot: Slot, array: int) -> dict[str, int]:
    """Return the dims that belong to this tensor alone, each with its first axis."""
    found: dict[str, int] = {}
    for position, axis in enumerate(slot.arrays[array].axes):
        if isinstance(axis, Named) and axis.per_item:
            found.setdefault(axis.name, position)
    return found


def rank_mismatch(scope: Scope, slot: Slot, array: int, shape: str) -> str | None:
    """Return the condition under which a shape has the wrong number of axes."""
    spec = slot.arrays[array]
    rank = f"{scope.builtin('len')}({shape})"
    if spec.flexible is None:
        return f"{rank} != {len(spec.axes)}"
    return f"{rank} < {spec.minimum_rank}" if spec.minimum_rank else None


def _reads(axis: Axis) -> set[str]:
    if isinstance(axis, (Named, Variadic)):
        return {axis.name} if axis.name else set()
    return set(dim_names(axis.expression)) if isinstance(axis, (Computed, Spliced)) else set()


def _single_size(scope: Scope, local: Locals, axis: Axis) -> str | None:
    """Return the one size an axis may have, if that is known whenever the tensor is there."""
    if isinstance(axis, Fixed) and not axis.broadcast:
        return str(axis.size)
    if isinstance(axis, Named) and not (axis.broadcast or axis.per_item):
        return None if local.maybe(axis.name) else local.spell(axis.name)
    if isinstance(axis, Computed) and not axis.broadcast and not local.presence(axis.expression):
        return local.expression(axis.expression)
    return None


def _axis_mismatch(
    scope: Scope, slot: Slot, array: int, position: int, size: str, shape: str, local: Locals
) -> str | None:
    axis = slot.arrays[array].axes[position]
    match axis:
        case Anonymous():
            return None
        case Fixed(wanted, broadcast):
            return f"{size} != 1 and {size} != {wanted}" if broadcast else f"{size} != {wanted}"
        case Named(name, broadcast):
            presence = [f"{local.spell(name)} is not None"] if local.maybe(name) else []
            soft = [f"{size} != 1"] if broadcast else []
            return joined([*presence, *soft, f"{size} != {local.spell(name)}"], "and")
        case Computed(expression, broadcast):
            soft = [f"{size} != 1"] if broadcast else []
            different = f"{size} != {local.expression(expression)}"
            if len(slot.arrays) > 1:
                # Without a value this alternative does not fit, and the next one is tried.
                zero = [f"{local.expression(divisor)} == 0" for divisor in divisors(expression)]
                different = joined([*zero, different], "or")
            return joined([*local.presence(expression), *soft, different], "and")
        case Variadic(None):
            return None
        case Variadic(name, broadcast):
            part = covered(slot, array, position, shape)
            value = local.spell(str(name))
            presence = [f"{value} is not None"] if local.maybe(str(name)) else []
            if broadcast:
                function = scope.constant("broadcasts_to", broadcasts_to)
                return joined([*presence, f"not {function}({part}, {value})"], "and")
            return joined([*presence, f"{part} != {value}"], "and")
        case Spliced(expression):
            part = covered(slot, array, position, shape)
            as_tuple = scope.builtin("tuple")
            different = f"{as_tuple}({part}) != {as_tuple}({local.expression(expression)})"
            return joined([*local.presence(expression), different], "and")


def covered(slot: Slot, array: int, position: int, shape: str) -> str:
    """Return the part of a shape that a variadic or spliced pattern covers."""
    behind = len(slot.arrays[array].axes) - position - 1
    if position == 0 and behind == 0:
        return shape
    return f"{shape}[{position or ''}:{-behind if behind else ''}]"
