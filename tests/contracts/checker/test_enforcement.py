"""What an enforced function is to its callers: a plain function, in every form Python has."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import threading
import traceback
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tensorpact.contracts.checker.enforcement import GuardMismatchError, enforce
from tensorpact.contracts.checker.errors import ContractError, ContractTypeError
from tensorpact.contracts.checker.mode import mode
from tensorpact.contracts.language.contract import build_contract
from tensorpact.contracts.language.facets import Contiguous, Is, Mutated
from tensorpact.contracts.language.rows import predicate

F = torch.zeros


def enforced(function: Any = None, /, *, check_result: bool = True, **clauses: Any) -> Any:
    """Enforce a function's own annotations, as a decorator."""
    if function is None:
        return functools.partial(enforced, check_result=check_result, **clauses)
    names = dict(inspect.currentframe().f_back.f_locals)  # type: ignore[union-attr]
    built = build_contract(function, names=names, **clauses)
    return enforce(built, function, check_result=check_result)


def refusal(call: Any) -> str:
    with pytest.raises(ContractError) as caught:
        call()
    return str(caught.value)


@enforced
def halves(x: Float[Tensor, "n 2*half"], by: float = 2.0) -> Float[Tensor, "n half"]:
    """Add the halves."""
    return (x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]) / by


class Layer(torch.nn.Module):
    scale = 3

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    @enforced
    def forward(self, x: Float[Tensor, "batch self.heads"]) -> Float[Tensor, "batch"]:
        return x.sum(1) * self.scale

    @staticmethod
    @enforced
    def doubled(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return 2 * x

    @classmethod
    @enforced
    def scaled(cls, x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return cls.scale * x


# The function itself


def test_enforced__looks_like_the_body() -> None:
    assert halves.__name__ == "halves"
    assert halves.__doc__ == "Add the halves."
    assert halves.__module__ == __name__
    assert inspect.isfunction(halves)
    assert str(inspect.signature(halves)).startswith("(x: ")
    assert inspect.signature(halves).parameters["by"].default == 2.0


def test_enforced__pickles_by_name() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(halves, protocol)) is halves


def test_enforced__the_traceback_shows_the_generated_line() -> None:
    with pytest.raises(ContractError) as caught:
        halves(F(2, 3))
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "_invalid(x, by)" in lines


def test_enforced__missing_and_extra_arguments_are_pythons_errors() -> None:
    with pytest.raises(TypeError) as missing:
        halves()
    assert not isinstance(missing.value, ContractError)
    with pytest.raises(TypeError):
        halves(F(2, 4), bye=1.0)


def test_enforced__errors_of_the_body_pass_through() -> None:
    @enforced
    def broken(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        raise AttributeError("of the body")

    with pytest.raises(AttributeError, match="of the body"):
        broken(F(2))


# Methods


def test_enforced__methods_stay_bound_methods() -> None:
    layer = Layer(4)
    assert inspect.ismethod(layer.forward)
    assert layer.forward.__self__ is layer
    assert inspect.ismethod(Layer.scaled)
    assert torch.equal(layer(F(2, 4) + 1), torch.full((2,), 12.0))
    assert torch.equal(Layer.doubled(F(2) + 1), F(2) + 2)
    assert torch.equal(Layer.scaled(F(2) + 1), F(2) + 3)


def test_enforced__instance_attributes_are_dims() -> None:
    assert refusal(lambda: Layer(4)(F(2, 5))) == (
        "`x` must have shape [batch, self.heads]: axis 1 must be 4, got 5 in shape (2, 5)."
    )


def test_enforced__an_instance_attribute_that_is_missing() -> None:
    layer = Layer(4)
    del layer.heads
    assert refusal(lambda: layer(F(2, 5))) == (
        "`x` must have shape [batch, self.heads]: axis 1 must be the value of self.heads, which "
        "cannot be computed (heads), got 5 in shape (2, 5)."
    )


# Parameters of every kind


def test_enforced__several_tensors_by_star() -> None:
    @enforced
    def total(*xs: Float[Tensor, "n ?m"], scale: float = 1.0) -> Float[Tensor, "n"]:
        return sum(x.sum(1) for x in xs) * scale  # type: ignore[return-value]

    assert torch.equal(total(F(2, 3) + 1, F(2, 4) + 1, scale=2.0), torch.full((2,), 14.0))
    assert refusal(lambda: total(F(2, 3), F(3, 4))) == (
        "`xs[1]` must have shape [n, ?m]: axis 0 must be 2, got 3 in shape (3, 4); n = 2 from axis "
        "0 of `xs[0]`."
    )


def test_enforced__positional_only_and_keyword_only() -> None:
    default = [1, 2]

    @enforced
    def mixed(
        x: Float[Tensor, "n"], /, n: int, *, values: Any = default, other: float = float("inf")
    ) -> Any:
        return x, n, values, other

    assert mixed(F(3), 3)[2:] == (default, float("inf"))
    assert mixed(F(3), 3)[2] is default
    assert mixed(F(3), n=3, other=1)[3] == 1
    with pytest.raises(TypeError, match="positional-only"):
        mixed(x=F(3), n=3)
    with pytest.raises(TypeError, match="positional argument"):
        mixed(F(3), 3, [])


def test_enforced__keywords_pass_through() -> None:
    @enforced
    def options(x: Float[Tensor, "n"], **others: int) -> Any:
        return others

    assert options(F(2), a=1, b=2) == {"a": 1, "b": 2}
    with mode("debug"):
        assert options(F(2), a=1) == {"a": 1}


def test_enforced__defaults_that_are_no_literals() -> None:
    marker = object()

    @enforced
    def op(
        x: Float[Tensor, "n"],
        kind: torch.dtype = torch.float16,
        pair: tuple[int, int] = (1, 2),
        low: float = float("-inf"),
        text: str = "a'\"\n\\",
        thing: Any = marker,
    ) -> Any:
        return kind, pair, low, text, thing

    assert op(F(2)) == (torch.float16, (1, 2), float("-inf"), "a'\"\n\\", marker)


def test_enforced__spliced_tuple() -> None:
    @enforced
    def zeros(shape: tuple[int, ...], like: Float[Tensor, "n"]) -> Float[Tensor, "{shape} n"]:
        return like.expand(*shape, -1)

    assert zeros((2, 3), F(4)).shape == (2, 3, 4)
    assert zeros((), F(4)).shape == (4,)


def test_enforced__nested_functions_close_over_what_they_need() -> None:
    size, kind = 3, Float

    @enforced
    def inner(x: kind[Tensor, "n"]) -> Any:  # type: ignore[valid-type]
        return x.shape[0] * size

    assert inner(F(2)) == 6


def test_enforced__coroutines() -> None:
    @enforced
    async def slow(x: Float[Tensor, "n"], m: int) -> Float[Tensor, "m"]:
        await asyncio.sleep(0)
        return x[:m]

    assert inspect.iscoroutinefunction(slow)
    assert asyncio.run(slow(F(3), 2)).shape == (2,)
    assert refusal(lambda: asyncio.run(slow(F(3), 4))) == (
        "`return` must have shape [m]: axis 0 must be 4, got 3 in shape (3,); m = 4 from parameter "
        "`m`."
    )
    with mode("debug"):
        assert asyncio.run(slow(F(3), 2)).shape == (2,)
        assert refusal(lambda: asyncio.run(slow(F(0), 2))).startswith("`n` must be at least 1")


def test_enforced__threads() -> None:
    texts: list[str] = []
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(50):
                halves(F(2, 2 * number + 2))
                texts.append(refusal(lambda: halves(F(2, 2 * number + 1))))
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []
    assert len(texts) == 400
    assert set(texts) == {
        "`x` must have shape [n, 2*half]: no whole half >= 1 makes 2*half equal to "
        f"{2 * number + 1}, the size of axis 1 in shape (2, {2 * number + 1})."
        for number in range(8)
    }


# Results


def test_enforced__results_are_checked() -> None:
    @enforced
    def pair(x: Float[Tensor, "n"], how: str) -> tuple[Float[Tensor, "n"], Int[Tensor, "m"]]:
        made: dict[str, Any] = {
            "right": (x, F(2).int()), "list": [x, F(2).int()], "short": (x,), "none": None,
            "dtype": (x, F(2)), "shape": (F(9), F(2).int()), "lone": x,
        }  # fmt: skip
        return made[how]  # type: ignore[no-any-return]

    assert len(pair(F(3), "right")) == 2
    words = "the result must be a tuple of 2 tensors: got"
    assert refusal(lambda: pair(F(3), "list")) == f"{words} list of 2."
    assert refusal(lambda: pair(F(3), "short")) == f"{words} tuple of 1."
    assert refusal(lambda: pair(F(3), "none")) == f"{words} None."
    assert refusal(lambda: pair(F(3), "lone")) == f"{words} a Tensor of shape (3,)."
    assert refusal(lambda: pair(F(3), "dtype")).startswith("`return[1]` must have dtype Int")
    assert refusal(lambda: pair(F(3), "shape")).startswith("`return[0]` must have shape [n]")


def test_enforced__results_are_left_alone_without_check_result() -> None:
    @enforced(check_result=False)
    def same(x: Float[Tensor, "n"]) -> Float[Tensor, "n+1"]:
        return x

    assert same(F(2)).shape == (2,)
    with mode("debug"):
        assert refusal(lambda: same(F(2))).startswith("`return` must have shape [n+1]")


def test_enforced__an_early_return_may_return_anything() -> None:
    @enforced(zero={"n": "returns None"}, early_return="n == 0")
    def op(x: Float[Tensor, "n"], y: Float[Tensor, "m"]) -> Float[Tensor, "n"]:
        return None if x.shape[0] == 0 else x  # type: ignore[return-value]

    assert op(F(0), F(1, 1, 1)) is None
    with mode("debug"):
        assert op(F(0), F(1, 1, 1)) is None
    assert refusal(lambda: op(F(0).int(), F(1))).startswith("`x` must have dtype Float")
    assert refusal(lambda: op(F(2), F(1, 1))) == "`y` must have 1 axis [m]: got shape (1, 1)."


def test_enforced__the_result_may_have_to_be_an_argument() -> None:
    @enforced
    def fill(
        out: Annotated[Float[Tensor, "n"], Mutated()], copy: bool = False
    ) -> Annotated[Float[Tensor, "n"], Is("out")]:
        return out.clone() if copy else out.fill_(1)

    assert fill(F(2)).sum() == 2
    assert refusal(lambda: fill(F(2), True)) == (
        "`return` must be the tensor passed as `out`: got another one."
    )


# Predicates


def test_enforced__a_predicate_that_fails_by_itself_raises_its_own_error() -> None:
    def wrong(n: int) -> bool:
        raise KeyError("mine")

    @enforced(where=[predicate(wrong, "never")])
    def op(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None: ...

    with pytest.raises(KeyError, match="mine"):
        op(F(2), F(2))
    assert refusal(lambda: op(F(2), F(3))).startswith("`y` must have shape [n]")


def test_guard_mismatch__names_the_op() -> None:
    assert str(GuardMismatchError("op")) == (
        "the guard of op refused a call that its contract allows; this is a fault in tensorpact, "
        "please report it with the output of `tensorpact doctor`."
    )


# Debug mode


def test_enforced__debug_mode_runs_valid_calls() -> None:
    with mode("debug"):
        assert torch.equal(halves(F(2, 4) + 1, by=1.0), F(2, 2) + 2)
        assert Layer(4)(F(2, 4)).shape == (2,)


def test_enforced__debug_mode_collects_every_violation() -> None:
    @enforced(where=["n % 2 == 0"])
    def op(
        x: Annotated[Float[Tensor, "n m"], Contiguous()], y: Float[Tensor, "m"], k: int
    ) -> None: ...

    def call() -> None:
        op(F(4, 3).t(), F(5).int(), True)

    assert refusal(call) == "`k` must be an int: got bool True."
    with mode("debug"), pytest.raises(ContractTypeError) as caught:
        call()
    assert str(caught.value).splitlines() == [
        "`k` must be an int: got bool True.",
        "`y` must have dtype Float: got int32.",
        "`y` must have shape [m]: axis 0 must be 4, got 5 in shape (5,); m = 4 from axis 1 of `x`.",
        "`x` must be contiguous: got shape (3, 4) with strides (1, 3).",
        "n % 2 == 0 must hold: got n = 3; n = 3 from axis 0 of `x`.",
    ]
