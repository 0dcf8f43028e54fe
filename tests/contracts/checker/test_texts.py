"""The default words for every kind of broken promise, compared whole."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int, Int32, Shaped
from torch import Tensor

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import (
    AnyDevice,
    Contiguous,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
    SameDevice,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.rows import predicate, relation

F = torch.zeros


def text_of(op: Any, *arguments: Any, result: Any = None, **clauses: Any) -> str:
    """The text that a call of a contract raises."""
    guarded = enforce(contract(**clauses)(op), lambda *_, **__: result, check_result=True)
    with pytest.raises(ContractError) as caught:
        guarded(*arguments)
    return str(caught.value)


def expect(hint: Any, value: Any, **clauses: Any) -> str:
    def op(x: Any) -> None: ...

    op.__annotations__["x"] = hint
    return text_of(op, value, **clauses)


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (Float[Tensor, "n"], F(2, 3), "`x` must have 1 axis [n]: got shape (2, 3)."),
        (Float[Tensor, ""], F(2), "`x` must have 0 axes []: got shape (2,)."),
        (
            Float[Tensor, "... n m"],
            F(2),
            "`x` must have at least 2 axes [..., n, m]: got shape (2,).",
        ),
        (
            Float[Tensor, "n"] | Float[Tensor, "n m"],
            F(()),
            "`x` must have 1 axis [n] or 2 axes [n, m]: got shape ().",
        ),
        (Int32[Tensor, "n"], F(2), "`x` must have dtype int32: got float32."),
        (
            Int[Tensor, "n"],
            F(2),
            "`x` must have dtype Int (int16, int2, int32, int4, int64, int8): got float32.",
        ),
        (Float[Tensor, "n"], F(2).int(), "`x` must have dtype Float: got int32."),
        (
            Float[Tensor, "n"] | Int32[Tensor, "n"],
            F(2).bool(),
            "`x` must have dtype Float or int32: got bool.",
        ),
        (
            Float[Tensor, "4 n"],
            F(2, 3),
            "`x` must have shape [4, n]: axis 0 must be 4, got 2 in shape (2, 3).",
        ),
        (
            Float[Tensor, "heads=4"],
            F(2),
            "`x` must have shape [heads=4]: axis 0 must be 4, got 2 in shape (2,).",
        ),
        (
            Float[Tensor, "... n n+1"],
            F(2, 3, 3),
            ("`x` must have shape [..., n, n+1]: axis 2 must be 4, got 3 in shape (2, 3, 3); n = 3 "
            "from axis 1 of `x`."),
        ),
        (
            Float[Tensor, "n 2*half"],
            F(2, 3),
            ("`x` must have shape [n, 2*half]: no whole half >= 1 makes 2*half equal to 3, the "
            "size of axis 1 in shape (2, 3)."),
        ),
        (Float[Tensor, "n"], F(0), "`n` must be at least 1: got 0 from axis 0 of `x`."),
        (
            Annotated[Shaped[Tensor, "n m"], Contiguous()],
            F(3, 2).t(),
            "`x` must be contiguous: got shape (2, 3) with strides (1, 2).",
        ),
        (
            Annotated[Shaped[Tensor, "n m"], LastDimContiguous()],
            F(3, 2).t(),
            "`x` must be contiguous in its last axis: got shape (2, 3) with strides (1, 2).",
        ),
        (
            Annotated[Shaped[Tensor, "n m"], Strides("m 1")],
            F(2, 6)[:, :3],
            "`x` must be laid out with strides [m, 1]: got shape (2, 3) with strides (6, 1).",
        ),
        (
            Annotated[Shaped[Tensor, "n m"], Mutated()],
            F(1, 3).expand(2, 3),
            ("`x` is written in place and must not be expanded: got shape (2, 3) with strides (0, "
            "1), in which several elements are one place in memory."),
        ),
        (
            Annotated[Shaped[Tensor, "n m"], Contiguous()],
            F(2, 3).to_sparse_csr(),
            "`x` must be contiguous: got shape (2, 3) in the layout torch.sparse_csr.",
        ),
        (
            list[Float[Tensor, "n ?m"]],
            [F(2, 3), F(2, 4), F(3, 4)],
            ("`x[2]` must have shape [n, ?m]: axis 0 must be 2, got 3 in shape (3, 4); n = 2 from "
            "axis 0 of `x[0]`."),
        ),
        (
            tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
            (F(2), F(3)),
            ("`x[1]` must have shape [n]: axis 0 must be 2, got 3 in shape (3,); n = 2 from axis 0 "
            "of `x[0]`."),
        ),
    ],
)  # fmt: skip
def test_texts__of_one_argument(hint: Any, value: Any, text: str) -> None:
    assert expect(hint, value) == text


def test_texts__variadic() -> None:
    def op(x: Float[Tensor, "*lead n"], y: Float[Tensor, "*lead"]) -> None: ...

    assert text_of(op, F(2, 3, 4), F(2, 5)) == (
        "`y` must have shape [*lead]: the part *lead must be (2, 3), got (2, 5) in shape (2, 5); "
        "lead = (2, 3) from the leading sizes of `x`."
    )


def test_texts__spliced() -> None:
    def op(shape: tuple[int, ...], x: Float[Tensor, "n {shape}"]) -> None: ...

    assert text_of(op, (3, 4), F(2, 3, 5)) == (
        "`x` must have shape [n, {shape}]: the part {shape} must be (3, 4), got (3, 5) in shape "
        "(2, 3, 5)."
    )


def test_texts__int_parameter() -> None:
    def op(n: int, x: Float[Tensor, "n"]) -> None: ...

    assert text_of(op, 3, F(2)) == (
        "`x` must have shape [n]: axis 0 must be 3, got 2 in shape (2,); n = 3 from parameter `n`."
    )
    assert text_of(op, 0, F(2)) == (
        "`x` must have shape [n]: axis 0 must be 0, got 2 in shape (2,); n = 0 from parameter `n`."
    )
    assert text_of(op, 10**50, F(2)) == (
        "`x` must have shape [n]: axis 0 must be about 2**166, got 2 in shape (2,); n = about "
        "2**166 from parameter `n`."
    )


def test_texts__let() -> None:
    def op(k: Float[Tensor, "kv_size"], heads: int, dim: int) -> None: ...

    assert text_of(op, F(7), 2, 4, let={"kv_size": "heads * dim"}) == (
        "`k` must have shape [kv_size]: axis 0 must be 8, got 7 in shape (7,); kv_size = 8 from "
        "heads * dim, heads = 2 from parameter `heads`, dim = 4 from parameter `dim`."
    )


def test_texts__broadcasting() -> None:
    def op(x: Float[Tensor, "#n"], y: Float[Tensor, "#n"], z: Float[Tensor, "#n"]) -> None: ...

    assert text_of(op, F(1), F(3), F(2)) == (
        "`z` must have shape [#n]: axis 0 must be 3, got 2 in shape (2,); n = 3 from axis 0 of `y`."
    )


def test_texts__an_expression_without_a_value() -> None:
    def op(x: Float[Tensor, "n"], y: Float[Tensor, "n//k"], k: int) -> None: ...

    assert text_of(op, F(2), F(3), 0) == (
        "`y` must have shape [n//k]: axis 0 must be the value of n//k, which cannot be computed "
        "(integer division or modulo by zero), got 3 in shape (3,); n = 2 from axis 0 of `x`, k = "
        "0 from parameter `k`."
    )


def test_texts__other_tensors() -> None:
    def same_dtype(
        x: Float[Tensor, "n"], y: Annotated[Float[Tensor, "n"], SameDtype("x")]
    ) -> None: ...
    def alias(x: Float[Tensor, "n"], y: Annotated[Float[Tensor, "n"], NoAlias("x")]) -> None: ...
    def device(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None: ...
    def same_device(
        x: Float[Tensor, "n"],
        y: Annotated[Float[Tensor, "n"], AnyDevice()],
        z: Annotated[Float[Tensor, "n"], SameDevice("y")],
    ) -> None: ...

    x, meta = F(2), torch.zeros(2, device="meta")
    assert text_of(same_dtype, x, x.half()) == (
        "`y` must have dtype float32, the dtype of `x`: got float16."
    )
    assert text_of(alias, x, x) == (
        "`y` and `x` must be different tensors: got one tensor for both."
    )
    assert text_of(device, x, meta) == "`y` must be on cpu, the device of `x`: got meta."
    assert text_of(same_device, x, meta, F(2)) == (
        "`z` must be on meta, the device of `y`: got cpu."
    )


def test_texts__relations() -> None:
    def op(x: Float[Tensor, "n"], groups: int, other: Any = None) -> None: ...

    assert text_of(op, F(4), 3, where=["n % groups == 0"]) == (
        "n % groups == 0 must hold: got n = 4, groups = 3; n = 4 from axis 0 of `x`, groups = 3 "
        "from parameter `groups`."
    )
    assert text_of(op, F(4), 3, where=[relation("n < 4", when="groups > 2")]) == (
        "n < 4 must hold: got n = 4; n = 4 from axis 0 of `x`."
    )
    assert text_of(op, F(4), 3, where=[predicate(lambda n: n < 4, "few")]) == (
        "few must hold: got n = 4; n = 4 from axis 0 of `x`."
    )
    assert text_of(op, F(4), 3, [F(2)], where=[predicate(lambda other: not other, "none")]) == (
        "none must hold: got other = list of 1."
    )
    assert text_of(op, F(4), 0, where=["n % groups == 0"]) == (
        "n % groups == 0 must hold: got n = 4, groups = 0; n = 4 from axis 0 of `x`, groups = 0 "
        "from parameter `groups`."
    )


def test_texts__results() -> None:
    def single(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d//2"]: ...
    def pair(x: Float[Tensor, "n"]) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"]]: ...
    def same(x: Float[Tensor, "n"]) -> Annotated[Float[Tensor, "n"], Is("x")]: ...

    assert text_of(single, F(4, 6), result=F(4, 6)) == (
        "`return` must have shape [n, d//2]: axis 1 must be 3, got 6 in shape (4, 6); d = 6 from "
        "axis 1 of `x`."
    )
    assert text_of(single, F(4, 6), result=None) == "`return` must be a torch.Tensor: got None."
    assert text_of(single, F(4, 6), result=[1]) == (
        "`return` must be a torch.Tensor: got list of 1."
    )
    assert text_of(pair, F(4), result=F(4)) == (
        "the result must be a tuple of 2 tensors: got a Tensor of shape (4,)."
    )
    assert text_of(pair, F(4), result=(F(4),)) == (
        "the result must be a tuple of 2 tensors: got tuple of 1."
    )
    assert text_of(pair, F(4), result=(F(4), F(4))) == (
        "`return[1]` must have dtype Int (int16, int2, int32, int4, int64, int8): got float32."
    )
    assert text_of(same, F(4), result=F(4)) == (
        "`return` must be the tensor passed as `x`: got another one."
    )


def test_texts__nested_tensors() -> None:
    nested = torch.nested.nested_tensor([F(2, 3), F(4, 3)])
    assert expect(Float[Tensor, "n m"], nested) == (
        "`x` must have 2 axes [n, m]: got a nested tensor without a shape."
    )
    assert expect(int, nested) == "`x` must be an int: got a Tensor."
