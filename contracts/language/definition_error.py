"""The error for a mistake in a contract itself, raised when the op is decorated."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ContractDefinitionError(Exception):
    """A contract is written wrongly; raised at decoration, never at a call.

    The text says where (op and place), what is wrong and, where a near name exists, what was
    probably meant.
    """

    def __init__(self, problem: str, *, place: str = "", hint: str = "") -> None:
        self.problem = problem
        self.place = place
        self.hint = hint
        super().__init__(problem, place, hint)

    def __str__(self) -> str:
        text = f"{self.place}: {self.problem}" if self.place else self.problem
        return f"{text} {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.problem, self.place, self.hint)

    def at(self, place: str) -> ContractDefinitionError:
        """Return the same error with `place` put before the place it already has."""
        joined = f"{place}, {self.place}" if self.place else place
        return ContractDefinitionError(self.problem, place=joined, hint=self.hint)


def _rebuild(problem: str, place: str, hint: str) -> ContractDefinitionError:
    return ContractDefinitionError(problem, place=place, hint=hint)


def near_name_hint(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean `x`?" for the closest of `known`, or the list of what is known."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean `{close[0]}`?"
    if not names:
        return ""
    return "Known here: " + ", ".join(f"`{known_name}`" for known_name in names) + "."


def check_text(value: object, what: str) -> None:
    """Refuse what is no string.

    Raises:
        ContractDefinitionError: says what should be one.
    """
    if not isinstance(value, str):
        raise ContractDefinitionError(f"{what} is a string, not {kind_text(value)}.")


def kind_text(value: object) -> str:
    """Return the class of a value with its article.

    >>> kind_text(3), kind_text("a")
    ('an int', 'a str')
    """
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeio" else f"a {name}"
