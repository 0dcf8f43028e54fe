"""Questions about shapes and strides that the generated guard asks in rare cases."""

from __future__ import annotations

from collections.abc import Sequence


def broadcast_sizes(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape several shapes broadcast to, or None.

    >>> broadcast_sizes((3, 1), (4,))
    (3, 4)
    """
    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        lead = len(result) - len(shape)
        for axis, size in enumerate(shape, start=lead):
            if size == 1:
                continue
            if result[axis] not in (1, size):
                return None
            result[axis] = size
    return tuple(result)


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Tell whether a shape broadcasts to another without changing it.

    >>> broadcasts_to((1, 4), (3, 4)), broadcasts_to((3, 4), (1, 4))
    (True, False)
    """
    return broadcast_sizes(shape, target) == tuple(target)


def visits_twice(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Tell whether an axis of more than one element has stride 0."""
    return any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True))
