"""From a valid call to the backend that runs it; a repeated call costs a dict look-up."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from tensorpact.backends.choice import VARIABLE, choice
from tensorpact.backends.errors import BackendUnavailableError
from tensorpact.backends.registry import Implementation, registry
from tensorpact.contracts.checker.code import Writer
from tensorpact.contracts.checker.examination import examine
from tensorpact.contracts.checker.facts import build_facts
from tensorpact.contracts.checker.names import Names
from tensorpact.contracts.checker.signature import forwarded, parameter_list
from tensorpact.contracts.language.checks import device_anchor
from tensorpact.contracts.language.contract import RESERVED_PARAMETERS, Contract
from tensorpact.contracts.language.definition_error import near_name_hint
from tensorpact.contracts.language.expression_parser import parse_expression


@dataclass(frozen=True)
class Candidate:
    """One backend and what speaks against it; an empty list means that it can run."""

    backend: str
    priority: int
    requirements: str
    reasons: tuple[str, ...]

    @property
    def eligible(self) -> bool:
        """Whether the backend can run the call."""
        return not self.reasons


@dataclass(frozen=True)
class DispatchReport:
    """Why a backend was taken and the others passed over; print it."""

    op: str
    chosen: str | None
    because: str
    candidates: tuple[Candidate, ...]
    named: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.op}: {self.chosen or 'no backend'} ({self.because})"]
        for candidate in self.candidates:
            if candidate.backend == self.chosen:
                verdict = "taken"
            elif candidate.eligible and self.named is not None:
                verdict = "passed over: another one was named"
            elif candidate.eligible:
                verdict = "passed over: it could run, but another one comes first"
            else:
                verdict = "passed over: " + "; ".join(candidate.reasons)
            head = f"  {candidate.backend} (priority {candidate.priority})"
            lines.append(f"{head}: {verdict}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Option:
    """One implementation, and what the facts of a call must be for it to run.

    `allowed` pairs a position in the facts with the values it may have there.
    """

    implementation: Implementation
    device_position: int | None
    allowed: tuple[tuple[int, tuple[Hashable, ...]], ...]

    def accepts(self, facts: tuple[Any, ...]) -> bool:
        """Tell whether the implementation can run a call with these facts."""
        needs = self.implementation.requirements
        device = None if self.device_position is None else facts[self.device_position]
        if device is not None:
            if needs.devices and device.type not in needs.devices:
                return False
            needed = needs.capability if device.type == "cuda" else None
            if needed is not None and torch.cuda.get_device_capability(device) < needed:
                return False
        return all(facts[position] in values for position, values in self.allowed)


class Dispatcher:
    """The choice of a backend for one op."""

    def __init__(self, contract: Contract[..., Any]) -> None:
        self.contract = contract
        self.parameters = tuple(p for p in contract.parameters if p.name not in RESERVED_PARAMETERS)
        self.names = tuple(parameter.name for parameter in self.parameters)
        self.cache: dict[Hashable, Callable[..., Any]] = {}
        self.options: tuple[Option, ...] = ()
        self.spellings = Names(["dispatch", *(p.name for p in contract.parameters)])
        self.namespace: dict[str, Any] = {}
        self.facts = self._constant("_facts", None)
        self.refresh()
        registry.listen(contract, self.refresh)

    def refresh(self) -> None:
        """Forget earlier choices: the registered implementations have changed."""
        # What cannot run on this machine at all takes no part, and costs nothing at a call.
        found = [
            implementation
            for implementation in registry.implementations(self.contract)
            if not implementation.requirements.unmet_by_machine()
        ]
        device = any(i.requirements.devices or i.requirements.capability for i in found)
        dtypes = sorted({name for i in found for name in i.requirements.dtypes})
        relations = list(dict.fromkeys(text for i in found for text in i.requirements.where))
        self.options = tuple(_option(i, device, dtypes, relations) for i in found)
        self.cache.clear()
        self.namespace[self.facts] = build_facts(
            self.contract,
            device=device,
            dtypes=dtypes,
            relations=[parse_expression(text) for text in relations],
        )

    def function(self) -> Callable[..., Any]:
        """Return the function that passes a valid call on to a backend."""
        choices = self._constant("_choice", choice)
        cache = self._constant("_cache", self.cache)
        choose = self._constant("_choose", self.choose)
        key, found = self.spellings.new("_key"), self.spellings.new("_found")
        names = ", ".join(self.names)
        writer = Writer()
        received = parameter_list(self.contract.parameters, self._constant)
        with writer.block(f"def dispatch({received}):"):
            backend = "backend"
            if self.parameters == self.contract.parameters:
                backend = self.spellings.new("_backend")
                writer.write(f"{backend} = None")
            with writer.block(f"if {choices}.maybe_named:"):
                writer.write(f"{backend} = {choices}.resolve({backend})")
            writer.write(f"{key} = ({backend}, {self.facts}({names}))")
            writer.write(f"{found} = {cache}.get({key})")
            with writer.block(f"if {found} is None:"):
                writer.write(f"{found} = {choose}({key}, {names})")
            writer.write(f"return {found}({forwarded(self.parameters)})")
        exec(compile(writer.text(), f"<dispatch of {self.contract.name}>", "exec"), self.namespace)
        dispatch: Callable[..., Any] = self.namespace["dispatch"]
        return dispatch

    def _constant(self, name: str, value: object) -> str:
        """Register a global of the generated function and return its name."""
        spelled = self.spellings.new(name)
        self.namespace[spelled] = value
        return spelled

    def choose(
        self, key: tuple[str | None, tuple[Any, ...]], *arguments: Any
    ) -> Callable[..., Any]:
        """Choose a backend for a call, by its facts alone, and remember the choice.

        Raises:
            BackendUnavailableError: the named backend, or every backend, cannot run the call.
        """
        backend, facts = key
        for option in self.options:
            named = backend is None or option.implementation.backend == backend
            if named and option.accepts(facts):
                self.cache[key] = option.implementation.function
                return option.implementation.function
        raise BackendUnavailableError(_refusal(self.report(backend, arguments), backend))

    def report(self, backend: str | None, arguments: tuple[Any, ...]) -> DispatchReport:
        """Say which backend a call would run on, and why."""
        named = dict(zip(self.names, arguments, strict=True))
        for parameter in self.contract.parameters:
            named.setdefault(parameter.name, None)
        call = examine(self.contract, named)
        anchor = device_anchor(self.contract.slots)
        value = named.get(anchor.parameter) if anchor is not None else None
        device = value.device if isinstance(value, torch.Tensor) else None
        found = registry.implementations(self.contract)
        candidates = tuple(
            Candidate(
                i.backend,
                i.priority,
                i.requirements.describe(),
                tuple(
                    i.requirements.unmet_by_machine() or i.requirements.unmet_by_call(call, device)
                ),
            )
            for i in found
        )
        eligible = [c.backend for c in candidates if c.eligible]
        if backend is not None:
            chosen = backend if backend in eligible else None
            because = f"named {backend!r}"
            return DispatchReport(self.contract.name, chosen, because, candidates, backend)
        chosen = eligible[0] if eligible else None
        because = "the highest priority among those that can run" if chosen else "none can run"
        return DispatchReport(self.contract.name, chosen, because, candidates)


def _option(
    implementation: Implementation, device: bool, dtypes: list[str], relations: list[str]
) -> Option:
    """Say where in the facts (device, dtypes, relations) an implementation's requirements stand."""
    needs = implementation.requirements
    allowed: list[tuple[int, tuple[Hashable, ...]]] = []
    for position, name in enumerate(dtypes, start=int(device)):
        if name in needs.dtypes:
            # None stands for a tensor that was not passed.
            allowed.append((position, (*needs.dtypes[name], None)))
    for position, text in enumerate(relations, start=int(device) + len(dtypes)):
        if text in needs.where:
            allowed.append((position, (True, None)))
    wants_device = bool(needs.devices or needs.capability)
    return Option(implementation, 0 if wants_device else None, tuple(allowed))


def _refusal(report: DispatchReport, backend: str | None) -> str:
    known = [candidate.backend for candidate in report.candidates]
    if backend is None:
        reasons = "; ".join(f"{c.backend}: {', '.join(c.reasons)}" for c in report.candidates)
        return f"no backend can run {report.op}: {reasons or 'none is registered'}."
    for candidate in report.candidates:
        if candidate.backend == backend:
            return (
                f"backend {backend!r} cannot run this call of {report.op}: "
                f"{'; '.join(candidate.reasons)}. It was named explicitly (by `backend=`, "
                f"`use_backend` or {VARIABLE}), so no other one is tried."
            )
    hint = near_name_hint(backend, known)
    return f"backend {backend!r} does not implement {report.op}. {hint}".rstrip()
