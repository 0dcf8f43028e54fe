"""The variables of one generated function: every meaning gets a spelling of its own."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Iterable


class Names:
    """Hands out variables that hide neither a parameter nor each other.

    A wish is granted as it is where the name is free, else with a number behind it. Names are
    compared as Python compares them, in normal form NFKC.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {"__debug__", *map(_normal, taken)}
        self._spelled: dict[tuple[str, str], str] = {}

    def spell(self, kind: str, name: str, wish: str | None = None) -> str:
        """Return the variable for a name of one kind, the same one at every call."""
        key = (kind, name)
        if key not in self._spelled:
            self._spelled[key] = self.new(name if wish is None else wish)
        return self._spelled[key]

    def new(self, wish: str) -> str:
        """Return a variable that nothing else is called."""
        normal = _normal(wish)
        candidate, number = normal, 1
        while candidate in self._taken or keyword.iskeyword(candidate):
            number += 1
            candidate = f"{normal}_{number}"
        self._taken.add(candidate)
        return candidate


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name)
