"""What is wrong with a call: every broken check, then the documented error that comes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensorpact.contracts.checker import texts
from tensorpact.contracts.checker.errors import Violation
from tensorpact.contracts.checker.examination import (
    Examination,
    Item,
    NoValueError,
    axis_fits,
    examine,
    read,
)
from tensorpact.contracts.checker.facets_examination import facet_problem, memory_problem
from tensorpact.contracts.checker.front_door import has_python_type
from tensorpact.contracts.language.binding import (
    FromAxis,
    FromParameter,
    FromSolving,
    dim_names,
)
from tensorpact.contracts.language.checks import (
    AxisCheck,
    Check,
    DeviceCheck,
    DtypeCheck,
    ExtentCheck,
    FacetCheck,
    MemoryCheck,
    RankCheck,
    RelationCheck,
    TypeCheck,
    device_anchor,
    shares_device,
    tier_of,
)
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.evaluation import Unbound, Values
from tensorpact.contracts.language.facets import Tier
from tensorpact.contracts.language.parameters import Parameter, Slot
from tensorpact.contracts.language.rows import ErrorRow, Predicate


@dataclass(frozen=True)
class Problem:
    """One broken check on one call, with the default words for it."""

    check: Check
    position: int
    argument: str
    expected: str
    actual: str
    text: str
    origin: str = ""


def diagnose(
    contract: Contract[..., Any],
    arguments: Mapping[str, Any],
    *,
    results: tuple[Any, ...] | None = None,
    tiers: tuple[Tier, ...] = ("metadata",),
) -> tuple[tuple[Violation, ...], dict[str, Any]]:
    """Return every violation of a call in documented order, and the dims that could be bound.

    Wrong Python types come first, then the rows of the `errors` table in their order, then what
    no row explains. With `results`, the outputs are looked at instead of the arguments.
    """
    found = examine(contract, arguments, results)
    checks = contract.checks if results is None else contract.output_checks
    problems = list(_problems(found, checks, tiers))
    ordered = _in_documented_order(found, problems, with_rows=results is None)
    violations = tuple(_violation(found, row, problem) for row, problem in ordered)
    return violations, dict(found.dims)


def _in_documented_order(
    found: Examination, problems: list[Problem], *, with_rows: bool
) -> list[tuple[ErrorRow | None, Problem]]:
    contract = found.contract
    types = [problem for problem in problems if isinstance(problem.check, TypeCheck)]
    rest = [problem for problem in problems if not isinstance(problem.check, TypeCheck)]
    ordered: list[tuple[ErrorRow | None, Problem]] = [
        (_row_of_type(contract, problem) if with_rows else None, problem) for problem in types
    ]
    explained: set[int] = set()
    if with_rows:
        for row, positions in zip(contract.errors, contract.row_checks, strict=True):
            if not _applies(found, row):
                continue
            matching = [p for p in rest if p.position in positions and p.position not in explained]
            if matching:
                ordered.append((row, matching[0]))
                explained |= positions
    ordered += [(None, problem) for problem in rest if problem.position not in explained]
    return ordered


def _row_of_type(contract: Contract[..., Any], problem: Problem) -> ErrorRow | None:
    for row, positions in zip(contract.errors, contract.row_checks, strict=True):
        if problem.position in positions:
            return row
    return None


def _applies(found: Examination, row: ErrorRow) -> bool:
    if row.when is None:
        return True
    try:
        return bool(read(row.when, found.values))
    except NoValueError:
        return False


def _violation(found: Examination, row: ErrorRow | None, problem: Problem) -> Violation:
    text = problem.text
    if row is not None:
        reserved = {
            "argument": problem.argument,
            "expected": problem.expected,
            "actual": problem.actual,
        }
        values = Values({**reserved, **found.dims}, found.arguments)
        text = row.template.render(values)
    return Violation(
        text=text,
        slug=row.slug if row else None,
        facet=problem.check.facet,
        argument=problem.argument,
        expected=problem.expected,
        actual=problem.actual,
        origin=problem.origin,
        fix=row.fix if row else "",
    )


def _problems(
    found: Examination, checks: tuple[Check, ...], tiers: tuple[Tier, ...]
) -> Iterator[Problem]:
    clean = True
    for position, check in enumerate(checks):
        skipped = found.returns_early and position not in found.contract.before_early_return
        if tier_of(check) not in tiers or skipped:
            continue
        try:
            for argument, expected, actual, text, origin in _broken(found, check):
                clean = False
                yield Problem(check, position, argument, expected, actual, text, origin)
        except PredicateError as failure:
            # A predicate may count on the checks before it; where these hold, the fault is its own.
            if clean:
                raise failure.error from None


def _broken(found: Examination, check: Check) -> Iterator[texts.Words]:
    match check:
        case TypeCheck(Parameter() as parameter):
            value = found.arguments[parameter.name]
            if not has_python_type(parameter, value):
                yield texts.wrong_type(parameter, value)
        case TypeCheck(Slot() as slot):
            yield from _broken_item_types(found, slot)
        case RankCheck(slot):
            for item in found.items[slot.name]:
                if item.is_tensor and not item.rank_fits:
                    yield texts.wrong_rank(item)
        case DtypeCheck(slot):
            for item in found.items[slot.name]:
                if item.is_tensor and item.rank_fits and not item.dtype_fits:
                    yield texts.wrong_dtype(item)
        case AxisCheck(slot, array, axis):
            for item in found.items[slot.name]:
                if item.readable and item.array == array:
                    yield from _broken_axis(found, item, axis)
        case ExtentCheck(name):
            value = found.dims.get(name)
            if value is not None and value < 1:
                yield texts.empty_dim(found, name, _bound_from(found, check))
        case FacetCheck(slot, facet):
            for item in found.items[slot.name]:
                if item.is_tensor and (words := facet_problem(found, item, facet)) is not None:
                    yield words
        case MemoryCheck(slot, others):
            for item in found.items[slot.name]:
                if (words := memory_problem(found, item, others)) is not None:
                    yield words
        case DeviceCheck(slot):
            yield from _broken_device(found, slot)
        case RelationCheck():
            yield from _broken_relation(found, check)


def _broken_item_types(found: Examination, slot: Slot) -> Iterator[texts.Words]:
    items = found.items[slot.name]
    missing = not items and not slot.optional and not slot.repeated and not slot.other_types
    if missing and (slot.is_output or found.arguments[slot.parameter] is not None):
        yield texts.missing_item(slot)
    if not slot.other_types:
        for item in items:
            if not item.is_tensor:
                yield texts.wrong_item(item)


def _broken_axis(found: Examination, item: Item, axis: int) -> Iterator[texts.Words]:
    unsolved = _unsolved(found, item, axis)
    if unsolved is not None:
        yield texts.unsolvable_axis(found, item, axis, unsolved)
    elif not axis_fits(found, item, axis):
        yield texts.wrong_axis(found, item, axis)


def _unsolved(found: Examination, item: Item, axis: int) -> str | None:
    """Return the dim that should have come from this axis and did not."""
    for binding in (*found.contract.bindings, *found.contract.output_bindings):
        for source in binding.sources:
            if not isinstance(source, FromSolving) or binding.name in found.dims:
                continue
            here = source.slot == item.slot and (source.array, source.axis) == (item.array, axis)
            needed = (*dim_names(source.factor), *dim_names(source.rest))
            if here and all(found.dims.get(name) is not None for name in needed):
                return binding.name
    return None


def _bound_from(found: Examination, check: ExtentCheck) -> str:
    """Return the argument that gave an empty dim its size."""
    for source in check.binding.sources:
        if isinstance(source, FromParameter):
            return source.parameter
        if isinstance(source, FromAxis):
            items = found.items[source.slot.name]
            if items and items[0].readable and items[0].array == source.array:
                return items[0].name
    return check.name


def _broken_device(found: Examination, slot: Slot) -> Iterator[texts.Words]:
    anchor = _device_of_anchor(found)
    if anchor is None:
        return
    for item in found.items[slot.name]:
        if item.is_tensor and item is not anchor and item.value.device != anchor.value.device:
            yield texts.wrong_device(item, anchor)


def _device_of_anchor(found: Examination) -> Item | None:
    preferred = device_anchor(found.contract.slots)
    sharing = [slot for slot in found.contract.slots if shares_device(slot)]
    for slot in [preferred, *sharing] if preferred is not None else sharing:
        for item in found.items[slot.name]:
            if item.is_tensor:
                return item
    return None


class PredicateError(Exception):
    """A predicate raised instead of answering."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def _broken_relation(found: Examination, check: RelationCheck) -> Iterator[texts.Words]:
    condition = check.condition
    try:
        if condition.when is not None and not read(condition.when, found.values):
            return
        if isinstance(condition, Predicate):
            holds = _holds(condition, found)
        else:
            value = read(condition.expression, found.values)
            holds = value is None or bool(value)
    except Unbound:
        return
    except NoValueError:
        holds = not _readable_relation(found)
    if not holds:
        yield texts.broken_relation(found, condition)


def _holds(predicate: Predicate, found: Examination) -> bool:
    values = {name: found.values.read(name) for name in predicate.names}
    if any(value is None for value in values.values()):
        return True
    try:
        return bool(predicate.function(**values))
    except Exception as error:
        raise PredicateError(error) from error


def _readable_relation(found: Examination) -> bool:
    """Tell whether every tensor a relation reads is a tensor, so that its failure counts."""
    return all(item.is_tensor for items in found.items.values() for item in items)
