"""A valid call of a contract, drawn by a seed: free dims are searched for, the rest is computed.

Nothing is drawn and thrown away: forms (None, a tensor, a number), dtypes and layouts are chosen
among what the contract allows, and the dims come from a search over the relations of `where`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.definition_error import near_name_hint
from tensorpact.contracts.language.example_call import DrawnCall, asks_for_none, relation_trees
from tensorpact.contracts.language.example_forms import NoExampleError, forms_of
from tensorpact.contracts.language.example_values import build_call
from tensorpact.contracts.language.expression import Compare, Name, walk
from tensorpact.contracts.language.parameters import Parameter
from tensorpact.contracts.language.search import UnsatisfiableError

__all__ = ["NoExampleError", "draw_example"]

_NO_SIZES: Mapping[str, int] = MappingProxyType({})
_MOST_COMBINATIONS = 64


def draw_example(
    contract: Contract[..., Any],
    seed: int,
    *,
    device: str = "cpu",
    sizes: Mapping[str, int] = _NO_SIZES,
) -> dict[str, Any]:
    """Draw a valid call: every parameter by name (the items of `*args` as a tuple).

    The instance of a method is left out. Free dims are small and differ from one another where
    the contract allows it; `sizes` fixes some of them. The same seed gives the same call.

    Raises:
        NoExampleError: a parameter cannot be made up, or nothing satisfies a relation; a ValueError
            that says which.
    """
    try:
        _refuse_sizes(contract, sizes)
        return _draw(contract, seed, torch.device(device), sizes)
    except NoExampleError as error:
        raise NoExampleError(f"no example of `{contract.name}`: {error}") from None


def _refuse_sizes(contract: Contract[..., Any], sizes: Mapping[str, Any]) -> None:
    for name, size in sizes.items():
        if name not in contract.dims:
            raise NoExampleError(
                f"unknown dim `{name}`. {near_name_hint(name, contract.dims)}".strip()
            )
        if not isinstance(size, int) or size < 0:
            raise NoExampleError(f"size {size!r} of `{name}` is no whole number from 0 up.")


def _draw(
    contract: Contract[..., Any], seed: int, device: torch.device, sizes: Mapping[str, int]
) -> dict[str, Any]:
    generator = random.Random(seed)
    forms = {p.name: forms_of(p, generator) for p in contract.parameters if not _skipped(p)}
    sensitive = [name for name in _compared_to_none(contract) if len(forms.get(name, ())) > 1]
    choices = itertools.product(*(forms[name] for name in sensitive))
    start = generator.getstate()
    problem: UnsatisfiableError | None = None
    for chosen in itertools.islice(choices, _MOST_COMBINATIONS):
        generator.setstate(start)
        first = {name: options[0] for name, options in forms.items()}
        call = DrawnCall(contract, {**first, **dict(zip(sensitive, chosen, strict=True))}, device)
        try:
            call.choose(generator, sizes)
        except UnsatisfiableError as error:
            problem = problem or error
            continue
        return build_call(call, generator, seed)
    assert problem is not None
    given = f" with sizes {dict(sizes)}" if sizes else ""
    text = repr(problem.constraint.text)
    if problem.alone:
        raise NoExampleError(f"nothing satisfies {text}{given}.")
    raise NoExampleError(
        f"nothing that was tried satisfies {text} beside the other relations{given}."
    )


def _skipped(parameter: Parameter) -> bool:
    """Tell whether a parameter is an instance, which the caller brings."""
    untyped = parameter.hint is Any and not parameter.has_default
    return parameter.is_instance or (parameter.name in ("self", "cls") and untyped)


def _compared_to_none(contract: Contract[..., Any]) -> tuple[str, ...]:
    found = (
        node.first.id
        for tree in relation_trees(contract)
        for node in walk(tree)
        if isinstance(node, Compare) and isinstance(node.first, Name) and asks_for_none(node)
    )
    return tuple(dict.fromkeys(found))
