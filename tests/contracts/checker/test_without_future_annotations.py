# The annotations of this file are evaluated by Python as they are written; those of the other
# tests are strings. Both are read alike.
"""Contracts in a module without `from __future__ import annotations`."""

import inspect
from typing import Annotated, Optional, Union

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError, ContractTypeError
from tensorpact.contracts.language.contract import build_contract, contract
from tensorpact.contracts.language.facets import Contiguous

F = torch.zeros


@contract()
def _written(
    x: Annotated[Float[Tensor, "n m"], Contiguous()],
    index: Int32[Tensor, "n"] | None = None,
    bias: Optional[Float[Tensor, "m"]] = None,  # noqa: UP045
    scale: Union[float, None] = None,  # noqa: UP007
    quoted: "Float[Tensor, 'n'] | None" = None,
) -> Float[Tensor, "n"]: ...


def _body(
    x: Tensor,
    index: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    quoted: Tensor | None = None,
) -> Tensor:
    return x.sum(1)


written = enforce(_written, _body, check_result=True)


class Holder:
    def __init__(self) -> None:
        self.size = 3

    def method(self, x: Float[Tensor, "self.size"]) -> Float[Tensor, ""]:
        return x.sum()

    method = enforce(build_contract(method, names=dict(locals())), method, check_result=True)


def test_annotations__valid_calls() -> None:
    assert written(F(2, 3)).shape == (2,)
    assert written(F(2, 3), F(2).int(), F(3), 1, F(2)).shape == (2,)
    assert Holder().method(F(3)).shape == ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"bias": F(2)},
            (
                "`bias` must have shape [m]: axis 0 must be 3, got 2 in shape (2,); "
                "m = 3 from axis 1 of `x`."
            ),
        ),
        ({"index": F(2)}, "`index` must have dtype int32: got float32."),
        (
            {"quoted": F(3)},
            (
                "`quoted` must have shape [n]: axis 0 must be 2, got 3 in shape (3,); "
                "n = 2 from axis 0 of `x`."
            ),
        ),
    ],
)
def test_annotations__bad_calls(arguments: dict[str, Tensor], text: str) -> None:
    with pytest.raises(ContractError) as caught:
        written(F(2, 3), **arguments)
    assert str(caught.value) == text


def test_annotations__bad_types() -> None:
    with pytest.raises(ContractTypeError) as caught:
        written(F(2, 3), scale=True)
    assert str(caught.value) == "`scale` must be a float or None: got bool True."


def test_annotations__methods() -> None:
    assert inspect.ismethod(Holder().method)
    with pytest.raises(ContractError, match="axis 0 must be 3, got 4"):
        Holder().method(F(4))
