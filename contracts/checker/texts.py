"""The default words for every kind of broken promise.

Each function returns (argument, expected, actual, text, origin). The text says what was expected,
what was given, and where the expectation comes from. No tensor value is ever read for it.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch

from tensorpact.contracts.checker.examination import (
    Examination,
    Item,
    NoValueError,
    axis_size,
    shape_of,
)
from tensorpact.contracts.checker.front_door import is_a
from tensorpact.contracts.language.binding import dim_names, shape_index
from tensorpact.contracts.language.dims import Axis, Computed, Named, Spliced, Variadic, dims_text
from tensorpact.contracts.language.dtypes import dtype_text
from tensorpact.contracts.language.evaluation import Unbound
from tensorpact.contracts.language.facets import Facet
from tensorpact.contracts.language.parameters import ArraySpec, Parameter, Slot
from tensorpact.contracts.language.plain_text import plain_text
from tensorpact.contracts.language.rows import Condition, Predicate

Words = tuple[str, str, str, str, str]


def wrong_type(parameter: Parameter, value: object) -> Words:
    """Describe a value of another Python type than the parameter takes."""
    expected, actual = type_words(parameter), value_words(value)
    text = f"`{parameter.name}` must be {expected}: got {actual}."
    return parameter.name, expected, actual, text, f"the annotation of `{parameter.name}`"


def wrong_item(item: Item) -> Words:
    """Describe something that is no tensor where one belongs."""
    expected, actual = _classes(item.slot), value_words(item.value)
    return item.name, expected, actual, f"`{item.name}` must be {expected}: got {actual}.", ""


def missing_item(slot: Slot) -> Words:
    """Describe nothing where a tensor belongs."""
    expected = _classes(slot)
    return slot.name, expected, "None", f"`{slot.name}` must be {expected}: got None.", ""


def wrong_rank(item: Item) -> Words:
    """Describe a tensor with another number of axes."""
    patterns = " or ".join(_rank_words(array) for array in item.slot.arrays)
    actual = item.shape_words
    text = f"`{item.name}` must have {patterns}: got {actual}."
    return item.name, patterns, actual, text, f"the annotation of `{item.name}`"


def wrong_dtype(item: Item) -> Words:
    """Describe a dtype outside the annotation."""
    fitting = [item.slot.arrays[index] for index in item.fitting]
    expected = " or ".join(dict.fromkeys(_dtype_words(array) for array in fitting))
    actual = dtype_text(item.value.dtype)
    text = f"`{item.name}` must have dtype {expected}: got {actual}."
    return item.name, f"dtype {expected}", f"dtype {actual}", text, ""


def wrong_dtype_of(item: Item, other: str, wanted: str) -> Words:
    """Describe a dtype that differs from another argument's."""
    actual = dtype_text(item.value.dtype)
    text = f"`{item.name}` must have dtype {wanted}, the dtype of `{other}`: got {actual}."
    return item.name, f"dtype {wanted}", f"dtype {actual}", text, f"the dtype of `{other}`"


def wrong_axis(found: Examination, item: Item, position: int) -> Words:
    """Describe an axis whose size is not the expected one."""
    axes = item.slot.arrays[item.array or 0].axes
    axis = axes[position]
    actual = axis_size(item, position)
    try:
        expected = found.expected_size(item, axis)
    except NoValueError as error:
        expected = f"the value of {axis.text}, which cannot be computed ({error})"
    origin = _origins(found, axis)
    wanted = _plain(expected) if isinstance(expected, (int, tuple, torch.SymInt)) else expected
    place = _place(item, position)
    text = (
        f"`{item.name}` must have shape {dims_text(axes)}: {place} must be {wanted}, "
        f"got {_plain(actual)} in shape {item.shape}"
    )
    text = f"{text}; {origin}." if origin else f"{text}."
    return item.name, f"{axis.text} = {wanted} in {place}", f"shape {item.shape}", text, origin


def unsolvable_axis(found: Examination, item: Item, position: int, name: str) -> Words:
    """Describe an axis that no positive whole value of its unknown dim explains."""
    axes = item.slot.arrays[item.array or 0].axes
    axis = axes[position]
    assert isinstance(axis, Computed)
    others = [other for other in dim_names(axis.expression) if other != name]
    origin = _known(found, others)
    place = _place(item, position)
    low = 0 if name in found.contract.zero else 1
    expected = f"{axis.text} in {place} for a whole {name} >= {low}"
    text = (
        f"`{item.name}` must have shape {dims_text(axes)}: no whole {name} >= {low} makes "
        f"{axis.text} equal to {_plain(axis_size(item, position))}, the size of {place} in shape "
        f"{item.shape}"
    )
    text = f"{text}; {origin}." if origin else f"{text}."
    return item.name, expected, f"shape {item.shape}", text, origin


def empty_dim(found: Examination, name: str, argument: str) -> Words:
    """Describe a dim below 1 that may not be."""
    value = _plain(found.dims[name])
    origin = found.origins[name]
    text = f"`{name}` must be at least 1: got {value} from {origin}."
    return argument, f"{name} >= 1", f"{name} = {value}", text, origin


def wrong_layout(item: Item, facet: Facet) -> Words:
    """Describe strides the op does not take."""
    actual = _memory_words(item)
    text = f"`{item.name}` must be {_layout_words(facet)}: got {actual}."
    return item.name, facet.describe(), actual, text, ""


def written_twice(item: Item) -> Words:
    """Describe an output with elements that share memory."""
    actual = _memory_words(item)
    text = (
        f"`{item.name}` is written in place and must not be expanded: got {actual}, in which "
        "several elements are one place in memory."
    )
    return item.name, "one place in memory for each element", actual, text, ""


def wrong_device(item: Item, anchor: Item) -> Words:
    """Describe a tensor on another device than the first."""
    expected, actual = str(anchor.value.device), str(item.value.device)
    text = f"`{item.name}` must be on {expected}, the device of `{anchor.name}`: got {actual}."
    return item.name, expected, actual, text, f"the device of `{anchor.name}`"


def wrong_device_of(item: Item, other: str, wanted: torch.device) -> Words:
    """Describe a tensor on another device than the one it is tied to."""
    actual = str(item.value.device)
    text = f"`{item.name}` must be on {wanted}, the device of `{other}`: got {actual}."
    return item.name, str(wanted), actual, text, f"the device of `{other}`"


def same_object(item: Item, other: str) -> Words:
    """Describe one tensor passed where two are needed."""
    expected = f"another tensor than `{other}`"
    text = f"`{item.name}` and `{other}` must be different tensors: got one tensor for both."
    return item.name, expected, f"the same tensor as `{other}`", text, ""


def overlapping(item: Item, other: str) -> Words:
    """Describe two tensors that lie on each other."""
    text = f"`{item.name}` and `{other}` must not share memory: got views of the same memory."
    return (
        item.name,
        f"no memory shared with `{other}`",
        f"a view that overlaps `{other}`",
        text,
        "",
    )


def other_object(item: Item, other: str) -> Words:
    """Describe a result that is not the tensor that was passed in."""
    text = f"`{item.name}` must be the tensor passed as `{other}`: got another one."
    return item.name, f"the tensor passed as `{other}`", "another tensor", text, ""


def broken_relation(found: Examination, condition: Condition) -> Words:
    """Describe a relation of `where` that does not hold."""
    names: tuple[str, ...]
    if isinstance(condition, Predicate):
        names = condition.names
    else:
        names = dim_names(condition.expression)
    known = _known(found, names)
    values = ", ".join(f"{name} = {_named_value(found, name)}" for name in names)
    actual = values or "a call that breaks it"
    text = f"{condition.text} must hold: got {actual}"
    text = f"{text}; {known}." if known else f"{text}."
    return condition.text, condition.text, actual, text, known


def type_words(parameter: Parameter) -> str:
    """Say which Python types a parameter takes."""
    words: list[str] = []
    for slot in parameter.slots:
        if slot.path:
            words = ["a tuple of tensors"]
        elif slot.repeated:
            words.append(f"a {slot.repeated.__name__.lower()} of tensors")
        else:
            words.append(_classes(slot))
    words += ["an int" if scalar == "int" else f"a {scalar}" for scalar in parameter.scalars]
    words += [_hint_words(hint) for hint in parameter.other_hints]
    if parameter.optional:
        words.append("None")
    return " or ".join(words)


def value_words(value: object) -> str:
    """Say what a value is, without printing a tensor or asking a strange object for its text."""
    kind = type(value)
    if value is None:
        return "None"
    if is_a(value, torch.Tensor):
        shape = shape_of(value)
        return f"a {kind.__name__}{'' if shape is None else f' of shape {shape}'}"
    if kind is str and isinstance(value, str) and len(value) > 40:
        return f"str of {len(value)} characters"
    if kind in (list, tuple) and isinstance(value, (list, tuple)):
        return f"{kind.__name__} of {len(value)}"
    if kind in (bool, int, float, str):
        return f"{kind.__name__} {plain_text(value, quoted=True)}"
    return f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__


def _hint_words(hint: Any) -> str:
    return (
        hint.__name__
        if inspect.isclass(hint)
        else re.sub(r"\b(typing|collections\.abc)\.", "", str(hint))
    )


def _classes(slot: Slot) -> str:
    names = dict.fromkeys(
        "torch.Tensor" if array.array_type is torch.Tensor else array.array_type.__name__
        for array in slot.arrays
    )
    return "a " + " or ".join(names)


def _rank_words(array: ArraySpec) -> str:
    count = array.minimum_rank
    least = "at least " if array.flexible is not None else ""
    return f"{least}{count} {'axis' if count == 1 else 'axes'} {dims_text(array.axes)}"


def _dtype_words(array: ArraySpec) -> str:
    names = sorted(dtype_text(dtype) for dtype in array.dtypes or ())
    if len(names) == 1:
        return names[0]
    return f"{array.dtype_name} ({', '.join(names)})" if len(names) <= 6 else array.dtype_name


def _layout_words(facet: Facet) -> str:
    described = facet.describe()
    return {"contiguous": "contiguous", "last dim contiguous": "contiguous in its last axis"}.get(
        described, f"laid out with {described}"
    )


def _memory_words(item: Item) -> str:
    try:
        return f"{item.shape_words} with strides {tuple(item.value.stride())}"
    except RuntimeError:
        return f"{item.shape_words} in the layout {item.value.layout}"


def _place(item: Item, position: int) -> str:
    array = item.array or 0
    if item.slot.arrays[array].flexible == position:
        return f"the part {item.slot.arrays[array].axes[position].text}"
    index = shape_index(item.slot, array, position)
    return f"axis {index if index >= 0 else len(item.shape) + index}"


def _plain(size: Any) -> str:
    return plain_text(tuple(size) if issubclass(type(size), (tuple, list)) else size)


def _origins(found: Examination, axis: Axis) -> str:
    match axis:
        case Named(name) | Variadic(str() as name):
            return _known(found, [name])
        case Computed(expression) | Spliced(expression):
            return _known(found, dim_names(expression))
        case _:
            return ""


def _known(found: Examination, names: Any) -> str:
    return ", ".join(
        f"{name} = {_plain(found.dims[name])} from {found.origins[name]}"
        for name in names
        if found.dims.get(name) is not None and found.origins.get(name)
    )


def _named_value(found: Examination, name: str) -> Any:
    try:
        value = found.values.read(name)
    except Unbound:
        return "?"
    return value_words(value) if issubclass(type(value), (torch.Tensor, list)) else _plain(value)
