"""An oracle that shares no code with us: jaxtyping with beartype accepts the same calls.

Compared is what both can say. Where they differ by design, the drawn contracts keep away:

- jaxtyping binds dims from left to right, and an expression sees only what was bound before; ours
  are order-free and can be solved. So a first tensor that is always passed binds the plain dims
  `n` and `m`, expressions read only these, and `*b` stands before `*#b`, `n` before `#n`.
- A dim of size 0 is refused here unless declared: sizes are at least 1.
- A union is tried member by member there, and by rank, dtype and known dims here: members differ
  in rank.
- Facets, devices and the int that is no bool are ours alone: tensors on one device, no scalars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import hypothesis
import torch
from beartype import beartype
from hypothesis import strategies as st
from jaxtyping import Float, Float16, Inexact, Int, Int32, Integer, Shaped, jaxtyped
from torch import Tensor

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.contracts.language.contract import build_contract

KINDS = (Float, Float16, Inexact, Int, Int32, Integer, Shaped)
DTYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.bool, torch.complex64)
SIZES = st.integers(1, 3)
BINDING = ("n", "m", "n m", "m n", "n n m", "3 n m", "_ m n")
SINGLE = ("n", "m", "k", "2", "_", "#n", "#m", "#k", "#2", "rows=2")
COMPUTED = ("2*n", "n+m", "n*m", "n-1", "m//2", "n%2", "2*n*m+1", "#n+1", "min(n,m)")
FLEXIBLE = ("...", "*b", "*#b", "*_")


@dataclass
class Drawn:
    """One parameter: its annotation and what is passed for it."""

    hint: Any
    value: Tensor | None


@st.composite
def patterns(draw: st.DrawFn, variadic: bool) -> list[str]:
    """The axes of one tensor."""
    axes = draw(st.lists(st.sampled_from(SINGLE + COMPUTED), max_size=3))
    if variadic and draw(st.booleans()):
        axes.insert(draw(st.integers(0, len(axes))), draw(st.sampled_from(FLEXIBLE)))
    return axes


@st.composite
def fitting_shape(draw: st.DrawFn, axes: list[str], dims: dict[str, Any]) -> list[int]:
    """A shape that fits in most cases: some sizes are changed on purpose."""
    shape: list[int] = []
    for axis in axes:
        match axis:
            case "*b":
                shape += dims["b"]
            case "*#b":
                shape += [draw(st.sampled_from((1, size))) for size in dims["b"]]
            case "..." | "*_":
                shape += draw(st.lists(SIZES, max_size=2))
            case "_":
                shape.append(draw(SIZES))
            case _:
                size = eval(axis.replace("#", "").split("=")[-1], {"min": min}, dims)
                shape.append(1 if "#" in axis and draw(st.booleans()) else max(1, size))
    if draw(st.integers(0, 5)) == 0:
        place = draw(st.integers(0, len(shape)))
        shape[place : place + draw(st.integers(0, 1))] = [draw(SIZES)]
    return shape


@st.composite
def parameters(draw: st.DrawFn) -> list[Drawn]:
    """The annotations of a function, and a call that is valid more often than not."""
    dims = {name: draw(SIZES) for name in ("n", "m", "k")}
    dims["b"] = draw(st.lists(SIZES, max_size=2))  # type: ignore[assignment]
    first = [draw(st.sampled_from([text for text in BINDING if "n" in text and "m" in text]))]
    texts = [first[0].split()]
    kind = draw(st.sampled_from(KINDS))
    found = [Drawn(kind[Tensor, first[0]], draw(tensors(kind, texts[0], dims)))]
    strict = False
    for _ in range(draw(st.integers(0, 3))):
        members = [draw(patterns(variadic=True))]
        if draw(st.integers(0, 3)) == 0:
            members = [m for m in (draw(patterns(variadic=False)) for _ in range(3)) if m]
            members = list({len(member): member for member in members}.values()) or [["n"]]
        members = [_in_order(member, strict) for member in members]
        strict = strict or any("*b" in member for member in members)
        kind = draw(st.sampled_from(KINDS))
        hint = Union[tuple(kind[Tensor, " ".join(axes)] for axes in members)]  # noqa: UP007
        value = draw(tensors(kind, draw(st.sampled_from(members)), dims))
        if draw(st.integers(0, 3)) == 0:
            hint = hint | None
            value = draw(st.sampled_from((None, value)))
        found.append(Drawn(hint, value))
    return found


def _in_order(axes: list[str], strict: bool) -> list[str]:
    """Put the strict form of a name before its broadcasting form."""
    return [
        "*b" if axis == "*#b" and not strict else "k" if axis == "#k" else axis for axis in axes
    ]


@st.composite
def tensors(draw: st.DrawFn, kind: Any, axes: list[str], dims: dict[str, Any]) -> Tensor:
    """A tensor that mostly has a shape and dtype of an annotation."""
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    accepted = [
        dtype
        for name, dtype in zip(names, DTYPES, strict=True)
        if kind is Shaped or name in kind.dtypes
    ]
    dtype = draw(st.sampled_from(accepted * 3 + list(DTYPES)))
    return torch.empty(draw(fitting_shape(axes, dims)), dtype=dtype)


def accepts(function: Any, values: list[Any], refusals: tuple[type[Exception], ...]) -> bool:
    try:
        function(*values)
    except refusals:
        return False
    return True


def make_function(hints: list[Any]) -> Any:
    names = [f"x{number}" for number in range(len(hints))]
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(f"def op({', '.join(names)}): ...", namespace)
    namespace["op"].__annotations__ = dict(zip(names, hints, strict=True))
    return namespace["op"]


@hypothesis.settings(max_examples=400, deadline=None)
@hypothesis.given(drawn=parameters())
def test_guard__accepts_what_jaxtyping_accepts(drawn: list[Drawn]) -> None:
    hints, values = [item.hint for item in drawn], [item.value for item in drawn]
    contract = build_contract(make_function(hints), names={})
    ours = enforce(contract, lambda *_: None, check_result=False)
    theirs = jaxtyped(typechecker=beartype)(make_function(hints))
    verdict = accepts(ours, values, (ContractError,))
    hypothesis.event("accepted" if verdict else "refused")
    assert verdict == accepts(theirs, values, (Exception,)), contract.source()
