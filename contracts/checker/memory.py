"""Do two tensors share memory? Asked in debug mode only, by address; no element is read."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EXACT_LIMIT = 2**20
"""Elements up to which interleaved views are told apart exactly."""


def share_memory(one: Tensor, other: Tensor) -> bool:
    """Tell whether an element of one tensor lies where an element of another does.

    Views that interleave without touching do not share memory. Of very large interleaved views
    nothing is said. Tensors without an address (meta, fake) share none.

    >>> pool = torch.zeros(2, 3)
    >>> share_memory(pool[0], pool[1]), share_memory(pool[0], pool[:, 2])
    (False, True)
    """
    first, second = _byte_range(one), _byte_range(other)
    if one.device != other.device or first is None or second is None:
        return False
    (start, end), (other_start, other_end) = first, second
    if end <= other_start or other_end <= start:
        return False
    if one.is_contiguous() and start <= other_start:
        return True
    if other.is_contiguous() and other_start <= start:
        return True
    if max(one.numel(), other.numel()) > EXACT_LIMIT:
        return False
    unit = math.gcd(one.element_size(), other.element_size(), start - other_start)
    return bool(torch.isin(_units(one, start, unit), _units(other, other_start, unit)).any())


def _byte_range(tensor: Tensor) -> tuple[int, int] | None:
    """Return the first byte and the one past the last, or None for a tensor without memory."""
    if tensor.numel() == 0 or tensor.is_meta or tensor.layout is not torch.strided:
        return None
    try:
        start = tensor.data_ptr()
    except RuntimeError:
        return None  # fake tensors and those of function transforms have no address
    span = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (start, start + (span + 1) * tensor.element_size()) if start else None


def _units(tensor: Tensor, start: int, unit: int) -> Tensor:
    """Return the address of every unit of bytes that the elements of a tensor cover."""
    places = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places[:, None] + torch.arange(size) * stride).reshape(-1)
    inside = torch.arange(0, tensor.element_size(), unit)
    return ((start + places * tensor.element_size())[:, None] + inside).reshape(-1)
