"""From a contract to straight-line Python: the function that runs in front of every call.

The text has the op's own signature, reads each attribute once and builds no text. It answers
valid or invalid; what is wrong is found by the diagnosis, which walks the same checks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tensorpact.contracts.checker.checks_code import ChecksCode
from tensorpact.contracts.checker.code import Writer, joined
from tensorpact.contracts.checker.mode import in_debug_mode, switch
from tensorpact.contracts.checker.scope import Scope, function_name
from tensorpact.contracts.checker.signature import forwarded
from tensorpact.contracts.checker.types_code import kind_test, write_type_checks
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.expression import Expression

HOOKS = ("body", "invalid", "invalid_result", "debug_call", "debug_call_async")
"""What a guard calls and cannot know by itself."""


class RefusedError(Exception):
    """Raised and caught inside a guard: the call is to be looked at by the diagnosis."""


def guard_source(contract: Contract[..., Any], *, check_result: bool = False) -> str:
    """Return the text of the guarded function of a contract."""
    hooks: dict[str, object] = {name: object() for name in HOOKS}
    return build_guard(contract, check_result=check_result, hooks=hooks)[0]


def build_guard(
    contract: Contract[..., Any], *, check_result: bool, hooks: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    """Return the text of the guarded function and the globals it refers to.

    Whatever goes wrong while a guard looks at a call (a division by zero, a nested tensor without
    a shape, an attribute that is not there) leads to the diagnosis too.
    """
    scope = Scope(contract)
    writer = Writer()
    names = {name: scope.constant(f"_{name}", hook) for name, hook in hooks.items()}
    everything = ", ".join(parameter.name for parameter in contract.parameters)
    awaiting = "await " if contract.is_async else ""
    call = f"{awaiting}{names['body']}({forwarded(contract.parameters)})"
    with writer.block(
        f"{'async ' if awaiting else ''}def {function_name(contract)}({scope.signature()}):"
    ):
        in_debug = scope.constant("_in_debug_mode", in_debug_mode)
        with writer.block(f"if {scope.constant('_switch', switch)}.maybe_debug and {in_debug}():"):
            debug = names["debug_call_async" if awaiting else "debug_call"]
            writer.write(f"return {awaiting}{debug}({everything})")
        fail = f"raise {scope.constant('_refused', RefusedError)}"
        with _refusing(scope, writer, f"{names['invalid']}({everything})"):
            _write_checks(contract, scope, writer, fail)
        if check_result and contract.returned.slots:
            result = scope.local("_result")
            writer.write(f"{result} = {call}")
            with _refusing(scope, writer, f"{names['invalid_result']}({result}, {everything})"):
                _write_result_checks(contract, scope, writer, fail)
            writer.write(f"return {result}")
        else:
            writer.write(f"return {call}")
    return writer.text(), scope.constants


@contextlib.contextmanager
def _refusing(scope: Scope, writer: Writer, refusal: str) -> Iterator[None]:
    """Put checks into a `try` whose handler refuses the call."""
    with writer.block("try:"):
        yield
    with writer.block(f"except {scope.builtin('Exception')}:"):
        writer.write(refusal)


def _write_checks(contract: Contract[..., Any], scope: Scope, writer: Writer, fail: str) -> None:
    write_type_checks(contract, scope, writer, fail)
    code = ChecksCode(contract, scope, writer, fail)
    code.hoist_items()
    if contract.early_return is None:
        code.write_everything()
        return
    code.write_for_early_return(contract.early_return)
    with writer.block(f"if not ({_early_return(scope, contract.early_return)}):"):
        code.write_everything()


def _write_result_checks(
    contract: Contract[..., Any], scope: Scope, writer: Writer, fail: str
) -> None:
    """Check the results; an early return has bound too few dims to compare with."""
    depth = writer.depth
    if contract.early_return is not None:
        writer.write(f"if not ({_early_return(scope, contract.early_return)}):")
        writer.depth += 1
    if contract.returned.shape == "tuple":
        count = contract.returned.length
        result = scope.local("_result")
        fits = (
            f"({kind_test(result, tuple, scope)}) and {scope.builtin('len')}({result}) == {count}"
        )
        with writer.block(f"if not ({fits}):"):
            writer.write(fail)
        for slot in contract.returned.slots:
            writer.write(f"{scope.value(slot)} = {result}[{slot.path[0]}]")
    code = ChecksCode(contract, scope, writer, fail, results=True)
    code.write_everything()
    writer.depth = depth


def _early_return(scope: Scope, condition: Expression) -> str:
    """Print the condition of an early return; no shape is in a variable yet."""
    plain = replace(scope.locals, shapes={})
    return joined([*plain.presence(condition), plain.expression(condition)], "and")
