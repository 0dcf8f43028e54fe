"""What a demo finds out, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One thing that has to hold, whether it did, and how closely."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True)
class Cost:
    """Medians of one call's wall time in microseconds; `repeats` calls of each kind."""

    with_contract_us: float
    without_us: float
    contract_alone_us: float
    repeats: int


@dataclass(frozen=True)
class RunResult:
    """One op at one set of sizes."""

    op: str
    case: str
    sizes: dict[str, Any]
    backend: str
    checks: tuple[Check, ...]
    cost: Cost


@dataclass(frozen=True)
class MistakeResult:
    """One documented mistake, made."""

    op: str
    slug: str
    what: str
    message: str
    cause: str
    fix: str
    nearest_legal: str
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class DemoResult:
    """Everything."""

    machine: dict[str, Any]
    runs: tuple[RunResult, ...]
    mistakes: tuple[MistakeResult, ...]
    seconds: float

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks of all parts."""
        parts: tuple[RunResult | MistakeResult, ...] = (*self.runs, *self.mistakes)
        return tuple(check for part in parts for check in part.checks)

    @property
    def ok(self) -> bool:
        """Whether all held."""
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return the whole as JSON types."""
        return {"ok": self.ok, **asdict(self)}
