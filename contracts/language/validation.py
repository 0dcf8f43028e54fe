"""Does a contract make sense? Every mistake is found at decoration, with its place and a hint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from tensorpact.contracts.language.binding import FromSolving, axes_of, dim_names, named_axes
from tensorpact.contracts.language.checks import AxisCheck, RelationCheck, tier_of
from tensorpact.contracts.language.definition_error import (
    ContractDefinitionError,
    looks_misspelt,
    near_name_hint,
)
from tensorpact.contracts.language.dims import Computed, Named, Spliced, Variadic
from tensorpact.contracts.language.evaluation import Unbound, Values, evaluate
from tensorpact.contracts.language.expression import names_in, text_of
from tensorpact.contracts.language.expression_checks import (
    check_condition,
    check_expression,
    check_reads,
    readable_names,
    require,
)
from tensorpact.contracts.language.expression_kinds import may_be_number
from tensorpact.contracts.language.facet_checks import check_slot
from tensorpact.contracts.language.parameters import Parameter, Slot
from tensorpact.contracts.language.rows import (
    ErrorRow,
    FacetTarget,
    Predicate,
    RelationTarget,
    same_condition,
)
from tensorpact.contracts.language.template import RESERVED

if TYPE_CHECKING:
    from tensorpact.contracts.language.contract import Contract


_SHAPE_FACETS = ("rank", "dims", "extent")
"""What the word `shape` in an error row stands for."""


def validate(contract: Contract[..., Any]) -> None:
    """Refuse a contract with a mistake in it.

    Raises:
        ContractDefinitionError: names what is wrong and where.
    """
    _check_names(contract)
    _check_solved_names(contract)
    for slot in (*contract.slots, *contract.returned.slots):
        try:
            check_slot(contract, slot)
        except ContractDefinitionError as error:
            raise error.at(f"`{slot.name}`") from None
    for condition in contract.where:
        place = f"relation {condition.text!r}"
        if isinstance(condition, Predicate):
            known = {*readable_names(contract), *(p.name for p in contract.parameters)}
            require(condition.names, known, place, "predicate parameter")
        else:
            check_condition(contract, condition.expression, place)
        if condition.when is not None:
            check_condition(contract, condition.when, f"`when` of {place}")
    if contract.early_return is not None:
        check_condition(contract, contract.early_return, "`early_return`")
    seen: set[str] = set()
    for row in contract.errors:
        if row.slug in seen:
            raise ContractDefinitionError(f"the error slug {row.slug!r} is used twice.")
        seen.add(row.slug)
        _check_row(contract, row)
    for parameter in contract.parameters:
        _check_default(contract, parameter)


def row_checks(contract: Contract[..., Any]) -> tuple[frozenset[int], ...]:
    """Return, for each error row, the positions in `contract.checks` that it explains.

    Raises:
        ContractDefinitionError: a row names a parameter, facet or relation that is not there.
    """
    found = []
    for row in contract.errors:
        positions: set[int] = set()
        for target in row.targets:
            matching = set(_matching(contract, target))
            if not matching:
                raise _nothing_matches(contract, target).at(f"error `{row.slug}`")
            positions |= matching
        found.append(frozenset(positions))
    return tuple(found)


def _matching(contract: Contract[..., Any], target: FacetTarget | RelationTarget) -> Iterator[int]:
    for position, check in enumerate(contract.checks):
        if isinstance(target, RelationTarget):
            if isinstance(check, RelationCheck) and same_condition(target, check.condition):
                yield position
            continue
        wanted = _SHAPE_FACETS if target.facet == "shape" else (target.facet,)
        if check.facet not in wanted or target.parameter not in ("*", check.argument):
            continue
        if target.axes is not None and isinstance(check, AxisCheck):
            count = len(check.slot.arrays[check.array].axes)
            if check.axis not in range(*target.axes.indices(count)):
                continue
        yield position


def _nothing_matches(
    contract: Contract[..., Any], target: FacetTarget | RelationTarget
) -> ContractDefinitionError:
    if isinstance(target, RelationTarget):
        texts = [condition.text for condition in contract.where]
        return ContractDefinitionError(
            f"`unless` names {target.text!r}, which is no entry of `where`.",
            hint=near_name_hint(target.text, texts),
        )
    names = {parameter.name for parameter in contract.parameters}
    names |= {slot.name for slot in contract.slots}
    if target.parameter != "*" and target.parameter not in names:
        return ContractDefinitionError(
            f"`unless` names the parameter `{target.parameter}`, which does not exist.",
            hint=near_name_hint(target.parameter, names),
        )
    facets = {c.facet for c in contract.checks if target.parameter in ("*", c.argument)}
    return ContractDefinitionError(
        f"`{target.parameter}` promises nothing about its {target.facet}.",
        hint=f"It promises: {', '.join(sorted(facets - {'relation'}))}.",
    )


def _check_names(contract: Contract[..., Any]) -> None:
    parameters = {parameter.name for parameter in contract.parameters}
    for name in contract.let:
        if name in parameters:
            raise ContractDefinitionError(f"`let` {name} is also a parameter.")
    plain = {p.name for p in contract.parameters if not (p.slots or p.binds_dim)}
    for name in (*contract.dims, *(binding.name for binding in contract.output_bindings)):
        if name in plain:
            raise ContractDefinitionError(
                f"`{name}` is a dim, and also a parameter that is not its value: only an `int` is."
            )
    for name, tree in contract.let.items():
        check_expression(contract, tree, f"`let` {name}")
        if not may_be_number(tree):
            raise ContractDefinitionError(f"`{text_of(tree)}` is no number.", place=f"`let` {name}")
    require(contract.zero, set(contract.dims), "`zero`", "dim")
    tensors = {slot.parameter for slot in contract.slots}
    require(contract.anchors, tensors, "`anchors`", "tensor parameter")


def _check_solved_names(contract: Contract[..., Any]) -> None:
    """Refuse a dim that one expression alone names and that looks like another one misspelt."""
    slots = (*contract.slots, *contract.returned.slots)
    used = Counter(name for slot in slots for name in _names_of_axes(slot))
    trees = [
        *contract.let.values(),
        *(() if contract.early_return is None else [contract.early_return]),
    ]
    trees += [c.expression for c in contract.where if not isinstance(c, Predicate)]
    trees += [guard.when for guard in (*contract.where, *contract.errors) if guard.when is not None]
    used.update(name for tree in trees for name in names_in(tree))
    used.update(name for c in contract.where if isinstance(c, Predicate) for name in c.names)
    used.update(name for row in contract.errors for name in row.template.names)
    used.update(tuple(contract.zero))
    known = {*contract.dims, *(parameter.name for parameter in contract.parameters)}
    for binding in contract.bindings:
        solved = all(isinstance(source, FromSolving) for source in binding.sources)
        if solved and used[binding.name] == 1:
            others = known - {binding.name}
            if any(looks_misspelt(binding.name, other) for other in others):
                raise ContractDefinitionError(
                    f"the dim `{binding.name}` is named once, in an expression.",
                    hint=near_name_hint(binding.name, others),
                )


def _names_of_axes(slot: Slot) -> Iterator[str]:
    for _, _, axis in axes_of(slot):
        if isinstance(axis, (Named, Variadic)) and axis.name:
            yield axis.name
        elif isinstance(axis, (Computed, Spliced)):
            yield from dim_names(axis.expression)


def _check_row(contract: Contract[..., Any], row: ErrorRow) -> None:
    place = f"error `{row.slug}`"
    parameters = {parameter.name for parameter in contract.parameters}
    known = {*contract.dims, *parameters, *RESERVED}
    require(row.template.names, known, place, "placeholder")
    for part in row.template.parts:
        if not isinstance(part, str):
            check_reads(contract, part.expression, f"{place}, placeholder {{{part.source}}}")
    if row.when is not None:
        check_condition(contract, row.when, f"`when` of {place}")


def _check_default(contract: Contract[..., Any], parameter: Parameter) -> None:
    if not parameter.has_default or parameter.is_instance:
        return
    value = parameter.default
    place = f"default of `{parameter.name}`"
    if value is None:
        if not (parameter.optional or parameter.other_hints):
            raise ContractDefinitionError(
                "is None, which the annotation does not allow.", place=place, hint="Add `| None`."
            )
        return
    if isinstance(value, torch.Tensor):
        raise ContractDefinitionError("is a tensor; use None.", place=place)
    if parameter.slots and not (parameter.scalars or parameter.other_hints):
        kinds = tuple(slot.repeated for slot in parameter.slots if slot.repeated is not None)
        if not isinstance(value, kinds) or value:
            raise ContractDefinitionError(f"{value!r} is no tensor.", place=place)
        return
    if parameter.scalars and not parameter.other_hints and not _is_scalar(value, parameter):
        allowed = " or ".join(parameter.scalars)
        raise ContractDefinitionError(f"{value!r} is no {allowed}.", place=place)
    if parameter.binds_dim and parameter.name in named_axes(
        (*contract.slots, *contract.returned.slots)
    ):
        low = 0 if parameter.name in contract.zero else 1
        if value < low:
            raise ContractDefinitionError(f"{value} is below {low}.", place=place)
    _check_relations_of_defaults(contract)


def _is_scalar(value: object, parameter: Parameter) -> bool:
    if isinstance(value, bool):
        return "bool" in parameter.scalars
    if isinstance(value, int):
        return "int" in parameter.scalars or "float" in parameter.scalars
    return type(value).__name__ in parameter.scalars


def _check_relations_of_defaults(contract: Contract[..., Any]) -> None:
    """Refuse defaults that break a relation between parameters on their own."""
    defaults = {p.name: p.default for p in contract.parameters if p.has_default and not p.slots}
    for check in contract.checks:
        if not isinstance(check, RelationCheck) or tier_of(check) != "metadata":
            continue
        condition = check.condition
        if isinstance(condition, Predicate) or condition.when is not None:
            continue
        values = Values({}, defaults)
        try:
            holds = evaluate(condition.expression, values)
        except (Unbound, TypeError, ZeroDivisionError):
            continue
        if not holds:
            raise ContractDefinitionError(
                f"the defaults break {condition.text!r}.", place="the signature"
            )
