"""The approaches that are compared, and what each of them sees of the broken calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import dltype_checks
import handwritten_checks
import handwritten_full
import icontract_checks
import jaxtyping_checks
import plain_hints
from beartype import beartype
from calls import Arguments, Subject, positional

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.fused_kv import fused_kv_materialize
from tensorpact.contracts.kda_replayssm import kda_replayssm_decode
from tensorpact.contracts.language.contract import Contract

BARE = "no checks"
DOCUMENTED = "hand-written, as documented"
FULL = "hand-written, all of ours"
OURS = "tensorpact"
JAXTYPING = "jaxtyping + beartype"

CONTRACTS: dict[str, Contract[..., Any]] = {
    "kda_replayssm_decode": kda_replayssm_decode,
    "fused_kv_materialize": fused_kv_materialize,
}


@dataclass(frozen=True)
class Approach:
    """One way of checking an op, as a function that checks its arguments and does nothing else.

    `rejects_key` says whether it can express what the subject's key case breaks.
    """

    name: str
    function: Callable[..., object]
    rejects_key: bool = True

    def call(self, arguments: Arguments) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return self.function, positional(self.function, arguments)

    def rejects(self, arguments: Arguments) -> bool:
        """Tell whether a call raises anything at all."""
        function, values = self.call(arguments)
        try:
            function(*values)
        except Exception:
            return True
        return False


@dataclass(frozen=True)
class Coverage:
    """What an approach did with the broken calls, and with further valid ones."""

    passed_over: tuple[str, ...]
    refused_though_valid: tuple[str, ...]
    broken: int

    def __str__(self) -> str:
        return f"{self.broken - len(self.passed_over)} of {self.broken}"

    def words(self, cases: Iterable[str]) -> str:
        """Say what is not seen, or what is where that is shorter."""
        seen = [case for case in cases if case not in self.passed_over]
        if not self.passed_over:
            text = "sees all of them"
        elif len(seen) < len(self.passed_over):
            text = f"sees only: {', '.join(seen) or 'nothing'}"
        else:
            text = f"passes over: {', '.join(self.passed_over)}"
        if self.refused_though_valid:
            text += f"; refuses, though valid: {', '.join(self.refused_though_valid)}"
        return text


def approaches(op: str) -> tuple[Approach, ...]:
    """Return the approaches for an op, the undecorated function first."""
    body = getattr(plain_hints, op)
    return (
        Approach(BARE, body, rejects_key=False),
        Approach("beartype, plain hints", beartype(body), rejects_key=False),
        Approach(DOCUMENTED, getattr(handwritten_checks, op)),
        Approach(FULL, getattr(handwritten_full, op)),
        Approach(OURS, enforce(CONTRACTS[op], body, check_result=False)),
        # dltype has no word for the int parameters that the width of kv follows from.
        Approach("dltype", getattr(dltype_checks, op), rejects_key=op != "fused_kv_materialize"),
        Approach("icontract", getattr(icontract_checks, op)),
        Approach(JAXTYPING, getattr(jaxtyping_checks, op)),
    )


def verify(approach: Approach, subject: Subject) -> Coverage:
    """Run an approach on the valid call and on every broken one.

    Raises:
        AssertionError: it refuses the valid call, or does not do with the key case what is
            claimed here; its times would mean nothing.
    """
    where = f"{approach.name}, {subject.title}"
    function, values = approach.call(subject.valid)
    if function(*values) is not None:
        raise AssertionError(f"{where}: the body has not been reached.")
    if approach.rejects(subject.broken[subject.key]) != approach.rejects_key:
        raise AssertionError(f"{where}: the case {subject.key!r} went unexpectedly.")
    return Coverage(
        passed_over=tuple(
            name for name, arguments in subject.broken.items() if not approach.rejects(arguments)
        ),
        refused_though_valid=tuple(
            name for name, arguments in subject.variants.items() if approach.rejects(arguments)
        ),
        broken=len(subject.broken),
    )
