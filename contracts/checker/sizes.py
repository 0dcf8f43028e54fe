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
    """Tell whether two elements may share one place in memory.

    True where an axis has stride 0, or steps over less than what the axes of smaller strides span.

    >>> visits_twice((3, 4), (8, 1)), visits_twice((3, 4), (0, 1)), visits_twice((3, 4), (1, 1))
    (False, True, True)
    """
    if 0 in shape:
        return False
    # Compared pair by pair: the compiler cannot sort symbolic strides.
    axes = [(size - 1, stride) for size, stride in zip(shape, strides, strict=True) if size > 1]
    for axis, (_, stride) in enumerate(axes):
        smaller = [a for a, (_, other) in enumerate(axes) if a != axis and other <= stride]
        if stride <= sum(axes[a][0] * axes[a][1] for a in smaller):
            return True
    return False
