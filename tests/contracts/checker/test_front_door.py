"""Python types at the front door: what each kind of parameter takes, what strange objects do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NewType, Protocol, runtime_checkable

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError, ContractTypeError
from tensorpact.contracts.checker.front_door import is_a, is_real_number, is_whole_number
from tensorpact.contracts.language.contract import contract


class Colour(enum.Enum):
    RED = 1


class Options:
    pass


class MoreOptions(Options):
    pass


@runtime_checkable
class Scaler(Protocol):
    def scale(self, x: Tensor) -> Tensor: ...


class Doubler:
    def scale(self, x: Tensor) -> Tensor:
        return x * 2


UserId = NewType("UserId", int)
X = torch.zeros(2)


def taking(hint: Any) -> Callable[[Any], Any]:
    def op(value: Any) -> None: ...

    op.__annotations__["value"] = hint
    return enforce(contract()(op), lambda value: "ran", check_result=False)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 3),
        (int, -(10**60)),
        (float, 2.5),
        (float, 3),
        (float, float("nan")),
        (bool, True),
        (str, "text"),
        (int | None, None),
        (int | str, "a"),
        (int | float, 1),
        (Any, object()),
        (object, None),
        (Float[Tensor, "n"], X),
        (Float[Tensor, "n"], torch.nn.Parameter(X)),
        (Tensor, X),
        (Float[Tensor, "n"] | float, 1.5),
        (list[Float[Tensor, "n"]], [X, X]),
        (Sequence[Float[Tensor, "n"]], (X,)),
        (tuple[Float[Tensor, "n"], ...], ()),
        (tuple[Float[Tensor, "n"], Float[Tensor, "n"]], (X, X)),
        (tuple[int, ...], (1, 2)),
        (list[int] | None, None),
        (tuple[int, str], (1, "a")),
        (torch.Size, X.shape),
        (tuple[int, ...], X.shape),
        (torch.dtype, torch.float32),
        (torch.device, torch.device("cpu")),
        (Literal["a", "b"], "b"),
        (Colour, Colour.RED),
        (Options, MoreOptions()),
        (type[Options], MoreOptions),
        (Callable[[Tensor], Tensor], torch.relu),
        (Scaler, Doubler()),
        (Mapping[str, int], {"a": 1}),
        (dict[str, Any], {}),
        (UserId, 3),
    ],
)
def test_front_door__takes(hint: Any, value: Any) -> None:
    assert taking(hint)(value) == "ran"


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (int, True, "`value` must be an int: got bool True."),
        (int, 2.0, "`value` must be an int: got float 2.0."),
        (int, None, "`value` must be an int: got None."),
        (int | None, False, "`value` must be an int or None: got bool False."),
        (float, True, "`value` must be a float: got bool True."),
        (float, "2", "`value` must be a float: got str '2'."),
        (float, X[0], "`value` must be a float: got a Tensor of shape ()."),
        (bool, 1, "`value` must be a bool: got int 1."),
        (str, b"a", "`value` must be a str: got bytes."),
        (str, 10**60, "`value` must be a str: got int about 2**199."),
        (int, "x" * 41, "`value` must be an int: got str of 41 characters."),
        (Float[Tensor, "n"], [1.0], "`value` must be a torch.Tensor: got list of 1."),
        (Float[Tensor, "n"], None, "`value` must be a torch.Tensor: got None."),
        (
            Float[torch.nn.Parameter, "n"],
            X,
            "`value` must be a Parameter: got a Tensor of shape (2,).",
        ),
        (
            Float[Tensor, "n"] | float,
            "x",
            "`value` must be a torch.Tensor or a float: got str 'x'.",
        ),
        (list[Float[Tensor, "n"]], (X,), "`value` must be a list of tensors: got tuple of 1."),
        (list[Float[Tensor, "n"]], [X, 3], "`value[1]` must be a torch.Tensor: got int 3."),
        (list[Float[Tensor, "n"]], [X, None], "`value[1]` must be a torch.Tensor: got None."),
        (
            tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
            (X,),
            "`value` must be a tuple of tensors: got tuple of 1.",
        ),
        (
            tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
            (X, None),
            "`value[1]` must be a torch.Tensor: got None.",
        ),
        (tuple[int, ...], (1, True, 2), "`value` must be tuple[int, ...]: got tuple of 3."),
        (tuple[int, ...], [1, 2], "`value` must be tuple[int, ...]: got list of 2."),
        (torch.dtype, "float32", "`value` must be dtype: got str 'float32'."),
        (Literal["a", "b"], "c", "`value` must be Literal['a', 'b']: got str 'c'."),
        (Colour, 1, "`value` must be Colour: got int 1."),
        (Options, Options, "`value` must be Options: got type."),
        (
            Callable[[Tensor], Tensor],
            3,
            "`value` must be Callable[[torch.Tensor], torch.Tensor]: got int 3.",
        ),
        (Scaler, Options(), "`value` must be Scaler: got Options."),
        (Mapping[str, int], [], "`value` must be Mapping[str, int]: got list of 0."),
    ],
)
def test_front_door__refuses(hint: Any, value: Any, text: str) -> None:
    with pytest.raises(ContractTypeError) as caught:
        taking(hint)(value)
    assert str(caught.value) == text
    assert caught.value.argument.startswith("value")


def test_front_door__a_wrong_item_fails_every_time() -> None:
    op = taking(list[int])
    for _ in range(50):
        with pytest.raises(ContractTypeError):
            op([*range(40), "x"])


# Objects that lie or fail


class Liar:
    """Says by `__class__` that it is something else."""

    def __init__(self, pretended: type) -> None:
        self._pretended = pretended

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return self._pretended

    @__class__.setter
    def __class__(self, value: type) -> None: ...


class Thrower:
    """Fails whatever is asked of it."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("asked for its class")

    @__class__.setter
    def __class__(self, value: type) -> None: ...

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("asked for something")

    shape = dtype = device = property(_fail)
    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __call__ = _fail
    __getitem__ = __lt__ = __gt__ = __add__ = __index__ = __format__ = _fail


class Talker:
    """Has a text that nobody wants to wait for."""

    shape = (2,)

    def __repr__(self) -> str:
        raise AssertionError("its text was asked for")


HINTS = [
    int,
    float,
    bool,
    str,
    int | None,
    Float[Tensor, "n"],
    Float[Tensor, "n"] | None,
    Float[Tensor, "n"] | Float[Tensor, "n m"],
    Float[Tensor, "n"] | int,
    list[Float[Tensor, "n"]],
    Sequence[Float[Tensor, "n"]],
    tuple[Float[Tensor, "n"], Float[Tensor, "n"]],
    tuple[int, ...],
    Callable[[int], int],
    Mapping[str, int],
    Scaler,
    Options,
    Literal["a"],
]


def strange() -> Iterator[Any]:
    for kind in (Tensor, int, float, bool, str, list, tuple, dict, Options):
        yield Liar(kind)
    yield Thrower()
    yield Talker()


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_front_door__strange_objects_are_refused(hint: Any) -> None:
    op = taking(hint)
    for value in strange():
        if hint == Callable[[int], int] and type(value) is Thrower:
            continue  # It has a `__call__`, and that is all that is asked.
        with pytest.raises(ContractTypeError) as caught:
            op(value)
        assert str(caught.value).endswith(f"got {type(value).__name__}.")


@pytest.mark.parametrize(
    "wrap", [lambda value: [value], lambda value: [X, value]], ids=["first", "second"]
)
def test_front_door__strange_objects_in_lists_are_refused(wrap: Callable[[Any], Any]) -> None:
    op = taking(list[Float[Tensor, "n"]])
    for value in strange():
        with pytest.raises(ContractTypeError):
            op(wrap(value))


def test_front_door__strange_objects_pass_where_anything_may() -> None:
    for value in strange():
        assert taking(Any)(value) == "ran"


def test_front_door__a_strange_object_is_never_printed_beside_another_fault() -> None:
    @contract(where=["n >= 3"])
    def op(x: Float[Tensor, "n"], other: Any) -> None: ...

    guarded = enforce(op, lambda x, other: None, check_result=False)
    with pytest.raises(ContractError) as caught:
        guarded(X, Thrower())
    assert str(caught.value) == "n >= 3 must hold: got n = 2; n = 2 from axis 0 of `x`."


# The tests by themselves


def test_is_a__asks_the_true_class() -> None:
    assert not is_a(Liar(int), int)
    assert is_a(torch.nn.Parameter(X), torch.nn.Parameter)
    assert not is_a(X, torch.nn.Parameter)


def test_numbers__bool_is_none() -> None:
    assert [is_whole_number(value) for value in (1, True, 1.0, "1")] == [True, False, False, False]
    assert [is_real_number(value) for value in (1, True, 1.0, 1j)] == [True, False, True, False]
