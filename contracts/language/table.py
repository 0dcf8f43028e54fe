"""A contract as a plain-text table, for `print(contract)` and the command line."""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from tensorpact.contracts.language.binding import (
    Binding,
    FromAxes,
    FromAxis,
    FromBroadcast,
    FromLet,
    FromOne,
    FromParameter,
    FromSolving,
    Source,
)
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.expression import text_of
from tensorpact.contracts.language.facets import Facet
from tensorpact.contracts.language.parameters import Parameter, Slot
from tensorpact.contracts.language.rows import (
    Condition,
    ErrorRow,
    FacetTarget,
    Predicate,
    Target,
)

WIDTH = 100
"""Lines are not longer where their text can be broken."""

_INDENT = "  "
_GAP = "  "


def contract_table(contract: Contract[..., Any]) -> str:
    """Return everything a contract says, section by section.

    Sections without an entry are left out.
    """
    sections = [
        _header(contract),
        _section("Parameters", _parameter_rows(contract)),
        _section("Dims", [[b.name, _origin(b)] for b in contract.bindings if not _is_let(b)]),
        _section("Let", [[name, "=", text_of(tree)] for name, tree in contract.let.items()]),
        _section("Relations", [[_condition_text(condition)] for condition in contract.where]),
        _section("May be 0", [[name, meaning] for name, meaning in contract.zero.items()]),
        _section("Returns early", _early_return_rows(contract)),
        _section("Results", _result_rows(contract)),
        _errors(contract.errors),
    ]
    return "\n\n".join(section for section in sections if section)


# The header


def _header(contract: Contract[..., Any]) -> str:
    lines = [f"{contract.module}.{contract.name}", *_signature_lines(contract)]
    if contract.documentation:
        lines += ["", *textwrap.wrap(contract.documentation.split("\n\n")[0], WIDTH)]
    return "\n".join(lines)


def _signature_lines(contract: Contract[..., Any]) -> list[str]:
    """Return the signature without annotations, broken between parameters."""
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in contract.signature.parameters.values()
    ]
    text = str(inspect.Signature(bare))
    prefix = "async " if contract.is_async else ""
    name = contract.name.rpartition(".")[2]
    return textwrap.wrap(
        f"{prefix}{name}{text}",
        WIDTH,
        subsequent_indent=" " * (len(prefix) + len(name) + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )


# Parameters


def _parameter_rows(contract: Contract[..., Any]) -> list[list[str]]:
    rows: list[list[str]] = []
    for parameter in contract.parameters:
        if not parameter.slots:
            rows.append([_written_name(parameter), _hint_text(parameter), _default(parameter), ""])
        for slot in parameter.slots:
            name = slot.name if slot.path else _written_name(parameter)
            default = "" if slot.path else _default(parameter)
            rows.append([name, _slot_text(slot), default, _facets_text(slot.facets)])
    return rows


def _written_name(parameter: Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return (
        f"**{parameter.name}" if parameter.kind is inspect.Parameter.VAR_KEYWORD else parameter.name
    )


def _hint_text(parameter: Parameter) -> str:
    if parameter.is_instance:
        return "the instance"
    return hint_text(parameter.hint)


def hint_text(hint: Any) -> str:
    """Return an annotation as it is written, without module names.

    >>> hint_text(int | None), hint_text(list[float])
    ('int | None', 'list[float]')
    """
    if hint is Ellipsis:
        return "..."
    if isinstance(hint, type) and not typing.get_args(hint):
        return "None" if hint is type(None) else hint.__name__
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, members))}]"
    if members and origin is not None:
        if origin.__name__ in ("Union", "UnionType"):
            return " | ".join(map(hint_text, members))
        if isinstance(members[0], list):
            inner = ", ".join(map(hint_text, members[0]))
            return f"{origin.__name__}[[{inner}], {hint_text(members[1])}]"
        return f"{origin.__name__}[{', '.join(map(hint_text, members))}]"
    return str(hint).replace("typing.", "")


def _slot_text(slot: Slot) -> str:
    arrays = " | ".join(map(str, slot.arrays))
    if slot.repeated is not None:
        arrays = f"{slot.repeated.__name__} of {arrays}"
    more = [" | other types"] if slot.other_types else []
    return "".join([arrays, *more, " | None" if slot.optional else ""])


def _default(parameter: Parameter) -> str:
    return f"= {parameter.default!r}" if parameter.has_default else ""


def _facets_text(facets: Iterable[Facet]) -> str:
    """Say what the facets promise; those that no call is held to are marked."""
    return "; ".join(
        f"{facet.describe()} (not checked)" if facet.tier == "value" else facet.describe()
        for facet in facets
    )


# Dims


def _is_let(binding: Binding) -> bool:
    return isinstance(binding.sources[0], FromLet)


def _origin(binding: Binding) -> str:
    """Say where a dim gets its value, the first source that is there first."""
    texts: list[str] = []
    for source in binding.sources:
        texts.append(_source_text(source))
        if source.settles:
            break
    return ", else ".join(dict.fromkeys(texts))


def _source_text(source: Source) -> str:
    match source:
        case FromParameter(parameter, _):
            return f"parameter `{parameter}`"
        case FromLet(expression):
            return text_of(expression)
        case FromAxis(slot, _, _, soft):
            return f"axis {source.index} of `{slot.name}`{' unless 1' if soft else ''}"
        case FromAxes(slot, array, axis):
            return f"the axes {slot.arrays[array].axes[axis].text} of `{slot.name}`"
        case FromOne():
            return "1"
        case FromBroadcast(parts):
            names = dict.fromkeys(f"`{part.slot.name}`" for part in parts)
            return f"broadcasting {', '.join(names)}"
        case FromSolving(slot, array, axis):
            text = slot.arrays[array].axes[axis].text
            return f"solving {text} = axis {source.index} of `{slot.name}`"


# Relations and early returns


def _condition_text(condition: Condition) -> str:
    opaque = " (opaque: a Python function)" if isinstance(condition, Predicate) else ""
    when = "" if condition.when is None else f", when {text_of(condition.when)}"
    return f"{condition.text}{opaque}{when}"


def _early_return_rows(contract: Contract[..., Any]) -> list[list[str]]:
    if contract.early_return is None:
        return []
    return [[f"where {text_of(contract.early_return)}; nothing else is looked at then"]]


# Results


def _result_rows(contract: Contract[..., Any]) -> list[list[str]]:
    returned = contract.returned
    if returned.shape == "none":
        return [["None"]]
    if not returned.slots:
        return [["not looked at"]]
    return [[slot.name, _slot_text(slot), _facets_text(slot.facets)] for slot in returned.slots]


# Errors


def _errors(rows: Sequence[ErrorRow]) -> str:
    if not rows:
        return ""
    lines = ["Errors, in the order in which they are tried"]
    for number, row in enumerate(rows, start=1):
        lines.append(f"{_INDENT}{number:>{len(str(len(rows)))}}. {row.slug}")
        indent = _INDENT + " " * (len(str(len(rows))) + 2)
        broken = _targets_text(row.targets)
        when = "" if row.when is None else f", when {text_of(row.when)}"
        lines += _wrapped(row.template.text, indent)
        lines += _wrapped(f"unless {broken}{when}", indent)
    return "\n".join(lines)


def _targets_text(targets: Iterable[Target]) -> str:
    """Write targets as in `unless`, the facets of a parameter side by side."""
    found: dict[str, list[str]] = {}
    for target in targets:
        if isinstance(target, FacetTarget):
            axes = "" if target.axes is None else f"[{_slice_text(target.axes)}]"
            found.setdefault(f"{target.parameter}: ", []).append(f"{target.facet}{axes}")
        else:
            found[target.text] = []
    return "; ".join(name + " ".join(facets) for name, facets in found.items())


def _slice_text(axes: slice) -> str:
    start = "" if axes.start is None else str(axes.start)
    if axes.start is not None and axes.stop == (None if axes.start == -1 else axes.start + 1):
        return start
    return f"{start}:{'' if axes.stop is None else axes.stop}"


# Layout


def _section(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Return rows in aligned columns under a title, or nothing without rows."""
    return "\n".join([title, *_aligned(rows)]) if rows else ""


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the columns; the last one is wrapped, on lines of its own where it has no room."""
    used = [i for i in range(len(rows[0])) if any(row[i] for row in rows)]
    columns = [[row[i] for i in used] for row in rows]
    widths = [max(len(row[i]) for row in columns) for i in range(len(used) - 1)]
    lines: list[str] = []
    for row in columns:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        start = _INDENT + "".join(cell + _GAP for cell in cells)
        if not row[-1]:
            lines.append(start.rstrip())
        elif len(start) + len(row[-1]) <= WIDTH or len(start) <= WIDTH // 2:
            hanging = " " * len(start)
            lines += _wrapped(row[-1], start, hanging)
        else:
            lines.append(start.rstrip())
            lines += _wrapped(row[-1], _INDENT * 3)
    return lines


def _wrapped(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
