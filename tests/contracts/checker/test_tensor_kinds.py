"""Every kind of tensor as an argument: a clean answer always, and the values are never read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int32, Shaped
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.contracts.checker.mode import mode
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import (
    Contiguous,
    Facet,
    LastDimContiguous,
    Mutated,
    Strides,
)


def _scale(x: Float[Tensor, "n 2*m"], w: Float[Tensor, "m"], index: Int32[Tensor, "n"]) -> Any:
    return x.shape


scale = enforce(contract(where=["n % 2 == 0", "x.numel() > 0"])(_scale), _scale, check_result=False)


def arguments(**options: Any) -> tuple[Tensor, Tensor, Tensor]:
    index = torch.zeros(4, dtype=torch.int32, **options)
    return torch.zeros(4, 6, **options), torch.zeros(3, **options), index


def test_kinds__meta() -> None:
    assert scale(*arguments(device="meta")) == (4, 6)


def test_kinds__meta_tensors_of_more_elements_than_int32_counts() -> None:
    x = torch.empty(2**20, 2**13, device="meta")
    w, index = torch.empty(2**12, device="meta"), torch.empty(2**20, device="meta").int()
    assert scale(x, w, index)[0] == 2**20


def test_kinds__fake() -> None:
    with FakeTensorMode():
        assert scale(*arguments()) == (4, 6)
        with pytest.raises(ContractError, match="axis 1 must be 8, got 6 in shape"):
            scale(torch.zeros(4, 6), torch.zeros(4), torch.zeros(4, dtype=torch.int32))


def test_kinds__fake_with_symbolic_sizes() -> None:
    fake = FakeTensorMode(shape_env=ShapeEnv())
    x, w, index = (fake.from_tensor(t, static_shapes=False) for t in arguments())
    assert isinstance(x.shape[0], torch.SymInt)
    scale(x, w, index)
    with pytest.raises(ContractError) as caught:
        scale(x, index, index)
    assert str(caught.value) == "`w` must have dtype Float: got int32."
    assert caught.value.bindings == {"n": 4, "m": 4}


def test_kinds__symbolic_int_as_a_dim() -> None:
    def op(n: int, x: Float[Tensor, "n"]) -> Any:
        return n

    guarded = enforce(contract()(op), op, check_result=False)
    fake = FakeTensorMode(shape_env=ShapeEnv())
    x = fake.from_tensor(torch.zeros(4), static_shapes=False)
    assert guarded(x.shape[0], x) == 4
    assert guarded(4, x) == 4
    with pytest.raises(ContractError, match="axis 0 must be 5, got 4"):
        guarded(x.shape[0] + 1, x)


def test_kinds__parameters_and_subclasses() -> None:
    class Tagged(Tensor):
        pass

    x, w, index = arguments()
    assert scale(torch.nn.Parameter(x), torch.nn.Buffer(w), index) == (4, 6)
    assert scale(x.as_subclass(Tagged), w.as_subclass(Tagged), index.as_subclass(Tagged)) == (4, 6)
    with pytest.raises(ContractError, match="axis 1 must be 12, got 6"):
        scale(x.as_subclass(Tagged), x[0].as_subclass(Tagged), index)


def test_kinds__scalars_and_vmap() -> None:
    def op(x: Float[Tensor, "n"]) -> Float[Tensor, ""]:
        return x.sum()

    guarded = enforce(contract()(op), op, check_result=True)
    torch.testing.assert_close(torch.vmap(guarded)(torch.ones(3, 4)), torch.full((3,), 4.0))


# Tensors without a plain memory


def unusual() -> Iterator[Tensor]:
    dense = torch.eye(3)
    yield dense.to_sparse()
    yield dense.to_sparse_csr()
    yield dense.to_sparse_csc()
    yield dense.to_mkldnn()
    yield torch.quantize_per_tensor(dense, 1.0, 0, torch.qint8)
    yield torch.nested.nested_tensor([dense, torch.zeros(2, 3)])
    yield torch.nested.nested_tensor([dense, torch.zeros(2, 3)], layout=torch.jagged)
    yield torch.zeros(3, 3, dtype=torch.complex64).conj()
    yield torch._efficientzerotensor((3, 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "facet", [None, Contiguous(), LastDimContiguous(), Mutated(), Strides("m 1")]
)
@pytest.mark.parametrize("debug", [False, True])
def test_kinds__unusual_layouts_get_a_clean_answer(facet: Facet | None, debug: bool) -> None:
    def op(x: Any, y: Shaped[Tensor, "n"] | None = None) -> str:
        return "ran"

    pattern = Shaped[Tensor, "n m"]
    op.__annotations__["x"] = pattern if facet is None else Annotated[pattern, facet]
    guarded = enforce(contract(where=["n + m >= 2", "x.ndim == 2"])(op), op, check_result=False)
    answers = []
    with mode("debug" if debug else "on"):
        for tensor in unusual():
            try:
                answers.append(guarded(tensor))
            except ContractError as error:
                answers.append(error.violations[0].facet)
    if facet is None:
        assert answers == ["ran", "ran", "ran", "ran", "ran", "rank", "rank", "ran", "ran"]
    assert set(answers) <= {"ran", "rank", "layout", "mutated"}


@pytest.mark.filterwarnings("ignore")
def test_kinds__any_tensor_may_be_any_tensor() -> None:
    def op(x: Tensor, y: Shaped[Tensor, "..."]) -> str:
        return "ran"

    guarded = enforce(contract()(op), op, check_result=False)
    assert [guarded(tensor, tensor) for tensor in unusual()] == ["ran"] * 9


# Values are never read


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every way to the values of a tensor fail."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the values of a tensor were read")

    names = ["item", "tolist", "numpy", "cpu", "to", "clone", "__repr__", "__str__", "__format__"]
    names += ["__bool__", "__int__", "__float__", "__index__", "__len__", "__iter__", "__array__"]
    names += ["__eq__", "__ne__", "__lt__", "__getitem__", "__contains__", "data_ptr"]
    for name in names:
        monkeypatch.setattr(Tensor, name, refuse)


@pytest.mark.usefixtures("unreadable")
def test_kinds__values_are_never_read() -> None:
    x, w, index = arguments()
    others = torch.zeros(5), torch.zeros(4, 6), torch.zeros(3, dtype=torch.int32)
    assert scale(x, w, index) == (4, 6)
    for call in (
        lambda: scale(x, w, others[2]),
        lambda: scale(others[0], w, index),
        lambda: scale(x, others[0], index),
        lambda: scale(x, index, index),
        lambda: scale(3, w, index),
        lambda: scale([x], w, index),
    ):
        check_that_it_is_refused(call)


@pytest.mark.usefixtures("unreadable")
def test_kinds__values_are_never_read_where_a_tensor_is_no_argument() -> None:
    def op(
        n: int, by: float, flag: bool, how: str, shape: tuple[int, ...], hook: Callable[[], int],
        table: dict[str, int], x: Float[Tensor, "n"], many: list[Float[Tensor, "n"]], rest: Any,
    ) -> None: ...  # fmt: skip

    guarded = enforce(contract(where=["rest is None or n > 1"])(op), op, check_result=False)
    x = torch.zeros(1)
    valid: dict[str, Any] = {
        "n": 1, "by": 1.0, "flag": True, "how": "a", "shape": (1,), "hook": list, "table": {},
        "x": x, "many": [x], "rest": None,
    }  # fmt: skip
    guarded(**valid)
    for name in valid:
        if name not in ("x", "rest"):
            check_that_it_is_refused(lambda name=name: guarded(**{**valid, name: x}))
    for value in (x, [x], {"x": x}, (x, x)):
        check_that_it_is_refused(lambda value=value: guarded(**{**valid, "rest": value}))


def check_that_it_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ContractError) as caught:
        call()
    assert str(caught.value)
    assert caught.value.__notes__
