"""Does one tensor keep one facet? The words for it where it does not."""

from __future__ import annotations

from typing import Any

import torch

from tensorpact.contracts.checker import texts
from tensorpact.contracts.checker.examination import Examination, Item, NoValueError, read
from tensorpact.contracts.checker.front_door import is_a
from tensorpact.contracts.checker.memory import share_memory
from tensorpact.contracts.checker.sizes import visits_twice
from tensorpact.contracts.language.binding import shape_index
from tensorpact.contracts.language.dtypes import dtype_text
from tensorpact.contracts.language.facets import (
    Contiguous,
    Facet,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
    SameDevice,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.strides import parse_strides


def facet_problem(found: Examination, item: Item, facet: Facet) -> texts.Words | None:
    """Return (argument, expected, actual, text, origin) where a tensor breaks a facet."""
    tensor: torch.Tensor = item.value
    match facet:
        case Contiguous() | LastDimContiguous() | Strides():
            return None if _laid_out(found, item, facet) else texts.wrong_layout(item, facet)
        case Mutated():
            return None if _laid_out(found, item, facet) else texts.written_twice(item)
        case SameDtype(other):
            wanted = _argument(found, other)
            if wanted is None or tensor.dtype is wanted.dtype:
                return None
            return texts.wrong_dtype_of(item, other, dtype_text(wanted.dtype))
        case SameDevice(str() as other):
            wanted = _argument(found, other)
            if wanted is None or tensor.device == wanted.device:
                return None
            return texts.wrong_device_of(item, other, wanted.device)
        case NoAlias():
            for other in facet.parameters:
                if found.arguments.get(other) is tensor:
                    return texts.same_object(item, other)
            return None
        case Is(other):
            wanted = _argument(found, other)
            same = wanted is None or tensor is wanted
            return None if same else texts.other_object(item, other)
        case _:
            return None


def memory_problem(found: Examination, item: Item, others: tuple[str, ...]) -> texts.Words | None:
    """Return the words for a tensor that shares memory with another, by another object."""
    for name in others:
        other = _argument(found, name)
        two = item.is_tensor and other is not None and other is not item.value
        if two and share_memory(item.value, other):
            return texts.overlapping(item, name)
    return None


def _argument(found: Examination, name: str) -> Any:
    value = found.arguments.get(name)
    return value if is_a(value, torch.Tensor) else None


def _laid_out(found: Examination, item: Item, facet: Facet) -> bool:
    """Tell whether the strides are as promised; a layout without strides keeps no promise."""
    tensor: torch.Tensor = item.value
    try:
        if isinstance(facet, Strides):
            return _strides_fit(found, item, facet)
        if isinstance(facet, Contiguous) or tensor.is_contiguous():
            return tensor.is_contiguous()
        if isinstance(facet, Mutated):
            return not visits_twice(tensor.shape, tensor.stride())
        return tensor.shape[-1] <= 1 or tensor.stride()[-1] == 1
    except (RuntimeError, IndexError):
        return False


def _strides_fit(found: Examination, item: Item, facet: Strides) -> bool:
    if not item.readable:
        return True
    strides = item.value.stride()
    for position, stride in enumerate(parse_strides(facet.pattern)):
        if stride is None:
            continue
        index = shape_index(item.slot, item.array or 0, position)
        try:
            wanted = read(stride, found.values)
        except NoValueError:
            return False
        if wanted is not None and item.shape[index] > 1 and strides[index] != wanted:
            return False
    return True
