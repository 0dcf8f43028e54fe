"""What a broken contract raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Violation:
    """One broken promise: plain data, without tensors.

    Attributes:
        text: the message, word for word as documented.
        slug: the documented error it belongs to, or None.
        facet: which kind of promise broke (`type`, `rank`, `dims`, ...).
        argument: the parameter, item or output at fault.
        expected, actual: what was promised and what came, in words.
        origin: where the expectation comes from ("`kv_size` = 7 from axis 0 of `k`").
        fix: what to do, where the contract says so.
    """

    text: str
    slug: str | None
    facet: str
    argument: str
    expected: str
    actual: str
    origin: str = ""
    fix: str = ""


class ContractError(ValueError):
    """An argument (or a result) breaks the contract of an op.

    `str(error)` is the documented message, word for word; in debug mode with several broken
    promises, one message a line. Notes (PEP 678) say what was expected, from where, and the fix.

    Attributes:
        op: the op's name.
        bindings: the value of every dim that could be bound.
        violations: everything that is known to be broken; outside debug mode the first only.
    """

    def __init__(
        self,
        op: str,
        violations: tuple[Violation, ...],
        bindings: Mapping[str, Any] | None = None,
    ) -> None:
        self.op = op
        self.violations = violations
        self.bindings = {name: _plain(value) for name, value in (bindings or {}).items()}
        super().__init__("\n".join(violation.text for violation in violations))
        for violation in violations:
            for note in notes_for(op, violation):
                self.add_note(note)

    @property
    def slug(self) -> str | None:
        """The slug of the documented error, or None for a default message."""
        return self.violations[0].slug

    @property
    def argument(self) -> str:
        """The parameter, item or output at fault."""
        return self.violations[0].argument

    @property
    def expected(self) -> str:
        """What the contract promises there."""
        return self.violations[0].expected

    @property
    def actual(self) -> str:
        """What was passed."""
        return self.violations[0].actual

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.op, self.violations, self.bindings), self.__dict__


def _plain(value: Any) -> Any:
    """Return sizes as numbers and tuples; a symbolic one as its text, so that errors pickle."""
    if isinstance(value, tuple):
        return tuple(_plain(size) for size in value)
    return value if value is None or type(value) in (int, float, bool, str) else str(value)


class ContractTypeError(ContractError, TypeError):
    """An argument has another Python type than the contract names."""


def notes_for(op: str, violation: Violation) -> list[str]:
    """Return the notes that explain a violation beside its documented text."""
    found = [f"{op}: expected {violation.expected}; got {violation.actual}."]
    if violation.origin:
        found.append(f"where from: {violation.origin}.")
    if violation.fix:
        found.append(f"fix: {violation.fix}")
    if violation.slug:
        found.append(f"error: {violation.slug}")
    return found
