"""From a contract to straight-line Python: the function that runs in front of every call.

The text has the op's own signature, reads each attribute once and builds no text. It answers
valid or invalid; what is wrong is found by the diagnosis, which walks the same checks.
"""

from __future__ import annotations

import inspect
from typing import Any

from tensorpact.contracts.checker.checks_code import ChecksCode
from tensorpact.contracts.checker.code import Writer
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.checker.types_code import write_type_checks
from tensorpact.contracts.language.contract import Contract

FAIL = "_invalid"
FAIL_RESULT = "_invalid_result"
BODY = "_body"


def guard_source(contract: Contract[..., Any], *, check_result: bool = False) -> str:
    """Return the text of the guarded function of a contract."""
    return build_guard(contract, check_result=check_result)[0]


def build_guard(
    contract: Contract[..., Any], *, check_result: bool
) -> tuple[str, dict[str, object]]:
    """Return the text of the guarded function and the constants it refers to."""
    scope = Scope(contract)
    writer = Writer()
    prefix = "async def" if contract.is_async else "def"
    call = f"{'await ' if contract.is_async else ''}{BODY}({forwarded(contract)})"
    name = contract.name.rpartition(".")[2]
    everything = ", ".join(parameter.name for parameter in contract.parameters)
    with writer.block(f"{prefix} {name}({scope.signature()}):"):
        with writer.block("if _switch.maybe_debug and _in_debug_mode():"):
            debug = "_debug_call_async" if contract.is_async else "_debug_call"
            awaiting = "await " if contract.is_async else ""
            writer.write(f"return {awaiting}{debug}({everything})")
        fail = f"{FAIL}({everything})"
        if scope.risky:
            with writer.block("try:"):
                _write_checks(contract, scope, writer, fail)
            with writer.block("except (ArithmeticError, AttributeError):"):
                writer.write(fail)
        else:
            _write_checks(contract, scope, writer, fail)
        if check_result and contract.returned.slots:
            writer.write(f"_result = {call}")
            _write_result_checks(contract, scope, writer, f"{FAIL_RESULT}(_result, {everything})")
            writer.write("return _result")
        else:
            writer.write(f"return {call}")
    return writer.text(), scope.constants


def forwarded(contract: Contract[..., Any]) -> str:
    """Return how the arguments are passed on to the body."""
    parts = []
    for parameter in contract.parameters:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                parts.append(f"*{parameter.name}")
            case inspect.Parameter.VAR_KEYWORD:
                parts.append(f"**{parameter.name}")
            case inspect.Parameter.KEYWORD_ONLY:
                parts.append(f"{parameter.name}={parameter.name}")
            case _:
                parts.append(parameter.name)
    return ", ".join(parts)


def _write_checks(
    contract: Contract[..., Any], scope: Scope, writer: Writer, fail: str
) -> None:
    write_type_checks(contract, scope, writer, fail)
    code = ChecksCode(contract, scope, writer, fail)
    code.hoist_items()
    if contract.early_return is None:
        code.write_everything()
        return
    code.write_for_early_return(contract.early_return)
    condition = scope.locals.expression(contract.early_return)
    with writer.block(f"if not ({condition}):"):
        code.write_everything()


def _write_result_checks(
    contract: Contract[..., Any], scope: Scope, writer: Writer, fail: str
) -> None:
    """Check the results; an early return has bound too few dims to compare with."""
    depth = writer.depth
    if contract.early_return is not None:
        writer.write(f"if not ({scope.locals.expression(contract.early_return)}):")
        writer.depth += 1
    if contract.returned.shape == "tuple":
        count = len(contract.returned.slots)
        with writer.block(f"if not isinstance(_result, tuple) or len(_result) != {count}:"):
            writer.write(fail)
        names = ", ".join(scope.value(slot) for slot in contract.returned.slots)
        writer.write(f"{names}{',' if count == 1 else ''} = _result")
    code = ChecksCode(contract, scope, writer, fail, results=True)
    code.write_everything()
    writer.depth = depth
