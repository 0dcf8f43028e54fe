"""`op`: the decorator that puts a contract in front of a function, or of an op's backends."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from tensorpact.backends.choice import choice
from tensorpact.backends.dispatch import Dispatcher, DispatchReport
from tensorpact.backends.registry import registry
from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.mode import switch
from tensorpact.contracts.language.contract import (
    RESERVED_PARAMETERS,
    Contract,
    build_contract,
)
from tensorpact.contracts.language.contract import contract as declare
from tensorpact.contracts.language.definition_error import ContractDefinitionError, near_name_hint
from tensorpact.contracts.language.rows import Condition, ErrorRow

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")

CLAUSES = tuple(inspect.signature(declare).parameters)
"""What `op` takes beside `check_result`: the clauses of `contract`."""


class Op(Protocol[P, R]):
    """An op: a plain function to callers and to Python, with its contract at hand.

    Attributes:
        contract: what the op promises.
        unchecked: the same call without validation, for callers that have validated already.
    """

    @property
    def __name__(self) -> str: ...
    @property
    def contract(self) -> Contract[P, R]: ...
    @property
    def unchecked(self) -> Callable[P, R]: ...
    def explain_dispatch(self, *args: P.args, **kwargs: P.kwargs) -> DispatchReport:
        """Say which backend a call would run on, and why the others are passed over."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Op[P, R]: ...
    @overload
    def __get__(
        self: Op[Concatenate[S, Q], R], instance: S, owner: type | None = None, /
    ) -> Callable[Q, R]: ...


@overload
def op(function: Callable[P, R], /) -> Op[P, R]: ...
@overload
def op(contract: Contract[P, R], /) -> Callable[[Callable[..., Any]], Op[P, R]]: ...
@overload
def op(
    *,
    let: Mapping[str, str] | None = None,
    where: Iterable[str | Condition] = (),
    errors: Iterable[ErrorRow] = (),
    zero: Mapping[str, str] | None = None,
    early_return: str | None = None,
    anchors: Sequence[str] = (),
    check_result: bool = True,
) -> Callable[[Callable[P, R]], Op[P, R]]: ...
def op(subject: Any = None, /, *, check_result: bool = True, **clauses: Any) -> Any:
    """Make an op of a function: every call is held to its contract.

    Three forms:

    - `@op` on an annotated function: contract and body in one.
    - `@op(where=[...], errors=[...], ...)`: the same, with the clauses of `contract`.
    - `@op(some_contract)` on a function whose body is only a docstring: the call goes to the
      backend that is registered for the contract; a function with a body of its own is run.

    Results are held to the return annotation at every call where the op has a body of its own
    (`check_result=False` leaves that to debug mode), and in debug mode where a backend computes
    them.

    Raises:
        ContractDefinitionError: the contract is written wrongly, or does not fit the function.

    >>> import torch
    >>> from jaxtyping import Float
    >>> @op
    ... def halves(x: Float[torch.Tensor, "rows 2*half"]) -> Float[torch.Tensor, "rows half"]:
    ...     return x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]
    >>> halves(torch.ones(3, 4)).shape
    torch.Size([3, 2])
    >>> try:
    ...     halves(torch.ones(3, 5))
    ... except ValueError as error:
    ...     print(str(error).partition(":")[0])
    `x` must have shape [rows, 2*half]
    """
    for clause in clauses:
        if clause not in CLAUSES:
            hint = near_name_hint(clause, CLAUSES)
            raise ContractDefinitionError(f"`op` has no clause `{clause}`.", hint=hint)
    names = dict(sys._getframe(1).f_locals)
    if isinstance(subject, Contract):
        if clauses:
            raise ContractDefinitionError("the clauses belong to the contract that is given.")
        return functools.partial(_op_of_contract, subject)
    if subject is None:
        return functools.partial(_op_of_function, names, check_result, clauses)
    return _op_of_function(names, check_result, clauses, subject)


def _op_of_function(
    names: Mapping[str, Any], check_result: bool, clauses: Mapping[str, Any], function: Any
) -> Any:
    """Make an op of an annotated function; static and class methods keep their wrapping."""
    if isinstance(function, (staticmethod, classmethod)):
        inner = _op_of_function(names, check_result, clauses, function.__func__)
        return type(function)(inner)
    if not inspect.isfunction(function):
        raise ContractDefinitionError(
            f"`op` decorates functions and takes contracts, not {type(function).__name__}."
        )
    contract = build_contract(function, names=names, **clauses)
    return _finish(contract, function, check_result, None)


def _op_of_contract(contract: Contract[..., Any], function: Callable[..., Any]) -> Any:
    """Make the entry point of a contract that stands elsewhere."""
    stub = _is_stub(function)
    _refuse_other_names(contract, function, backend_may_lack=stub)
    if stub:
        _refuse_undispatchable(contract)
        registry.load()
        dispatcher = Dispatcher(contract)
        body = functools.update_wrapper(dispatcher.function(), function)
        entry = _finish(contract, body, False, dispatcher)
    else:
        entry = _finish(contract, function, True, None)
    entry.__signature__ = contract.signature
    return entry


def _finish(
    contract: Contract[..., Any],
    body: Callable[..., Any],
    check_result: bool,
    dispatcher: Dispatcher | None,
) -> Any:
    entry: Any = body
    if switch.start != "off":
        entry = enforce(contract, body, check_result=check_result)
    entry.contract = contract
    entry.unchecked = body
    entry.explain_dispatch = functools.partial(_explain, contract, dispatcher)
    return entry


def _explain(
    contract: Contract[..., Any], dispatcher: Dispatcher | None, *args: Any, **kwargs: Any
) -> DispatchReport:
    bound = contract.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if dispatcher is None:
        return DispatchReport(contract.name, contract.name, "it has a body of its own", ())
    backend = choice.resolve(bound.arguments.get("backend"))
    return dispatcher.report(backend, tuple(bound.arguments[name] for name in dispatcher.names))


def _is_stub(function: Callable[..., Any]) -> bool:
    """Tell whether the body of a function is a docstring or `...` and nothing else."""
    idle = ("RESUME", "NOP", "CACHE")
    steps = [step for step in dis.get_instructions(function) if step.opname not in idle]
    returned = steps[0].argval if steps[0].opname in ("LOAD_CONST", "RETURN_CONST") else steps
    return (
        returned is None
        and steps[-1].opname in ("RETURN_VALUE", "RETURN_CONST")
        and (len(steps) <= 2)
    )


def _refuse_other_names(
    contract: Contract[..., Any], function: Callable[..., Any], *, backend_may_lack: bool
) -> None:
    """Refuse an entry point that does not repeat the names of its contract's parameters."""
    given = list(inspect.signature(function).parameters)
    wanted = list(contract.signature.parameters)
    optional = [name for name in wanted if name not in RESERVED_PARAMETERS]
    if given != wanted and not (backend_may_lack and given == optional):
        raise ContractDefinitionError(
            f"the function takes ({', '.join(given)}), and its contract says "
            f"({', '.join(wanted)}).",
            place=f"{function.__module__}.{function.__qualname__}",
        )
    _refuse_other_defaults(contract, function)


def _refuse_other_defaults(contract: Contract[..., Any], function: Callable[..., Any]) -> None:
    """Refuse defaults that only the unguarded function would use."""
    promised = contract.signature.parameters
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default != promised[name].default:
            raise ContractDefinitionError(
                f"`{name}` defaults to {parameter.default!r}, and the contract says "
                f"{promised[name].default!r}.",
                place=f"{function.__module__}.{function.__qualname__}",
            )


def _refuse_undispatchable(contract: Contract[..., Any]) -> None:
    """Refuse contracts that only a function with a body of its own can keep."""
    kinds = {parameter.kind for parameter in contract.parameters}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise ContractDefinitionError(
            "an op that is computed by backends takes no `*` or `**` parameters.",
            place=contract.name,
        )
    if contract.is_async:
        raise ContractDefinitionError(
            "an op that is computed by backends is no coroutine function.", place=contract.name
        )
