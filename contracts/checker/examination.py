"""What one call looks like to a contract: tensors by slot, chosen alternatives, bound dims.

This is the patient twin of the generated guard. It follows the same plan, but goes on where
something is broken, so that the diagnosis can say everything that is wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tensorpact.contracts.checker.code import needed_names
from tensorpact.contracts.checker.front_door import is_a, is_whole_number
from tensorpact.contracts.checker.sizes import broadcast_sizes, broadcasts_to
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
    dim_names,
    shape_index,
)
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.dims import Anonymous, Computed, Fixed, Named, Spliced, Variadic
from tensorpact.contracts.language.evaluation import Unbound, Values, evaluate
from tensorpact.contracts.language.expression import Expression, names_in, text_of
from tensorpact.contracts.language.parameters import Slot


class NoValueError(Exception):
    """An expression has no value on this call: a division by zero, an attribute not there."""


@dataclass
class Item:
    """One tensor (or what stands in its place) of one slot.

    `fitting` are the alternatives of the slot's union that take a tensor of this rank, `array` is
    the one that was chosen. A nested tensor has no shape.
    """

    slot: Slot
    name: str
    value: Any
    is_tensor: bool
    shape: tuple[int, ...] = ()
    has_shape: bool = True
    fitting: tuple[int, ...] = ()
    dtype_fits: bool = False
    array: int | None = None

    @property
    def rank_fits(self) -> bool:
        """Whether some alternative takes a tensor of this rank."""
        return bool(self.fitting)

    @property
    def readable(self) -> bool:
        """Whether its axes can be given meaning."""
        return self.is_tensor and self.rank_fits and self.array is not None

    @property
    def shape_words(self) -> str:
        """What to say of the shape."""
        return f"shape {self.shape}" if self.has_shape else "a nested tensor without a shape"


@dataclass
class Examination:
    """Everything known about one call."""

    contract: Contract[..., Any]
    arguments: Mapping[str, Any]
    items: dict[str, list[Item]] = field(default_factory=dict)
    dims: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    returns_early: bool = False

    @property
    def values(self) -> Values:
        """What names mean in this call."""
        unbound: dict[str, Any] = dict.fromkeys(self.contract.dims)
        return Values({**unbound, **self.dims}, self.arguments)

    def item_dims(self, item: Item) -> dict[str, int]:
        """Return the dims that belong to this item alone."""
        found: dict[str, int] = {}
        if item.array is not None:
            for position, axis in enumerate(item.slot.arrays[item.array].axes):
                if isinstance(axis, Named) and axis.per_item:
                    size = item.shape[shape_index(item.slot, item.array, position)]
                    found.setdefault(axis.name, size)
        return found

    def expected_size(self, item: Item, axis: object) -> Any:
        """Return the size an axis has to have, or None where nothing can be said.

        Raises:
            NoValueError: the expression has no value on this call.
        """
        values = Values({**self.dims, **self.item_dims(item)}, self.arguments)
        match axis:
            case Fixed(size):
                return size
            case Named(name) | Variadic(str() as name):
                return values.dims.get(name)
            case Computed(expression):
                return read(expression, values)
            case Spliced(expression):
                return _sizes(read(expression, values))
            case _:
                return None


def _sizes(value: Any) -> tuple[Any, ...] | None:
    """Return a tuple of sizes, or None for what is none: its type is wrong anyway."""
    if not issubclass(type(value), Sequence):
        return None
    sizes: tuple[Any, ...] = tuple(value)
    return sizes if all(map(is_whole_number, sizes)) else None


def read(expression: Expression, values: Values) -> Any:
    """Evaluate an expression, or return None where a name it needs has no value.

    Raises:
        NoValueError: the expression cannot be computed on this call.
    """
    needed = needed_names(expression)
    try:
        found = [*map(values.read, needed.values), *map(values.owner, needed.owners)]
    except Unbound:
        return None
    if any(value is None for value in found):
        return None
    try:
        return evaluate(expression, values)
    except Exception as error:
        raise NoValueError(str(error)) from error


def examine(
    contract: Contract[..., Any],
    arguments: Mapping[str, Any],
    results: tuple[Any, ...] | None = None,
) -> Examination:
    """Look at a call (and its results, one for each output slot) and bind what can be bound."""
    found = Examination(contract, arguments)
    for slot in contract.slots:
        found.items[slot.name] = _items(slot, _slot_value(slot, arguments[slot.parameter]))
    for slot, value in zip(contract.returned.slots, results or (), strict=False):
        found.items[slot.name] = _items(slot, value)
    bindings = [*contract.bindings, *(contract.output_bindings if results is not None else ())]
    for name in () if contract.early_return is None else names_in(contract.early_return):
        _bind_with_needed(found, [b for b in contract.bindings if b.name == name])
    for binding in bindings:
        _bind(found, binding)
    for slot in (*contract.slots, *contract.returned.slots):
        for item in found.items.get(slot.name, ()):
            _choose(found, item)
    found.returns_early = _returns_early(found)
    return found


def _slot_value(slot: Slot, value: Any) -> Any:
    for position in slot.path:
        if not is_a(value, tuple) or position >= len(value):
            return None
        value = value[position]
    return value


def _items(slot: Slot, value: Any) -> list[Item]:
    if slot.repeated is None:
        item = _item(slot, slot.name, value)
        elsewhere = value is None or (slot.other_types and not item.is_tensor)
        return [] if elsewhere else [item]
    values: Sequence[Any] = value if _holds_items(slot, value) else ()
    return [_item(slot, f"{slot.name}[{i}]", v) for i, v in enumerate(values)]


def _holds_items(slot: Slot, value: object) -> bool:
    return slot.repeated is not None and is_a(value, slot.repeated)


def _item(slot: Slot, name: str, value: Any) -> Item:
    if not any(is_a(value, array.array_type) for array in slot.arrays):
        return Item(slot, name, value, is_tensor=False)
    tensor: torch.Tensor = value
    shape = shape_of(tensor)
    item = Item(slot, name, tensor, True, shape or (), has_shape=shape is not None)
    item.fitting = tuple(
        index
        for index, array in enumerate(slot.arrays)
        if array.takes_any_shape or (shape is not None and array.accepts_rank(len(shape)))
    )
    item.dtype_fits = any(_takes_dtype(item, index) for index in item.fitting)
    return item


def shape_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the shape of a tensor, or None for a nested one, which has none."""
    try:
        return tuple(map(concrete, tensor.shape))
    except RuntimeError:
        return None


def concrete(size: Any) -> Any:
    """Return a symbolic size as the number it stands for in this trace, if it stands for one."""
    try:
        return operator.index(size)
    except Exception:
        return size


def _takes_dtype(item: Item, index: int) -> bool:
    dtypes = item.slot.arrays[index].dtypes
    return dtypes is None or item.value.dtype in dtypes


def _choose(found: Examination, item: Item) -> None:
    """Choose the alternative of a union: the first that fits what is known so far."""
    if item.array is not None or not item.rank_fits:
        return
    with_dtype = [index for index in item.fitting if _takes_dtype(item, index)]
    for index in with_dtype:
        item.array = index
        if all(axis_fits(found, item, position) for position in range(rank_axes(item))):
            return
    item.array = (with_dtype or item.fitting)[0]


def rank_axes(item: Item) -> int:
    """Return how many axes the chosen alternative annotates."""
    return len(item.slot.arrays[item.array or 0].axes)


def axis_fits(found: Examination, item: Item, position: int) -> bool:
    """Tell whether one annotated axis of a readable tensor has the size it has to have."""
    array = item.array or 0
    axis = item.slot.arrays[array].axes[position]
    actual = axis_size(item, position)
    if isinstance(axis, Anonymous):
        return True
    try:
        expected = found.expected_size(item, axis)
    except NoValueError:
        return False
    if expected is None:
        return True
    if isinstance(axis, (Variadic, Spliced)):
        if isinstance(axis, Variadic) and axis.broadcast:
            return broadcasts_to(actual, expected)
        return bool(tuple(actual) == tuple(expected))
    return bool((axis.broadcast and actual == 1) or actual == expected)


def axis_size(item: Item, position: int) -> Any:
    """Return the size of an annotated axis, or the sizes a pattern covers."""
    array = item.array or 0
    spec = item.slot.arrays[array]
    if spec.flexible == position:
        behind = len(spec.axes) - position - 1
        return item.shape[position : len(item.shape) - behind]
    return item.shape[shape_index(item.slot, array, position)]


def _bind_with_needed(found: Examination, bindings: list[Binding]) -> None:
    """Bind some dims and what they are computed from, as the guard does for an early return."""
    for binding in bindings:
        if binding.name not in found.dims:
            _bind_with_needed(found, computed_from(binding, found.contract.bindings))
            _bind(found, binding)


def _bind(found: Examination, binding: Binding) -> None:
    if binding.name in found.dims:
        return
    for source in binding.sources:
        for item in _read_items(found, source):
            _choose(found, item)
        if source.settles:
            break
    for source in binding.sources:
        try:
            value, origin = _value_of(found, source, binding.name)
        except NoValueError:
            continue
        if value is not None:
            found.dims[binding.name] = value
            found.origins[binding.name] = origin
            return


def _read_items(found: Examination, source: Source) -> list[Item]:
    match source:
        case FromAxis(slot) | FromAxes(slot) | FromSolving(slot):
            return found.items[slot.name][:1]
        case FromOne(sources):
            return [item for s in sources for item in found.items[s.slot.name][:1]]
        case FromBroadcast(parts):
            return [item for p in parts for item in found.items[p.slot.name][:1]]
        case _:
            return []


def _value_of(found: Examination, source: Source, name: str) -> tuple[Any, str]:
    """Return the value a source gives, or None, and where it comes from in words."""
    match source:
        case FromParameter(parameter):
            value = found.arguments[parameter]
            return (concrete(value) if is_whole_number(value) else None), f"parameter `{parameter}`"
        case FromLet(expression):
            return read(expression, found.values), _let_origin(found, expression)
        case FromAxis(_, array, axis, soft):
            item = _first(found, source.slot, array)
            size = None if item is None else axis_size(item, axis)
            return (None if soft and size == 1 else size), _axis_origin(item, source.index)
        case FromAxes(_, array, axis):
            item = _first(found, source.slot, array)
            size = None if item is None else axis_size(item, axis)
            return size, "" if item is None else f"the leading sizes of `{item.name}`"
        case FromOne(sources):
            present = [s for s in sources if _first(found, s.slot, s.array) is not None]
            return (1 if present else None), "broadcasting axes, all of size 1"
        case FromBroadcast(parts):
            items = [(p, _first(found, p.slot, p.array)) for p in parts]
            shapes = [axis_size(item, p.axis) for p, item in items if item is not None]
            names = ", ".join(f"`{item.name}`" for _, item in items if item is not None)
            return (broadcast_sizes(*shapes) if shapes else None), f"broadcasting {names}"
        case FromSolving():
            return _solution(found, source, name)


def _solution(found: Examination, source: FromSolving, name: str) -> tuple[Any, str]:
    item = _first(found, source.slot, source.array)
    if item is None:
        return None, ""
    factor, rest = read(source.factor, found.values), read(source.rest, found.values)
    if factor is None or rest is None:
        return None, ""
    size = axis_size(item, source.axis)
    if factor == 0:
        return None, ""
    solution = (size - rest) // factor
    low = 0 if name in found.contract.zero else 1
    if solution < low or factor * solution + rest != size:
        return None, ""
    axis = item.slot.arrays[source.array].axes[source.axis]
    return solution, f"{_axis_origin(item, source.index)}, solving {axis.text} = {size}"


def _first(found: Examination, slot: Slot, array: int) -> Item | None:
    """Return the first tensor of a slot, where it is readable as this alternative."""
    items = found.items[slot.name]
    return items[0] if items and items[0].readable and items[0].array == array else None


def _axis_origin(item: Item | None, index: int) -> str:
    if item is None:
        return ""
    return f"axis {index if index >= 0 else len(item.shape) + index} of `{item.name}`"


def _let_origin(found: Examination, expression: Expression) -> str:
    parts = [
        f"{name} = {found.dims[name]} from {found.origins[name]}"
        for name in dim_names(expression)
        if name in found.origins
    ]
    return f"{text_of(expression)}, {', '.join(parts)}" if parts else text_of(expression)


def _returns_early(found: Examination) -> bool:
    if found.contract.early_return is None:
        return False
    try:
        return bool(read(found.contract.early_return, found.values))
    except NoValueError:
        return False
