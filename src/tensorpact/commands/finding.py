"""Finding ops by the names that users give them."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

from tensorpact.commands import UsageError


def own_ops() -> dict[str, Any]:
    """Return the ops of this project by name; methods as `Class.method`."""
    from tensorpact import ops

    found: dict[str, Any] = {}
    for name in ops.__all__:
        found.update(_ops_of(name, getattr(ops, name)))
    return found


def find_op(name: str) -> Any:
    """Return the op of this name: one of this project, or `package.module:attribute`.

    Raises:
        UsageError: there is none; names what was probably meant.
    """
    if ":" in name:
        return _imported(name)
    known = own_ops()
    if name in known:
        return known[name]
    raise UsageError(f"there is no op {name!r}. {_hint(name, known)}".rstrip())


def contract_of(subject: Any) -> Any:
    """Return the contract of an op (or a contract itself), or None."""
    from tensorpact.contracts import Contract

    found = subject if isinstance(subject, Contract) else getattr(subject, "contract", None)
    return found if isinstance(found, Contract) else None


def _ops_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if contract_of(value) is not None:
        yield name, value
    elif inspect.isclass(value):
        for attribute in vars(value):
            method = getattr(value, attribute)
            if contract_of(method) is not None:
                yield f"{name}.{attribute}", method


def _imported(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = importlib.import_module(module_name)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(f"the module {module_name!r} cannot be imported: {problem}") from error
    module = value
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if contract_of(value) is not None:
        return value
    public = [key for key in dir(module) if not key.startswith("_")]
    known = dict(pair for key in public for pair in _ops_of(key, getattr(module, key, None)))
    raise UsageError(f"{module_name} has no op {attribute!r}. {_hint(attribute, known)}".rstrip())


def _hint(name: str, known: dict[str, Any]) -> str:
    from tensorpact.contracts.language.definition_error import near_name_hint

    return near_name_hint(name, known)
