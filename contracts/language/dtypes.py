"""From a jaxtyping dtype class to the torch dtypes it stands for."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from tensorpact.contracts.language.definition_error import ContractDefinitionError


@functools.cache
def all_dtypes() -> dict[str, torch.dtype]:
    """Return every dtype of the installed torch by its own name, aliases left out."""
    found = (value for value in vars(torch).values() if isinstance(value, torch.dtype))
    return {str(dtype).removeprefix("torch."): dtype for dtype in found}


@functools.cache
def torch_dtypes(names: Any, class_name: str) -> frozenset[torch.dtype] | None:
    """Return the torch dtypes a jaxtyping class accepts, or None where it accepts all.

    `names` is the class's `dtypes`: names, compiled patterns, or a marker for "any".

    Raises:
        ContractDefinitionError: torch has none of these dtypes, so no call could be valid.
    """
    if not isinstance(names, (tuple, list)):
        return None
    accepted = frozenset(
        dtype for name, dtype in all_dtypes().items() if any(_same(name, want) for want in names)
    )
    if not accepted:
        raise ContractDefinitionError(f"torch has no dtype that `{class_name}` accepts.")
    return accepted


def dtype_text(dtype: torch.dtype) -> str:
    """Name a dtype as in `int32`.

    >>> dtype_text(torch.int32)
    'int32'
    """
    return str(dtype).removeprefix("torch.")


def _same(name: str, wanted: str | re.Pattern[str]) -> bool:
    return bool(wanted.match(name)) if isinstance(wanted, re.Pattern) else name == wanted
