"""The error a broken contract raises: its classes, fields, notes, and a round trip by pickle."""

from __future__ import annotations

import copy
import multiprocessing.reduction
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError, ContractTypeError, Violation
from tensorpact.contracts.checker.mode import mode
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.rows import raises


def _decode(x: Float[Tensor, "batch dim"], pos: Int32[Tensor, "batch"], scale: float = 1.0) -> Any:
    return x * scale


decode = enforce(
    contract(
        where=["dim % 2 == 0"],
        errors=[
            raises(
                "pos-must-be-int32",
                "`pos` must be a 1D int32 tensor.",
                unless="pos: rank dtype",
                fix="convert it with `.to(torch.int32)`.",
            ),
            raises("pos-must-have-shape-batch", "`pos` must be {(batch,)}: got {pos.shape}.",
                   unless="pos: dims"),
            raises("dim-must-be-even", "dim {dim} is odd.", unless="dim % 2 == 0"),
        ],
    )(_decode),
    _decode,
    check_result=False,
)  # fmt: skip
X, POS = torch.zeros(3, 4), torch.zeros(3, dtype=torch.int32)


def error_of(call: Callable[[], Any]) -> ContractError:
    with pytest.raises(ContractError) as caught:
        call()
    return caught.value


def test_contract_error__says_everything_about_a_documented_violation() -> None:
    error = error_of(lambda: decode(X, torch.zeros(5, dtype=torch.int32)))
    assert type(error) is ContractError
    assert str(error) == "`pos` must be (3,): got torch.Size([5])."
    assert error.args == (str(error),)
    assert (error.op, error.slug, error.argument) == ("_decode", "pos-must-have-shape-batch", "pos")
    assert (error.expected, error.actual) == ("batch = 3 in axis 0", "shape (5,)")
    assert error.bindings == {"batch": 3, "dim": 4}
    assert error.violations == (
        Violation(
            text="`pos` must be (3,): got torch.Size([5]).",
            slug="pos-must-have-shape-batch",
            facet="dims",
            argument="pos",
            expected="batch = 3 in axis 0",
            actual="shape (5,)",
            origin="batch = 3 from axis 0 of `x`",
        ),
    )
    assert error.__notes__ == [
        "_decode: expected batch = 3 in axis 0; got shape (5,).",
        "where from: batch = 3 from axis 0 of `x`.",
        "error: pos-must-have-shape-batch",
    ]


def test_contract_error__a_fix_rides_on_a_note() -> None:
    error = error_of(lambda: decode(X, POS.long()))
    assert str(error) == "`pos` must be a 1D int32 tensor."
    assert error.__notes__ == [
        "_decode: expected dtype int32; got dtype int64.",
        "fix: convert it with `.to(torch.int32)`.",
        "error: pos-must-be-int32",
    ]


def test_contract_error__an_undocumented_violation_has_no_slug() -> None:
    error = error_of(lambda: decode(X[0], POS))
    assert str(error) == "`x` must have 2 axes [batch, dim]: got shape (4,)."
    assert error.slug is None
    assert error.__notes__ == [
        "_decode: expected 2 axes [batch, dim]; got shape (4,).",
        "where from: the annotation of `x`.",
    ]


def test_contract_error__the_cause_is_not_shown() -> None:
    error = error_of(lambda: decode(X, POS.long()))
    assert error.__suppress_context__
    assert error.__cause__ is None


def test_contract_type_error__is_a_type_error_and_a_value_error() -> None:
    error = error_of(lambda: decode(X, POS, scale=True))
    assert type(error) is ContractTypeError
    assert isinstance(error, TypeError)
    assert isinstance(error, ValueError)
    assert error.violations[0].facet == "type"


def every_error() -> list[ContractError]:
    with mode("debug"):
        several = error_of(lambda: decode(torch.zeros(3, 5), POS[:2].long()))
    noted = error_of(lambda: decode(X, POS[:1]))
    noted.add_note("seen in request 7")
    return [
        error_of(lambda: decode(X, POS, scale=True)),
        error_of(lambda: decode(X, POS.long())),
        several,
        noted,
    ]


def assert_same(first: ContractError, second: ContractError) -> None:
    assert type(first) is type(second)
    assert str(first) == str(second)
    assert vars(first) == vars(second)
    for name in ("op", "slug", "argument", "expected", "actual", "bindings", "violations"):
        assert getattr(first, name) == getattr(second, name)
    assert first.__notes__ == second.__notes__


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_contract_error__survives_pickling(protocol: int) -> None:
    for error in every_error():
        again = pickle.loads(pickle.dumps(error, protocol))
        assert_same(error, again)
        assert_same(error, pickle.loads(pickle.dumps(again, protocol)))


def test_contract_error__survives_the_way_between_processes() -> None:
    for error in every_error():
        sent = bytes(multiprocessing.reduction.ForkingPickler.dumps(error))
        assert_same(error, pickle.loads(sent))


def test_contract_error__survives_copying() -> None:
    for error in every_error():
        assert_same(error, copy.copy(error))
        assert_same(error, copy.deepcopy(error))


def test_contract_error__bindings_are_plain_data() -> None:
    def flat(x: Float[Tensor, "*lead dim"], y: Float[Tensor, "dim"]) -> None: ...

    guarded = enforce(contract()(flat), flat, check_result=False)
    error = error_of(lambda: guarded(torch.zeros(2, 3, 4), torch.zeros(5)))
    assert error.bindings == {"lead": (2, 3), "dim": 4}
    assert type(error.bindings["lead"]) is tuple


def test_contract_error__debug_mode_holds_one_text_a_line() -> None:
    with mode("debug"):
        error = error_of(lambda: decode(torch.zeros(3, 5), POS[:2].long()))
    assert str(error) == (
        "`pos` must be a 1D int32 tensor.\n"
        "`pos` must be (3,): got torch.Size([2]).\n"
        "dim 5 is odd."
    )  # fmt: skip
    assert [violation.slug for violation in error.violations] == [
        "pos-must-be-int32",
        "pos-must-have-shape-batch",
        "dim-must-be-even",
    ]
