"""Questions about shapes and strides that the generated guard asks in rare cases."""

from __future__ import annotations

from collections.abc import Sequence


def broadcast_sizes(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape several shapes broadcast to, or None.

    >>> broadcast_sizes((3, 1), (4,))
    (3, 4)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for offset, size in enumerate(reversed(shape), start=1):
            if size == 1:
                continue
            if result[-offset] not in (1, size):
                return None
            result[-offset] = size
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
