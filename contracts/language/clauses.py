"""The Python types of what stands beside a signature in `@contract(...)`."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from typing import Any

from tensorpact.contracts.language.definition_error import (
    ContractDefinitionError,
    check_text,
    kind_text,
)
from tensorpact.contracts.language.rows import ErrorRow


def check_clauses(
    *, let: Any, where: Any, errors: Any, zero: Any, early_return: Any, anchors: Any
) -> None:
    """Refuse clauses that are not of the documented types.

    Raises:
        ContractDefinitionError: names the clause and what it takes.
    """
    for clause, value in (("let", let), ("zero", zero)):
        _check_mapping(clause, value)
    for clause, value in (("where", where), ("errors", errors), ("anchors", anchors)):
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise ContractDefinitionError(f"`{clause}` is a list, not {kind_text(value)}.")
    for row in errors:
        if not isinstance(row, ErrorRow):
            raise ContractDefinitionError(
                f"`errors` holds what `raises(...)` returns, not {kind_text(row)}."
            )
    for name in anchors:
        if not isinstance(name, str):
            raise ContractDefinitionError(f"`anchors` holds names, not {kind_text(name)}.")
    if not isinstance(early_return, (str, type(None))):
        raise ContractDefinitionError(f"`early_return` is a string, not {kind_text(early_return)}.")


def _check_mapping(clause: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ContractDefinitionError(
            f"`{clause}` maps names to strings; it is {kind_text(value)}."
        )
    for name, text in value.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise ContractDefinitionError(f"`{clause}` holds {name!r}, which is no name.")
        check_text(text, f"`{clause}` {name}")
