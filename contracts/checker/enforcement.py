"""Putting a guard in front of a function."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from tensorpact.contracts.checker.diagnosis import diagnose
from tensorpact.contracts.checker.errors import ContractError, ContractTypeError, Violation
from tensorpact.contracts.checker.examination import examine
from tensorpact.contracts.checker.front_door import is_a
from tensorpact.contracts.checker.guard import build_guard
from tensorpact.contracts.checker.mode import in_debug_mode
from tensorpact.contracts.checker.scope import function_name
from tensorpact.contracts.checker.texts import value_words
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.facets import Tier

ALL_TIERS: tuple[Tier, ...] = ("metadata", "pointer", "value")


def enforce(
    contract: Contract[..., Any], body: Callable[..., Any], *, check_result: bool
) -> Callable[..., Any]:
    """Return a function with the contract's signature that guards every call of `body`.

    With `check_result` the returned tensors are held to the return annotation at every call;
    otherwise in debug mode only.
    """
    enforcer = Enforcer(contract, body)
    hooks = {
        "body": body,
        "invalid": enforcer.refuse,
        "invalid_result": enforcer.refuse_result,
        "debug_call": enforcer.debug_call,
        "debug_call_async": enforcer.debug_call_async,
    }
    try:
        source, names = build_guard(contract, check_result=check_result, hooks=hooks)
    except ContractDefinitionError as error:
        raise error.at(f"{contract.module}.{contract.name}") from error.__cause__
    # Without a `__name__` the compiler does not look for these globals in the body's module.
    namespace: dict[str, Any] = dict(names)
    filename = f"<contract of {contract.module}.{contract.name}>"
    exec(compile(source, filename, "exec"), namespace)
    # Tracebacks and debuggers show the generated lines.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    guarded: Callable[..., Any] = namespace[function_name(contract)]
    return functools.update_wrapper(guarded, body)


class Enforcer:
    """What a guard calls when a call is broken, or when debug mode wants to see everything."""

    def __init__(self, contract: Contract[..., Any], body: Callable[..., Any]) -> None:
        self.contract = contract
        self.body = body
        self.names = tuple(parameter.name for parameter in contract.parameters)

    def refuse(self, *arguments: Any) -> NoReturn:
        """Raise the error for a call that the guard refused."""
        __tracebackhide__ = True
        tiers = ALL_TIERS if in_debug_mode() else ("metadata",)
        named = dict(zip(self.names, arguments, strict=True))
        violations, bindings = diagnose(self.contract, named, tiers=tiers)
        if not violations:
            raise GuardMismatchError(self.contract.name)
        tell_compiler(violations)
        raise_alone(self.error(violations, bindings))

    def refuse_result(self, result: Any, *arguments: Any) -> NoReturn:
        """Raise the error for results that break the return annotation."""
        __tracebackhide__ = True
        named = dict(zip(self.names, arguments, strict=True))
        violations, bindings = self.diagnose_result(result, named)
        if not violations:
            raise GuardMismatchError(self.contract.name)
        tell_compiler(violations)
        raise_alone(self.error(violations, bindings))

    def error(self, violations: tuple[Violation, ...], bindings: dict[str, Any]) -> ContractError:
        """Build the error: of the first violation, or of all of them in debug mode."""
        shown = violations if in_debug_mode() else violations[:1]
        kind = ContractTypeError if shown[0].facet == "type" else ContractError
        return kind(self.contract.name, shown, bindings)

    def diagnose_result(
        self, result: Any, named: dict[str, Any]
    ) -> tuple[tuple[Violation, ...], dict[str, Any]]:
        """Look at the results of a call."""
        outputs = result_items(self.contract, result)
        if outputs is None:
            slot = self.contract.returned.slots[0]
            returned = self.contract.returned
            kind = "tensors" if len(returned.slots) == returned.length else "items"
            words = f"a tuple of {returned.length} {kind}"
            actual = value_words(result)
            text = f"the result must be {words}: got {actual}."
            return (Violation(text, None, "type", slot.parameter, words, actual),), {}
        return diagnose(self.contract, named, results=outputs)

    def debug_call(self, *arguments: Any) -> Any:
        """Check everything, call the body, and check its results."""
        named = self._checked(arguments)
        result = self.body(*self._positional(arguments), **self._keywords(arguments))
        self._check_result(result, named)
        return result

    async def debug_call_async(self, *arguments: Any) -> Any:
        """Do the same for a coroutine function."""
        named = self._checked(arguments)
        result = await self.body(*self._positional(arguments), **self._keywords(arguments))
        self._check_result(result, named)
        return result

    def _checked(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        named = dict(zip(self.names, arguments, strict=True))
        violations, bindings = diagnose(self.contract, named, tiers=ALL_TIERS)
        if violations:
            raise self.error(violations, bindings)
        return named

    def _check_result(self, result: Any, named: dict[str, Any]) -> None:
        if not self.contract.returned.slots:
            return
        violations, bindings = self.diagnose_result(result, named)
        if violations and not self._returned_early(named):
            raise self.error(violations, bindings)

    def _returned_early(self, named: dict[str, Any]) -> bool:
        return examine(self.contract, named).returns_early

    def _positional(self, arguments: tuple[Any, ...]) -> list[Any]:
        found: list[Any] = []
        for parameter, value in zip(self.contract.parameters, arguments, strict=True):
            if parameter.kind is parameter.kind.VAR_POSITIONAL:
                found += value
            elif parameter.kind in (
                parameter.kind.POSITIONAL_ONLY,
                parameter.kind.POSITIONAL_OR_KEYWORD,
            ):
                found.append(value)
        return found

    def _keywords(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for parameter, value in zip(self.contract.parameters, arguments, strict=True):
            if parameter.kind is parameter.kind.VAR_KEYWORD:
                found |= value
            elif parameter.kind is parameter.kind.KEYWORD_ONLY:
                found[parameter.name] = value
        return found


def raise_alone(error: ContractError) -> NoReturn:
    """Raise an error without the refusal that is being handled.

    The refusal's traceback would keep the call's tensors alive as long as the error is kept.
    """
    __tracebackhide__ = True
    try:
        raise error from None
    finally:
        error.__context__ = None


def tell_compiler(violations: tuple[Violation, ...]) -> None:
    """Leave the compiled part, with the text as the reason, so that the error is raised in Python.

    Where that is not allowed (`fullgraph=True`), the compiler's own error quotes the reason.
    """
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.graph_break(msg=violations[0].text)


class GuardMismatchError(AssertionError):
    """The guard refused a call in which the diagnosis finds nothing wrong: our fault."""

    def __init__(self, op: str) -> None:
        super().__init__(
            f"the guard of {op} refused a call that its contract allows; this is a fault in "
            "tensorpact, please report it with the output of `tensorpact doctor`."
        )


def result_items(contract: Contract[..., Any], result: Any) -> tuple[Any, ...] | None:
    """Split a result into one value for each output slot, or None where it has another form."""
    if contract.returned.shape != "tuple":
        return (result,)
    if not is_a(result, tuple) or len(result) != contract.returned.length:
        return None
    return tuple(result[slot.path[0]] for slot in contract.returned.slots)
