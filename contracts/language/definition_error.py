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


def looks_misspelt(name: str, other: str) -> bool:
    """Tell whether a name is another one with a slip inside one of its words.

    A slip is one letter missing, added or changed, or two neighbours swapped, between the first and
    the last letter of a word of four or more. Names that differ at the edge of a word, such as
    `k_len` and `q_len` or `dim1` and `dim2`, are meant to differ.

    >>> looks_misspelt("kv_sze", "kv_size"), looks_misspelt("k_len", "q_len")
    (True, False)
    """
    words, other_words = name.split("_"), other.split("_")
    if len(words) != len(other_words):
        return False
    differing = [pair for pair in zip(words, other_words, strict=True) if pair[0] != pair[1]]
    return len(differing) == 1 and _slipped(*differing[0])


def _slipped(word: str, other: str) -> bool:
    longest = max(len(word), len(other))
    if longest < 4 or not word or not other or (word[0], word[-1]) != (other[0], other[-1]):
        return False
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    rest, other_rest = word[start:], other[start:]
    missing, added = rest == other_rest[1:], rest[1:] == other_rest
    changed, swapped = rest[1:] == other_rest[1:], rest[1::-1] + rest[2:] == other_rest
    return missing or added or changed or swapped
