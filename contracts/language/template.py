"""Message templates as a source documents them: the f-string form, parsed once, never evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.evaluation import Values, evaluate
from tensorpact.contracts.language.expression import Expression, names_in
from tensorpact.contracts.language.expression_parser import parse_expression
from tensorpact.contracts.language.plain_text import plain_text

RESERVED = ("argument", "expected", "actual")
"""Placeholders that every message may use: the argument at fault, what was expected, what came."""

UNKNOWN = "?"
"""Printed for a placeholder that has no value in this call."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One `{expression}` of a template; `quoted` for the `!r` conversion."""

    expression: Expression
    source: str
    quoted: bool = False


@dataclass(frozen=True)
class Template:
    """A message with placeholders: `text` as documented, `parts` as parsed.

    >>> Template.parse("got {n + 1} of {{n}}").render(Values({"n": 2}))
    'got 3 of {n}'
    """

    text: str
    parts: tuple[str | Placeholder, ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Parse a template.

        Raises:
            ContractDefinitionError: a brace has no partner, or a placeholder is no expression.
        """
        return cls(text, tuple(_split(text)))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a placeholder reads."""
        found: dict[str, None] = {}
        for part in self.parts:
            if isinstance(part, Placeholder):
                found.update(dict.fromkeys(names_in(part.expression)))
        return tuple(found)

    @property
    def pattern(self) -> str:
        """A regular expression that matches every rendered message."""
        return "".join(_escape(part) if isinstance(part, str) else "(.+?)" for part in self.parts)

    def render(self, values: Values) -> str:
        """Fill the placeholders; one without a value prints as `?`."""
        return "".join(
            part if isinstance(part, str) else _shown(part, values) for part in self.parts
        )


def _shown(placeholder: Placeholder, values: Values) -> str:
    try:
        value = evaluate(placeholder.expression, values)
    except Exception:
        return UNKNOWN
    return plain_text(value, quoted=placeholder.quoted)


def _split(text: str) -> list[str | Placeholder]:
    parts: list[str | Placeholder] = []
    literal = ""
    index = 0
    while index < len(text):
        character = text[index]
        if text[index : index + 2] in ("{{", "}}"):
            literal += character
            index += 2
        elif character == "}":
            raise _mistake(text, "a `}` without `{`")
        elif character == "{":
            end = text.find("}", index)
            if end < 0:
                raise _mistake(text, "a `{` without `}`")
            if literal:
                parts.append(literal)
                literal = ""
            parts.append(_placeholder(text, text[index + 1 : end]))
            index = end + 1
        else:
            literal += character
            index += 1
    return [*parts, literal] if literal else parts


def _placeholder(text: str, source: str) -> Placeholder:
    quoted = source.endswith("!r")
    body = source.removesuffix("!r").removesuffix("!s")
    try:
        return Placeholder(parse_expression(body, tuples=True), body.strip(), quoted)
    except ContractDefinitionError as error:
        raise _mistake(text, error.problem.rstrip("."), error.hint) from None


def _mistake(text: str, problem: str, hint: str = "") -> ContractDefinitionError:
    return ContractDefinitionError(f"message template {text!r}: {problem}.", hint=hint)


def _escape(text: str) -> str:
    return re.escape(text).replace("\\ ", " ").replace("\\`", "`").replace("\\,", ",")
