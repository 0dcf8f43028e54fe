"""Enforced functions under torch.compile: the eager result, few frames, no graph break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import (
    Contiguous,
    LastDimContiguous,
    Mutated,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.rows import relation

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()


def enforced(body: Function, **clauses: Any) -> Function:
    return enforce(contract(**clauses)(body), body, check_result=True)


def plain() -> tuple[Function, Function]:
    def scaled(x: Float[Tensor, "batch dim"], w: Float[Tensor, "dim"], by: float = 2.0) -> Any:
        return x * w * by

    return enforced(scaled), lambda n: (torch.randn(n, 4), torch.randn(4))


def optional() -> tuple[Function, Function]:
    def shifted(x: Float[Tensor, "batch dim"], bias: Float[Tensor, "dim"] | None = None) -> Any:
        return x if bias is None else x + bias

    return enforced(shifted), lambda n: (torch.randn(n, 4), torch.randn(4))


def union() -> tuple[Function, Function]:
    def flat(
        a: Float[Tensor, "batch heads*dim"] | Float[Tensor, "batch heads dim"],
        w: Float[Tensor, "heads dim"],
    ) -> Any:
        return a.reshape(a.shape[0], *w.shape) * w

    return enforced(flat), lambda n: (torch.randn(n, 3, 4), torch.randn(3, 4))


def several() -> tuple[Function, Function]:
    def summed(xs: list[Float[Tensor, "batch ?width"]], *more: Float[Tensor, "batch"]) -> Any:
        return sum(x.sum(1) for x in xs) + sum(more)

    return enforced(summed), lambda n: (
        [torch.randn(n, 2), torch.randn(n, 5)], torch.randn(n), torch.randn(n),
    )  # fmt: skip


def solved() -> tuple[Function, Function]:
    def split(qkv: Float[Tensor, "batch 2*H*K+HV*V"], state: Float[Tensor, "HV V K"]) -> Any:
        return qkv[:, : state.shape[0] * state.shape[1]].sum(1) * state.sum()

    return enforced(split, where=["HV % H == 0"]), lambda n: (
        torch.randn(n, 2 * 2 * 3 + 4 * 5), torch.randn(4, 5, 3),
    )  # fmt: skip


def facets() -> tuple[Function, Function]:
    def read(
        x: Annotated[Float[Tensor, "batch dim"], Contiguous()],
        view: Annotated[Float[Tensor, "batch dim"], LastDimContiguous()],
        padded: Annotated[Float[Tensor, "batch dim"], Strides("_ 1"), SameDtype("x")],
        out: Annotated[Float[Tensor, "batch dim"], Mutated()],
    ) -> Any:
        return x + view + padded + out

    return enforced(read), lambda n: (
        torch.randn(n, 4), torch.randn(n, 8)[:, :4], torch.randn(n, 6)[:, :4],
        torch.randn(4, n).t(),
    )  # fmt: skip


def relations() -> tuple[Function, Function]:
    def related(x: Float[Tensor, "batch dim"], groups: int, index: Int[Tensor, "batch"]) -> Any:
        return x.unflatten(1, (groups, -1)).sum(2) + index[:, None]

    where = ["dim % groups == 0", relation("batch >= 2", when="groups > 1"), "cdiv(dim, 3) == 2"]
    return enforced(related, where=where), lambda n: (
        torch.randn(n, 4), 2, torch.arange(n),
    )  # fmt: skip


def broadcast() -> tuple[Function, Function]:
    def added(x: Float[Tensor, "*#lead dim"], y: Float[Tensor, "*#lead #dim"]) -> Any:
        return x + y

    return enforced(added), lambda n: (torch.randn(n, 1, 4), torch.randn(3, 1))


def early() -> tuple[Function, Function]:
    def doubled(x: Float[Tensor, "batch dim"], y: Float[Tensor, "batch"]) -> Any:
        return x * 2 if x.shape[0] == 0 else x * y[:, None]

    zero = {"batch": "returns nothing"}
    return enforced(doubled, zero=zero, early_return="batch == 0"), lambda n: (
        torch.randn(n, 4), torch.randn(n),
    )  # fmt: skip


def checked_result() -> tuple[Function, Function]:
    def halves(
        x: Float[Tensor, "batch 2*half"],
    ) -> tuple[Float[Tensor, "batch half"], Float[Tensor, "batch half"]]:
        first, second = x.chunk(2, 1)
        return first * 2, second * 3

    return enforced(halves), lambda n: (torch.randn(n, 8),)


def front_door() -> tuple[Function, Function]:
    def applied(
        x: Float[Tensor, "batch dim"],
        activation: Callable[[Tensor], Tensor],
        shape: tuple[int, ...],
        table: Mapping[str, int],
        flag: bool = True,
        mode: str = "plain",
    ) -> Float[Tensor, "{shape}"]:
        return activation(x).reshape(shape) if flag and mode == "plain" else x

    return enforced(applied), lambda n: (torch.randn(n, 4), torch.relu, (2 * n, 2), {})


KINDS = [
    plain, optional, union, several, solved, facets, relations, broadcast, early, checked_result,
    front_door,
]  # fmt: skip
SETTINGS = [{}, {"fullgraph": True}, {"fullgraph": True, "dynamic": True}]


@pytest.mark.parametrize("settings", SETTINGS, ids=["default", "fullgraph", "dynamic"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_compile__returns_the_eager_result(
    kind: Callable[[], tuple[Function, Function]], settings: dict[str, bool]
) -> None:
    function, make = kind()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, **settings)
    for size in (2, 3, 5):
        arguments = make(size)
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
    assert counter.frame_count >= 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_compile__nine_batch_sizes_take_two_frames(
    kind: Callable[[], tuple[Function, Function]],
) -> None:
    function, make = kind()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter)
    for size in range(2, 11):
        compiled(*make(size))
    assert counter.frame_count <= 2


def test_compile__a_bad_call_raises_the_text() -> None:
    function, make = plain()
    compiled = torch.compile(function, backend="eager")
    compiled(*make(2))
    with pytest.raises(ContractError) as caught:
        compiled(torch.randn(2, 4), torch.randn(5))
    assert str(caught.value) == (
        "`w` must have shape [dim]: axis 0 must be 4, got 5 in shape (5,); dim = 4 from axis 1 of "
        "`x`."
    )


def test_compile__a_bad_call_inside_a_compiled_caller_raises_the_text() -> None:
    function, _ = plain()

    @torch.compile(backend="eager")
    def caller(x: Tensor, w: Tensor) -> Any:
        return function(x, w) + 1

    with pytest.raises(ContractError, match="axis 0 must be 4, got 5"):
        caller(torch.randn(2, 4), torch.randn(5))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile__fullgraph_keeps_the_text_inside_the_compilers_error(dynamic: bool) -> None:
    function, _ = plain()
    compiled = torch.compile(function, backend="eager", fullgraph=True, dynamic=dynamic)
    text = r"`w` must have shape \[dim\]: axis 0 must be 4, got 5 in shape \(5,\)"
    with pytest.raises(Exception, match=text):
        compiled(torch.randn(2, 4), torch.randn(5))


def test_compile__parameters_and_subclasses_trace() -> None:
    function, _ = plain()
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    x, w = torch.randn(3, 4), torch.nn.Parameter(torch.randn(4))
    torch.testing.assert_close(compiled(x, w), function(x, w))


def test_export__traces_the_guard() -> None:
    function, make = solved()

    class Module(torch.nn.Module):
        def forward(self, *arguments: Tensor) -> Any:
            return function(*arguments)

    arguments = make(3)
    batch = torch.export.Dim("batch", min=2)
    shapes = {"arguments": ({0: batch}, None)}
    program = torch.export.export(Module(), arguments, dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(*make(7))[:0], torch.empty(0))
