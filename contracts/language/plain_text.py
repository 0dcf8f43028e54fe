"""Values as text: never a tensor's values, never the text of an object nobody knows."""

from __future__ import annotations

import torch

HUGE = 10**40
"""From here on a whole number is told by its magnitude."""

_PRINTED_AS_THEY_ARE = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.Size,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
)


def plain_text(value: object, *, quoted: bool = False) -> str:
    """Print numbers, strings, tuples of them, dtypes and devices; of anything else the type.

    >>> plain_text((3, 4)), plain_text("bf16"), plain_text("bf16", quoted=True)
    ('(3, 4)', 'bf16', "'bf16'")
    >>> plain_text(torch.zeros(2)), plain_text(10**60)
    ('Tensor', 'about 2**199')
    """
    kind = type(value)
    if kind is str and isinstance(value, str):
        return repr(value) if quoted else value
    if kind is int and isinstance(value, int) and abs(value) >= HUGE:
        return f"about {'-' if value < 0 else ''}2**{abs(value).bit_length() - 1}"
    if value is None or kind in (bool, int, float) or issubclass(kind, _PRINTED_AS_THEY_ARE):
        return str(value)
    if kind is tuple and isinstance(value, tuple):
        items = [plain_text(item, quoted=True) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return kind.__name__
