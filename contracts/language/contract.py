"""The contract of an op: a signature without a body, read once into plain data."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from tensorpact.contracts.language.binding import Binding, named_axes
from tensorpact.contracts.language.binding_plan import plan_bindings
from tensorpact.contracts.language.checks import Check, list_checks
from tensorpact.contracts.language.clauses import check_clauses
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.early_return import checks_before
from tensorpact.contracts.language.expression import Expression
from tensorpact.contracts.language.expression_parser import parse_expression
from tensorpact.contracts.language.hints import resolve_hints
from tensorpact.contracts.language.parameters import (
    Parameter,
    Returned,
    Slot,
    read_parameters,
    read_return,
    size_parameters,
)
from tensorpact.contracts.language.rows import Condition, ErrorRow, as_condition
from tensorpact.contracts.language.validation import row_checks, validate

P = ParamSpec("P")
R = TypeVar("R")

RESERVED_PARAMETERS = ("backend",)
"""Keyword parameters of the entry point itself; backends do not receive them."""


@dataclass(frozen=True, eq=False)
class Contract(Generic[P, R]):
    """What an op promises about its arguments and results.

    Calling `contract.source()` prints the generated guard, `contract.example()` draws a valid
    call, and `print(contract)` shows the whole as a table.
    """

    name: str
    module: str
    documentation: str
    signature: inspect.Signature
    parameters: tuple[Parameter, ...]
    returned: Returned
    let: Mapping[str, Expression]
    where: tuple[Condition, ...]
    errors: tuple[ErrorRow, ...]
    zero: Mapping[str, str]
    early_return: Expression | None
    anchors: tuple[str, ...]
    bindings: tuple[Binding, ...]
    output_bindings: tuple[Binding, ...]
    is_async: bool = False
    row_checks: tuple[frozenset[int], ...] = field(default=(), repr=False)

    @functools.cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every place of the arguments where tensors arrive."""
        return tuple(slot for parameter in self.parameters for slot in parameter.slots)

    @functools.cached_property
    def checks(self) -> tuple[Check, ...]:
        """Every check of the arguments."""
        return list_checks(
            self.parameters,
            self.slots,
            self.bindings,
            self.where,
            frozenset(self.zero),
            named_axes((*self.slots, *self.returned.slots)),
        )

    @functools.cached_property
    def output_checks(self) -> tuple[Check, ...]:
        """Every check of the results."""
        return list_checks((), self.returned.slots, (), (), frozenset(), frozenset())

    @functools.cached_property
    def before_early_return(self) -> frozenset[int]:
        """The positions of the checks that an early return does not skip."""
        if self.early_return is None:
            return frozenset()
        return checks_before(self.early_return, self.bindings, self.checks)

    @functools.cached_property
    def dims(self) -> tuple[str, ...]:
        """The names that have a value in a call: dims, int parameters and `let` names."""
        return tuple(binding.name for binding in self.bindings)

    def source(self) -> str:
        """Return the generated guard as Python text."""
        from tensorpact.contracts.checker.guard import guard_source

        return guard_source(self)

    def example(
        self, seed: int = 0, *, device: str = "cpu", sizes: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        """Draw a valid call: every parameter by name, free dims distinct.

        `sizes` fixes some dims. See `tensorpact.contracts.language.example`.
        """
        from tensorpact.contracts.language.example import draw_example

        return draw_example(self, seed, device=device, sizes=sizes or {})

    def __str__(self) -> str:
        from tensorpact.contracts.language.table import contract_table

        return contract_table(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_contract, (self.module, self.name)


def contract(
    *,
    let: Mapping[str, str] | None = None,
    where: Iterable[str | Condition] = (),
    errors: Iterable[ErrorRow] = (),
    zero: Mapping[str, str] | None = None,
    early_return: str | None = None,
    anchors: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Contract[P, R]]:
    """Declare a contract: decorate a function that has a signature and no body.

    Args:
        let: names for expressions, such as `{"kv_size": "num_kv_heads * head_dim"}`.
        where: relations that must hold, as text or from `relation(...)` and `predicate(...)`.
        errors: the documented errors in the order in which they are tried; see `raises`.
        zero: dims that may be 0, and what the op does then; every other dim is at least 1.
        early_return: where this holds, the op returns before anything else is looked at.
        anchors: tensors whose dims count first, so that the others are blamed for a mismatch.

    Raises:
        ContractDefinitionError: the contract contradicts itself or cannot be read.
    """
    names = _caller_names()

    def decorate(function: Callable[P, R]) -> Contract[P, R]:
        return build_contract(
            function,
            names=names,
            let=let,
            where=where,
            errors=errors,
            zero=zero,
            early_return=early_return,
            anchors=anchors,
        )

    return decorate


def build_contract(
    function: Callable[P, R],
    *,
    names: Mapping[str, Any],
    let: Mapping[str, str] | None = None,
    where: Iterable[str | Condition] = (),
    errors: Iterable[ErrorRow] = (),
    zero: Mapping[str, str] | None = None,
    early_return: str | None = None,
    anchors: Sequence[str] = (),
) -> Contract[P, R]:
    """Read a function's annotations and the clauses beside them into a `Contract`."""
    place = f"{function.__module__}.{function.__qualname__}"
    try:
        check_clauses(
            let=let,
            where=where,
            errors=errors,
            zero=zero,
            early_return=early_return,
            anchors=anchors,
        )
        hints = resolve_hints(function, names)
        parameters = read_parameters(function, hints, is_method=_looks_like_method(function))
        returned = read_return(hints, size_parameters(parameters))
        definitions = {name: _parsed(text, f"`let` {name}") for name, text in (let or {}).items()}
        slots = tuple(slot for parameter in parameters for slot in parameter.slots)
        bindings = plan_bindings(parameters, slots, definitions, tuple(anchors))
        arguments = frozenset(parameter.name for parameter in parameters)
        outputs = plan_bindings((), returned.slots, {}, (), already=bindings, names=arguments)
        built: Contract[P, R] = Contract(
            name=function.__qualname__,
            module=function.__module__,
            documentation=inspect.getdoc(function) or "",
            signature=inspect.signature(function),
            parameters=parameters,
            returned=returned,
            let=definitions,
            where=tuple(as_condition(entry) for entry in where),
            errors=tuple(errors),
            zero=dict(zero or {}),
            early_return=None if early_return is None else _parsed(early_return, "`early_return`"),
            anchors=tuple(anchors),
            bindings=bindings,
            output_bindings=outputs,
            is_async=inspect.iscoroutinefunction(function),
        )
        validate(built)
        object.__setattr__(built, "row_checks", row_checks(built))
        return built
    except ContractDefinitionError as error:
        raise error.at(place) from error.__cause__


def _parsed(text: str, place: str) -> Expression:
    try:
        return parse_expression(text)
    except ContractDefinitionError as error:
        raise error.at(place) from None


def _looks_like_method(function: Callable[..., Any]) -> bool:
    """Tell whether a function was written in a class body, where `self` needs no annotation."""
    outer, _, _ = function.__qualname__.rpartition(".")
    return bool(outer) and not outer.endswith("<locals>")


def _caller_names(depth: int = 2) -> Mapping[str, Any]:
    """Return the local names where a decorator is written, for annotations that need them."""
    return dict(sys._getframe(depth).f_locals)


def _find_contract(module: str, name: str) -> Any:
    """Unpickle a contract by importing it, as functions are."""
    value: Any = sys.modules.get(module) or __import__(module, fromlist=["_"])
    for part in name.split("."):
        value = getattr(value, part)
    return getattr(value, "contract", value)
