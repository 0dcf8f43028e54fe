"""The pattern language of `Strides`: one expression per axis, `_` for any."""

from __future__ import annotations

import functools

from tensorpact.contracts.language.expression import Expression
from tensorpact.contracts.language.expression_parser import parse_expression


@functools.cache
def parse_strides(pattern: str) -> tuple[Expression | None, ...]:
    """Return the wanted stride of each axis, None for one that is free.

    >>> parse_strides("_ 1")
    (None, Constant(value=1))
    """
    return tuple(None if part == "_" else parse_expression(part) for part in pattern.split())
