"""Annotations become slots, and what cannot be checked is refused."""

from __future__ import annotations

import collections.abc
from typing import Annotated, Any, Optional

import numpy as np
import pytest
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.facets import Contiguous, Mutated


def test_read_parameters__sorts_the_members_of_an_annotation():
    @contract()
    def op(
        x: Annotated[Float[Tensor, "n"] | Float[Tensor, "n 1"] | None, Contiguous(), Mutated()],
        feats: list[Float[Tensor, "?k"]],
        pair: tuple[Float[Tensor, "n"], Int32[Tensor, "m"]],
        count: int | None,
        shape: tuple[int, ...],
        anything: Any,
        *rest: Float[Tensor, "n"],
    ): ...

    x, feats, pair, count, shape, anything, rest = op.parameters
    assert [str(array) for array in x.slots[0].arrays] == ["Float[n]", "Float[n, 1]"]
    assert x.slots[0].optional
    assert x.slots[0].facets == (Contiguous(), Mutated())
    assert feats.slots[0].repeated is list
    assert [slot.name for slot in pair.slots] == ["pair[0]", "pair[1]"]
    assert (count.scalars, count.optional, count.binds_dim) == (("int",), True, True)
    assert shape.is_sizes
    assert anything.other_hints == (Any,)
    assert rest.slots[0].repeated is tuple


def test_read_parameters__takes_plain_python_annotations_and_strings_alike():
    @contract()
    def strings(x: Optional[Float32[Tensor, "n"]] = None): ...  # noqa: UP045

    def plain(x=None): ...

    plain.__annotations__ = {"x": Float32[Tensor, "n"] | None}
    assert contract()(plain).slots == strings.slots


def test_resolve_hints__knows_the_names_of_an_enclosing_function():
    Local = Float[Tensor, "n"]

    @contract()
    def op(x: Local): ...

    assert str(op.slots[0].arrays[0]) == "Float[n]"


def _no_annotation(x): ...
def _misspelt(x: Flaot[Tensor, "n"]): ...
def _bare(x: Float): ...
def _numpy(x: Float[np.ndarray, "n"]): ...
def _optional_item(x: list[Float[Tensor, "n"] | None]): ...
def _mixed(x: Float[Tensor, "n"] | list[Float[Tensor, "n"]]): ...
def _keywords(**x: Float[Tensor, "n"]): ...
def _dictionary(x: dict[str, Float[Tensor, "n"]]): ...
def _facet_class(x: Annotated[Float[Tensor, "n"], Contiguous]): ...
def _facet_of_an_int(x: Annotated[int, Contiguous()]): ...
def _no_type(x: 3): ...
def _sequence(x: collections.abc.Mapping[str, list[Float[Tensor, "n"]]]): ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_no_annotation, ": parameter `x` has no annotation; write `Any` to leave it unchecked."),
        (
            _misspelt,
            (
                ": an annotation cannot be resolved: name 'Flaot' is not defined. "
                "Did you mean `Float`?"
            ),
        ),
        (
            _bare,
            (
                ", parameter `x`: `Float` stands without a tensor type and dims. "
                'Write `Float[Tensor, "batch dim"]`.'
            ),
        ),
        (_numpy, ", parameter `x`: `Float[ndarray, 'n']` is an array of ndarray, not of torch."),
        (_optional_item, ", parameter `x`: a list of tensors holds tensors only."),
        (_mixed, ", parameter `x`: a union of a tensor and a list of tensors."),
        (_keywords, ", parameter `x`: tensors in `**` keywords cannot be declared."),
        (
            _dictionary,
            (
                ", parameter `x`: the dims of tensors inside `dict[...]` cannot be checked. "
                "Take the tensors as parameters, a list or a tuple."
            ),
        ),
        (
            _sequence,
            (
                ", parameter `x`: the dims of tensors inside `Mapping[...]` cannot be checked. "
                "Take the tensors as parameters, a list or a tuple."
            ),
        ),
        (
            _facet_class,
            ", parameter `x`: the facet `Contiguous` is given as a class. Write `Contiguous()`.",
        ),
        (_facet_of_an_int, ", parameter `x`: the facet `Contiguous` stands beside no tensor."),
        (_no_type, ", parameter `x`: 3 is no type."),
    ],
)
def test_read_parameters__refuses_at_decoration(function, message):
    with pytest.raises(ContractDefinitionError) as caught:
        contract()(function)
    assert str(caught.value) == f"{__name__}.{function.__name__}{message}"
