"""Generated checks of shapes."""

from __future__ import annotations

from tensorpact.contracts.checker.code import Locals, joined
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.checker.sizes import broadcasts_to
from tensorpact.contracts.language.binding import FromAxis, FromAxes, shape_index
from tensorpact.contracts.language.dims import Anonymous, Axis, Computed, Fixed, Named, Spliced
from tensorpact.contracts.language.dims import Variadic
from tensorpact.contracts.language.expression import Name
from tensorpact.contracts.language.parameters import Slot


def whole_shape(scope: Scope, slot: Slot, array: int) -> str | None:
    """Return the tuple the shape has to equal, or None where one comparison does not say it all."""
    sizes: list[str] = []
    for position, axis in enumerate(slot.arrays[array].axes):
        size = _single_size(scope, scope.locals, axis)
        if size is None or is_source(scope, slot, array, position):
            return None
        sizes.append(size)
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def is_source(scope: Scope, slot: Slot, array: int, position: int) -> bool:
    """Tell whether a dim may get its value from this axis."""
    axis = slot.arrays[array].axes[position]
    if isinstance(axis, (Named, Variadic)) and axis.name in scope.bindings:
        sources = scope.bindings[axis.name].sources
        for source in sources:
            if isinstance(source, (FromAxis, FromAxes)):
                if source.slot == slot and (source.array, source.axis) == (array, position):
                    return True
                if source.slot.always_there and not getattr(source, "soft", False):
                    return False
    return False


def is_only_source(scope: Scope, slot: Slot, array: int, position: int) -> bool:
    """Tell whether the dim of an axis is always bound from this very axis."""
    axis = slot.arrays[array].axes[position]
    if not isinstance(axis, (Named, Variadic)) or axis.name is None or slot.repeated:
        return False
    if axis.name not in scope.bindings or not slot.always_there:
        return False
    first = scope.bindings[axis.name].sources[0]
    same = isinstance(first, (FromAxis, FromAxes)) and first.slot == slot
    return same and (first.array, first.axis) == (array, position) and not axis.broadcast  # type: ignore[union-attr]


def shape_mismatches(
    scope: Scope,
    slot: Slot,
    array: int,
    shape: str,
    known: frozenset[str] | None = None,
    item_dims: dict[str, str] | None = None,
) -> list[str]:
    """Return the conditions under which an alternative's axes do not fit a shape of its rank.

    `known` restricts them to axes whose dims are bound already; None means that all are.
    `item_dims` collects the variables of dims that are free per item.
    """
    found: list[str] = []
    local = scope.locals.with_item(item_dims or {})
    for position, axis in enumerate(slot.arrays[array].axes):
        if is_only_source(scope, slot, array, position):
            continue
        index = shape_index(slot, array, position)
        condition = _axis_mismatch(scope, slot, array, position, f"{shape}[{index}]", shape, local)
        if condition is None:
            continue
        if known is not None and not _reads(axis) <= known:
            continue
        found.append(condition)
    return found


def rank_mismatch(slot: Slot, array: int, shape: str) -> str | None:
    """Return the condition under which a shape has the wrong number of axes."""
    spec = slot.arrays[array]
    if spec.flexible is None:
        return f"len({shape}) != {len(spec.axes)}"
    return f"len({shape}) < {spec.minimum_rank}" if spec.minimum_rank else None


def _reads(axis: Axis) -> set[str]:
    from tensorpact.contracts.language.binding import dim_names

    if isinstance(axis, (Named, Variadic)):
        return {axis.name} if axis.name else set()
    return set(dim_names(axis.expression)) if isinstance(axis, (Computed, Spliced)) else set()


def _single_size(scope: Scope, local: Locals, axis: Axis) -> str | None:
    """Return the one size an axis may have, if that is known whenever the tensor is there."""
    if isinstance(axis, Fixed) and not axis.broadcast:
        return str(axis.size)
    if isinstance(axis, Named) and not (axis.broadcast or axis.per_item):
        return None if axis.name in scope.locals.maybe else local.spell(axis.name)
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
        case Named(name, broadcast, per_item):
            if per_item and name not in local.dims:
                return None
            presence = [f"{local.spell(name)} is not None"] if name in local.maybe else []
            soft = [f"{size} != 1"] if broadcast else []
            return joined([*presence, *soft, f"{size} != {local.spell(name)}"], "and")
        case Computed(expression, broadcast):
            soft = [f"{size} != 1"] if broadcast else []
            wanted = local.expression(expression)
            return joined([*local.presence(expression), *soft, f"{size} != {wanted}"], "and")
        case Variadic(None):
            return None
        case Variadic(name, broadcast):
            part = covered(slot, array, position, shape)
            value = local.spell(str(name))
            presence = [f"{value} is not None"] if name in local.maybe else []
            if broadcast:
                scope.constant("broadcasts_to", broadcasts_to)
                return joined([*presence, f"not broadcasts_to({part}, {value})"], "and")
            return joined([*presence, f"{part} != {value}"], "and")
        case Spliced(expression):
            part = covered(slot, array, position, shape)
            wanted = f"tuple({local.expression(expression)})"
            presence = local.presence(expression)
            if isinstance(expression, Name) and expression.id not in local.maybe:
                presence = []
            return joined([*presence, f"tuple({part}) != {wanted}"], "and")


def covered(slot: Slot, array: int, position: int, shape: str) -> str:
    """Return the part of a shape that a variadic or spliced pattern covers."""
    behind = len(slot.arrays[array].axes) - position - 1
    if position == 0 and behind == 0:
        return shape
    return f"{shape}[{position or ''}:{-behind if behind else ''}]"
