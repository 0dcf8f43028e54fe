"""The dim grammar of jaxtyping, parsed into a tree of axes.

===================  =========================================================================
`batch`              a named dim: one size everywhere
`4`, `heads=4`       a fixed size; the part before `=` is documentation
`2*H*K+HV*V`         an expression over dims, parameters, `let` names (no spaces inside)
`{n}`, `self.heads`  the value of a parameter or of an attribute of one
`{shape}`            a tuple parameter, spliced in as several axes
`_`, `_rows`         any size, not checked
`...`, `*_`          any number of axes, not checked
`*batch`             any number of axes, the same sizes everywhere
`#n`, `*#batch`      the same, but 1 is accepted where it broadcasts
`?n`                 a size that may differ from item to item of a list or tuple of tensors
===================  =========================================================================
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import TypeAlias

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.expression import Constant, Expression, Name
from tensorpact.contracts.language.expression_kinds import may_be_size
from tensorpact.contracts.language.expression_parser import (
    MAXIMUM_DIGITS,
    parse_expression,
    spelled,
)


@dataclass(frozen=True, slots=True)
class Fixed:
    """An axis of a literal size."""

    size: int
    broadcast: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """An axis whose size is a dim; `per_item` dims are free for each item of a list."""

    name: str
    broadcast: bool = False
    per_item: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Anonymous:
    """An axis of any size."""

    text: str = "_"


@dataclass(frozen=True, slots=True)
class Computed:
    """An axis whose size is an expression."""

    expression: Expression
    broadcast: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Variadic:
    """Any number of axes; unnamed ones are not checked."""

    name: str | None
    broadcast: bool = False
    text: str = "..."


@dataclass(frozen=True, slots=True)
class Spliced:
    """As many axes as the tuple `expression` has items, with these sizes."""

    expression: Expression
    text: str = ""


Axis: TypeAlias = Fixed | Named | Anonymous | Computed | Variadic | Spliced

_MODIFIERS = {
    "#": "broadcasting",
    "*": "several axes",
    "_": "no name",
    "?": "a size free per item",
}


def parse_dims(text: str, tuple_parameters: frozenset[str] = frozenset()) -> tuple[Axis, ...]:
    """Parse the dim string of an annotation.

    `tuple_parameters` names the parameters that hold several sizes, so that `{shape}` is spliced.

    Raises:
        ContractDefinitionError: the string is outside the grammar.

    >>> [type(axis).__name__ for axis in parse_dims("batch 2*H 4 ... _")]
    ['Named', 'Computed', 'Fixed', 'Variadic', 'Anonymous']
    """
    axes = tuple(_parse_axis(element, tuple_parameters) for element in text.split())
    if sum(isinstance(axis, (Variadic, Spliced)) for axis in axes) > 1:
        raise ContractDefinitionError(
            f"dims {text!r}: more than one axis pattern of unknown length "
            "(`...`, `*name`, a spliced tuple)."
        )
    return axes


def flexible_index(axes: tuple[Axis, ...]) -> int | None:
    """Return the position of the variadic or spliced axis, or None."""
    for index, axis in enumerate(axes):
        if isinstance(axis, (Variadic, Spliced)):
            return index
    return None


def dims_text(axes: tuple[Axis, ...]) -> str:
    """Print axes as a person reads them: `[ctx, layers, 2*kv_size]`."""
    return "[" + ", ".join(axis.text for axis in axes) + "]"


@dataclass(frozen=True, slots=True)
class _Element:
    """One space-separated piece of a dim string: its modifiers taken off, `rest` left."""

    text: str
    rest: str
    modifiers: frozenset[str]

    def mistake(self, problem: str, hint: str = "") -> ContractDefinitionError:
        return ContractDefinitionError(f"dim {self.text!r}: {problem}.", hint=hint)


def _parse_axis(text: str, tuple_parameters: frozenset[str]) -> Axis:
    if text == "...":
        return Variadic(None, text=text)
    element = _take_modifiers(text)
    if not element.rest or element.rest.isidentifier():
        return _named_axis(element)
    if element.rest.isascii() and element.rest.isdecimal():
        return _fixed_axis(element)
    return _computed_axis(element, tuple_parameters)


def _take_modifiers(text: str) -> _Element:
    whole = _Element(text, text, frozenset())
    if "..." in text:
        raise whole.mistake("`...` stands on its own")
    if "," in text and "(" not in text:
        raise whole.mistake("axes are separated by spaces, not commas")
    if text.endswith("#"):
        raise whole.mistake("`#` is written in front of the dim")
    modifiers: set[str] = set()
    rest = text
    while rest:
        if rest[0] in _MODIFIERS:
            if rest[0] in modifiers:
                raise whole.mistake(f"`{rest[0]}` ({_MODIFIERS[rest[0]]}) is given twice")
            modifiers.add(rest[0])
            rest = rest[1:]
        elif rest.count("=") == 1:
            rest = rest.split("=")[1]
        else:
            break
    return _Element(text, rest, frozenset(modifiers))


def _named_axis(element: _Element) -> Axis:
    modifiers = element.modifiers
    broadcast = "#" in modifiers
    if "_" in modifiers:
        if broadcast:
            raise element.mistake("a dim without a name cannot broadcast")
        return Variadic(None, text=element.text) if "*" in modifiers else Anonymous(element.text)
    if not element.rest:
        raise element.mistake("a name is missing after the modifier")
    name = spelled(element.rest)
    if keyword.iskeyword(name):
        raise element.mistake(f"`{name}` is a word of Python, not a name")
    if "*" in modifiers:
        if "?" in modifiers:
            raise element.mistake("`?` is for a single axis")
        return Variadic(name, broadcast, element.text)
    return Named(name, broadcast, "?" in modifiers, element.text)


def _fixed_axis(element: _Element) -> Fixed:
    _refuse(element, "a fixed size", "_", "?", "*")
    if len(element.rest) > MAXIMUM_DIGITS:
        raise element.mistake(f"more than {MAXIMUM_DIGITS} digits")
    return Fixed(int(element.rest), "#" in element.modifiers, element.text)


def _computed_axis(element: _Element, tuple_parameters: frozenset[str]) -> Axis:
    _refuse(element, "an expression", "_", "?", "*")
    try:
        expression = parse_expression(_without_braces(element))
    except ContractDefinitionError as error:
        raise element.mistake(error.problem.rstrip("."), error.hint) from None
    broadcast = "#" in element.modifiers
    if isinstance(expression, Name) and expression.id in tuple_parameters:
        if broadcast:
            raise element.mistake("a spliced tuple cannot broadcast")
        return Spliced(expression, element.text)
    if isinstance(expression, Constant) or not may_be_size(expression):
        raise element.mistake("a size is a whole number from 0 up")
    return Computed(expression, broadcast, element.text)


def _refuse(element: _Element, kind: str, *modifiers: str) -> None:
    for modifier in modifiers:
        if modifier in element.modifiers:
            meaning = _MODIFIERS[modifier]
            raise element.mistake(f"`{modifier}` ({meaning}) does not go with {kind}")


def _without_braces(element: _Element) -> str:
    """Turn the f-string form `{n}+1` into `(n)+1`; braces mean "the value of"."""
    if "{{" in element.rest or "}}" in element.rest:
        raise element.mistake("a value is written in single braces")
    return element.rest.replace("{", "(").replace("}", ")")
