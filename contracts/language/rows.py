"""Relations between dims, and the table of documented errors that explains what broke."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensorpact.contracts.language.definition_error import (
    ContractDefinitionError,
    check_text,
    near_name_hint,
)
from tensorpact.contracts.language.expression import Expression, text_of
from tensorpact.contracts.language.expression_parser import parse_expression
from tensorpact.contracts.language.facets import ROW_FACETS
from tensorpact.contracts.language.template import Template


@dataclass(frozen=True)
class Relation:
    """Something that must hold between dims and parameters, where `when` holds."""

    expression: Expression
    text: str
    when: Expression | None = None


@dataclass(frozen=True)
class Predicate:
    """A relation written in Python; nothing that reasons about contracts can look inside.

    It is called with the parameters and dims that its own parameters name.
    """

    function: Callable[..., bool]
    text: str
    when: Expression | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters and dims it reads."""
        return tuple(inspect.signature(self.function).parameters)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Condition: TypeAlias = Relation | Predicate


def relation(text: str, *, when: str | None = None) -> Relation:
    """Declare a relation that is looked at only `when` another expression holds.

    A plain string in `where=[...]` is the same without `when`.

    >>> relation("rotary_dim % 2 == 0", when="rotary_dim > 0").text
    'rotary_dim % 2 == 0'
    """
    try:
        check_text(text, "a relation")
        tree = parse_expression(text)
    except ContractDefinitionError as error:
        raise error.at("`where`") from None
    return Relation(tree, text, _guard(when))


def predicate(function: Callable[..., bool], text: str, *, when: str | None = None) -> Predicate:
    """Declare an opaque relation: a Python function over parameters and dims, and what it means."""
    check_text(text, "what a predicate means")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = None
    if parameters is None or any(p.kind not in _BY_NAME for p in parameters):
        raise ContractDefinitionError(
            "a predicate is a function whose parameters can be given by name.",
            place=f"predicate {text!r}",
        )
    return Predicate(function, text, _guard(when))


def _guard(when: str | None) -> Expression | None:
    if when is None:
        return None
    try:
        check_text(when, "it")
        return parse_expression(when)
    except ContractDefinitionError as error:
        raise error.at("`when`") from None


@dataclass(frozen=True, slots=True)
class FacetTarget:
    """`write_pos: dims[1:]`: one facet of one parameter (`*` for any)."""

    parameter: str
    facet: str
    axes: slice | None = None


@dataclass(frozen=True, slots=True)
class RelationTarget:
    """One entry of `where`, by its text."""

    expression: Expression | None
    text: str


Target: TypeAlias = FacetTarget | RelationTarget


@dataclass(frozen=True)
class ErrorRow:
    """One documented error: which message belongs to which broken facets.

    Rows are tried in the order of the contract. A row can neither make an input valid nor invalid.
    """

    slug: str
    template: Template
    targets: tuple[Target, ...]
    when: Expression | None = None
    cause: str = ""
    fix: str = ""


def raises(
    slug: str,
    message: str,
    *,
    unless: str | Sequence[str],
    when: str | None = None,
    cause: str = "",
    fix: str = "",
) -> ErrorRow:
    """Declare a documented error: `message` is raised unless the named facets hold.

    `unless` is a list of `"parameter: facet facet ..."` and of relations as they stand in `where`.
    Facets are `type rank dtype dims shape extent layout device alias mutated identity value`,
    where `dims[1]` and `dims[1:]` name single axes and `shape` stands for rank, dims and extent.
    `cause` and `fix` are sentences for the person who meets the error.

    >>> raises("pos-1d", "`pos` must be 1D.", unless="pos: rank").targets
    (FacetTarget(parameter='pos', facet='rank', axes=None),)
    """
    check_text(slug, "an error slug")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug):
        raise ContractDefinitionError(
            f"error slug {slug!r} is not lower-case words joined by hyphens."
        )
    try:
        check_text(message, "the message")
        if not isinstance(unless, (str, list, tuple)):
            raise ContractDefinitionError("`unless` is a string or a list of strings.")
        entries = (unless,) if isinstance(unless, str) else tuple(unless)
        for entry in entries:
            check_text(entry, "an entry of `unless`")
        targets = tuple(target for entry in entries for target in _targets(entry))
        if not targets:
            raise ContractDefinitionError("`unless` names nothing.")
        guard = _guard(when)
        return ErrorRow(slug, Template.parse(message), targets, guard, cause, fix)
    except ContractDefinitionError as error:
        raise error.at(f"error `{slug}`") from None


def _targets(entry: str) -> list[Target]:
    match = re.fullmatch(r"\s*(\*|[\w.\[\]]+)\s*:\s*(.+)", entry)
    if match is None:
        try:
            return [RelationTarget(parse_expression(entry), entry)]
        except ContractDefinitionError:
            return [RelationTarget(None, entry)]
    parameter, words = match.groups()
    found: list[Target] = []
    for word in words.replace(",", " ").split():
        found += _facet_targets(parameter, word)
    return found


def _facet_targets(parameter: str, word: str) -> list[Target]:
    axis = re.fullmatch(r"dims\[(-?\d*)(:?)(-?\d*)\]", word)
    if axis is not None and (axis[1] or axis[2]):
        start = int(axis[1]) if axis[1] else None
        if axis[2]:
            return [FacetTarget(parameter, "dims", slice(start, int(axis[3]) if axis[3] else None))]
        stop = None if start == -1 else int(axis[1]) + 1
        return [FacetTarget(parameter, "dims", slice(start, stop))]
    if word not in ROW_FACETS:
        raise ContractDefinitionError(
            f"unknown facet {word!r} of `{parameter}`.", hint=near_name_hint(word, ROW_FACETS)
        )
    return [FacetTarget(parameter, word)]


def same_condition(target: RelationTarget, condition: Condition) -> bool:
    """Tell whether an `unless` entry names this entry of `where`."""
    if isinstance(condition, Predicate):
        return target.text == condition.text
    return target.expression is not None and (
        text_of(target.expression) == text_of(condition.expression)
    )


def as_condition(entry: Any) -> Condition:
    """Read one entry of `where`: a string, or what `relation` and `predicate` return."""
    if isinstance(entry, (Relation, Predicate)):
        return entry
    if isinstance(entry, str):
        return relation(entry)
    raise ContractDefinitionError(
        f"`where` holds strings, `relation(...)` and `predicate(...)`, not {type(entry).__name__}."
    )
