"""The decorator: its three forms, what it keeps of the function, and what it refuses."""

import gc
import inspect
import os
import pickle
import subprocess
import sys
import typing
import weakref

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import tensorpact as tp


@tp.op
def halve(x: Float[Tensor, "n 2*m"]) -> Float[Tensor, "n m"]:
    """Keep the first half."""
    return x[:, : x.shape[1] // 2]


@tp.op(where=["m % 4 == 0"])
def aligned(x: Float[Tensor, "n m"], *, shift: int = 1) -> Float[Tensor, "n m"]:
    """Shift."""
    return x + shift


class Model:
    """Holds a size that a method's contract reads."""

    def __init__(self, width):
        self.width = width

    @tp.op
    def forward(self, x: Float[Tensor, "n self.width"]) -> Float[Tensor, "n self.width"]:
        """Pass on."""
        return x

    @tp.op
    @staticmethod
    def plain(x: Float[Tensor, "3 n"]) -> Float[Tensor, "3 n"]:
        return x

    @classmethod
    @tp.op
    def make(cls, x: Float[Tensor, "4 n"]) -> Float[Tensor, "4 n"]:
        return x


def test_op__keeps_name_docstring_signature_and_module():
    assert halve.__name__ == "halve"
    assert halve.__doc__ == "Keep the first half."
    assert halve.__module__ == __name__
    assert list(inspect.signature(aligned).parameters) == ["x", "shift"]


def test_op__is_a_plain_function():
    assert inspect.isfunction(halve)
    assert pickle.loads(pickle.dumps(halve)) is halve


def test_op__holds_clauses():
    assert aligned(torch.zeros(2, 8)).sum() == 16
    with pytest.raises(tp.ContractError) as caught:
        aligned(torch.zeros(2, 6))
    assert str(caught.value) == "m % 4 == 0 must hold: got m = 6; m = 6 from axis 1 of `x`."


def test_op__methods_stay_bound_methods():
    model = Model(5)
    assert inspect.ismethod(model.forward)
    assert model.forward(torch.ones(2, 5)).shape == (2, 5)
    with pytest.raises(tp.ContractError, match="axis 1 must be 5, got 6"):
        model.forward(torch.ones(2, 6))


def test_op__static_and_class_methods():
    assert Model.plain(torch.ones(3, 2)).shape == (3, 2)
    assert Model.make(torch.ones(4, 2)).shape == (4, 2)
    for call in (Model.plain, Model.make):
        with pytest.raises(tp.ContractError):
            call(torch.ones(5, 2))


def test_op__unchecked_skips_the_contract():
    assert aligned.unchecked(torch.zeros(2, 6), shift=3).sum() == 36


def test_op__checks_its_result():
    @tp.op
    def wrong(x: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d//2"]:
        return x if x.shape[0] == 4 else x[:, ::2]

    assert wrong(torch.ones(3, 6)).shape == (3, 3)
    with pytest.raises(tp.ContractError) as caught:
        wrong(torch.ones(4, 6))
    assert caught.value.argument == "return"
    assert str(caught.value) == (
        "`return` must have shape [batch, d//2]: axis 1 must be 3, got 6 in shape (4, 6); d = 6 "
        "from axis 1 of `x`."
    )


def test_op__defaults_bind_dims():
    """Case 7."""

    @tp.op
    def zeros(n: int, head_dim: int = 16) -> Float[Tensor, "n head_dim"]:
        return torch.zeros(n, head_dim)

    assert zeros(3).shape == (3, 16)
    with pytest.raises(tp.ContractTypeError, match="`n` must be an int: got bool True"):
        zeros(True)


def test_op__other_names_than_the_contract_are_refused():
    @tp.contract()
    def promise(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None: ...

    with pytest.raises(tp.ContractDefinitionError) as caught:

        @tp.op(promise)
        def entry(x, z):
            """Nothing."""

    assert "takes (x, z), and its contract says (x, y)" in str(caught.value)


def test_op__other_defaults_than_the_contract_are_refused():
    @tp.contract()
    def promise(x: Float[Tensor, "n"], k: int = 4) -> None: ...

    with pytest.raises(tp.ContractDefinitionError, match="`k` defaults to 5, and the contract"):

        @tp.op(promise)
        def entry(x, k=5):
            """Nothing."""


def test_op__clauses_beside_a_contract_are_refused():
    @tp.contract()
    def promise(x: Float[Tensor, "n"]) -> None: ...

    with pytest.raises(tp.ContractDefinitionError, match="the clauses belong to the contract"):
        tp.op(promise, where=["n > 1"])


def test_op__what_is_no_function_is_refused():
    with pytest.raises(tp.ContractDefinitionError, match="not int"):
        tp.op(3)


def test_op__runs_a_body_behind_a_contract_that_stands_elsewhere():
    @tp.contract()
    def promise(x: Float[Tensor, "n m"]) -> Float[Tensor, "m n"]: ...

    @tp.op(promise)
    def transpose(x):
        return x.t()

    assert transpose(torch.ones(2, 3)).shape == (3, 2)
    with pytest.raises(tp.ContractError):
        transpose(torch.ones(2))


def test_op__switched_off_is_the_original_function():
    code = (
        "import torch, tensorpact as tp\n"
        "from jaxtyping import Float\n"
        "def f(x: Float[torch.Tensor, '3']): return x\n"
        "g = tp.op(f)\n"
        "assert g is f and g.unchecked is f\n"
        "assert g(torch.ones(4)).shape == (4,)\n"
        "from tensorpact.ops import kda_packed_decode as op\n"
        "print(op.__code__.co_filename)\n"
    )
    environment = {**os.environ, "TENSORPACT_MODE": "off"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "<dispatch of kda_packed_decode>"


def test_op__returns_other_values_beside_tensors():
    @tp.op
    def count(x: Float[Tensor, "n m"], columns: int) -> tuple[int, Float[Tensor, "n columns"]]:
        return x.shape[0], x[:, :columns]

    number, cut = count(torch.ones(3, 5), 2)
    assert (number, cut.shape) == (3, (3, 2))
    with pytest.raises(tp.ContractError) as caught:
        count(torch.ones(3, 5), 6)
    assert caught.value.argument == "return[1]"


def test_op__a_body_that_returns_a_constant_is_a_body():
    @tp.contract()
    def promise(x: Float[Tensor, "n"]) -> int: ...

    @tp.op(promise)
    def five(x):
        """Five."""
        return 5

    assert five(torch.ones(2)) == 5


def test_op__dots_are_no_body():
    @tp.contract()
    def promise(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...

    tp.implements(promise, backend="eager")(lambda x: x + 1)

    @tp.op(promise)
    def entry(x): ...

    assert entry(torch.zeros(2)).sum() == 2


def test_op__an_unknown_clause_is_refused_with_a_hint():
    with pytest.raises(tp.ContractDefinitionError) as caught:
        tp.op(wher=["n > 1"])
    assert str(caught.value) == "`op` has no clause `wher`. Did you mean `where`?"


def test_op__a_kept_error_keeps_no_tensor_alive():
    tensor = torch.ones(3)
    kept = weakref.ref(tensor)
    with pytest.raises(tp.ContractError) as caught:
        halve(tensor)
    error = caught.value
    del caught, tensor
    error.__traceback__ = None
    gc.collect()
    assert kept() is None
    assert error.__context__ is None


def test_op__sees_through_new_types_and_type_variables():
    rows = typing.NewType("rows", Float[Tensor, "a b"])
    columns = typing.TypeVar("columns", bound=Float[Tensor, "b"])

    @tp.op
    def add(x: rows, y: columns) -> rows:
        return x + y

    assert add(torch.ones(2, 3), torch.ones(3)).shape == (2, 3)
    with pytest.raises(tp.ContractError, match="axis 0 must be 3, got 4"):
        add(torch.ones(2, 3), torch.ones(4))


def test_op__takes_numpy_numbers():
    np = pytest.importorskip("numpy")

    @tp.op
    def scaled(x: Float[Tensor, "n"], count: int, scale: float) -> Float[Tensor, "n"]:
        return x * int(count) * float(scale)

    assert scaled(torch.ones(1), np.int64(3), np.float32(0.5)) == 1.5
    with pytest.raises(tp.ContractTypeError, match=r"`count` must be an int: got numpy\.bool"):
        scaled(torch.ones(1), np.True_, 0.5)
