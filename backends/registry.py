"""Which backends implement which op: the one piece of module-level state of the project."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from tensorpact.backends.errors import BackendRegistrationError
from tensorpact.backends.requirements import Requirements
from tensorpact.contracts.language.contract import RESERVED_PARAMETERS, Contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.expression import Binary, Call, Constant, Expression, walk
from tensorpact.contracts.language.expression_checks import check_expression

P = ParamSpec("P")
R = TypeVar("R")

ENTRY_POINT_GROUP = "tensorpact.backends"
BUILT_IN = ("tensorpact.backends.eager", "tensorpact.backends.triton")
"""Packages of this project whose import registers backends."""


@dataclass(frozen=True)
class Implementation:
    """One backend's function for one op."""

    backend: str
    function: Callable[..., Any]
    priority: int
    requirements: Requirements


class Registry:
    """Implementations by contract. Changes wake the listeners (the ops' dispatch caches)."""

    def __init__(self) -> None:
        self._implementations: dict[Contract[..., Any], tuple[Implementation, ...]] = {}
        self._listeners: dict[Contract[..., Any], list[Callable[[], None]]] = {}
        self._lock = threading.RLock()
        self._loaded = False
        self.plugin_problems: dict[str, str] = {}

    def add(self, contract: Contract[..., Any], implementation: Implementation) -> None:
        """Add an implementation; the same backend cannot implement an op twice."""
        with self._lock:
            present = self._implementations.get(contract, ())
            if any(other.backend == implementation.backend for other in present):
                raise BackendRegistrationError(
                    f"backend {implementation.backend!r} already implements {contract.name}."
                )
            ordered = sorted((*present, implementation), key=lambda i: -i.priority)
            self._implementations[contract] = tuple(ordered)
        self._wake(contract)

    def remove(self, contract: Contract[..., Any], backend: str) -> None:
        """Take a backend away from an op."""
        with self._lock:
            present = self._implementations.get(contract, ())
            kept = tuple(other for other in present if other.backend != backend)
            self._implementations[contract] = kept
        self._wake(contract)

    def _wake(self, contract: Contract[..., Any]) -> None:
        with self._lock:
            listeners = tuple(self._listeners.get(contract, ()))
        for listener in listeners:
            listener()

    def listen(self, contract: Contract[..., Any], listener: Callable[[], None]) -> None:
        """Call `listener` whenever the implementations of an op change."""
        with self._lock:
            self._listeners.setdefault(contract, []).append(listener)

    def implementations(self, contract: Contract[..., Any]) -> tuple[Implementation, ...]:
        """Return the implementations of an op, highest priority first."""
        return self._implementations.get(contract, ())

    def contracts(self) -> tuple[Contract[..., Any], ...]:
        """Return the contracts that have an implementation."""
        return tuple(contract for contract, found in self._implementations.items() if found)

    def load(self) -> None:
        """Import the built-in backends and those of installed packages, once.

        A package whose entry point fails is reported as a warning and by `tensorpact doctor`; the
        others go on.
        """
        with self._lock:
            if self._loaded:
                return
            self._loaded = True
            for package in BUILT_IN:
                importlib.import_module(package)
            for entry_point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
                self._load_plugin(entry_point)

    def _load_plugin(self, entry_point: importlib.metadata.EntryPoint) -> None:
        try:
            register_all = entry_point.load()
            if callable(register_all):
                register_all()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self.plugin_problems[entry_point.name] = problem
            message = f"the backend plugin {entry_point.name!r} could not be loaded: {problem}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


registry = Registry()


def implements(
    contract: Contract[..., Any],
    *,
    backend: str,
    priority: int = 0,
    requires: Requirements | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as one backend's implementation of an op.

    Among the backends whose requirements hold, the one with the highest priority runs. The
    function takes the contract's parameters, by the same names, in the same order and with the same
    defaults; it only ever sees calls that keep the contract.

    Raises:
        BackendRegistrationError: the parameters differ from the contract's, a requirement reads
            a dim that does not exist, or the backend is already there.
    """
    requirements = requires or Requirements()

    if not (backend and type(backend) is str):
        raise BackendRegistrationError(f"a backend is named by a word: got {backend!r}.")

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        _refuse_other_parameters(contract, backend, function)
        _refuse_bad_requirements(contract, backend, requirements)
        registry.add(contract, Implementation(backend, function, priority, requirements))
        return function

    return decorate


def _refuse_other_parameters(
    contract: Contract[..., Any], backend: str, function: Callable[..., Any]
) -> None:
    wanted = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in contract.signature.parameters.values()
        if parameter.name not in RESERVED_PARAMETERS
    ]
    given = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    if wanted != given:
        raise BackendRegistrationError(
            f"backend {backend!r} of {contract.name} takes "
            f"({', '.join(str(p) for p in given)}), and the contract says "
            f"({', '.join(str(p) for p in wanted)})."
        )


def _refuse_bad_requirements(
    contract: Contract[..., Any], backend: str, requirements: Requirements
) -> None:
    """Refuse what could not be evaluated on every valid call of the contract."""
    place = f"backend {backend!r} of {contract.name}"
    tensors = {slot.name for slot in contract.slots if not slot.repeated and not slot.path}
    for name in requirements.dtypes:
        if name not in tensors:
            raise BackendRegistrationError(
                f"{place} requires a dtype of `{name}`, which is no tensor parameter of the "
                "contract."
            )
    try:
        for text, relation in zip(requirements.where, requirements.relations, strict=True):
            check_expression(contract, relation, f"requirement {text!r}")
            if _may_divide_by_zero(relation):
                raise BackendRegistrationError(
                    f"{place}: the requirement {text!r} may divide by zero; divide by a number."
                )
    except ContractDefinitionError as error:
        raise BackendRegistrationError(f"{place}: {error}") from None


def _may_divide_by_zero(relation: Expression) -> bool:
    for part in walk(relation):
        match part:
            case Binary("//" | "%", _, divisor) | Call("cdiv", (_, divisor)):
                if not isinstance(divisor, Constant):
                    return True
    return False
