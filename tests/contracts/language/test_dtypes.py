"""From jaxtyping's dtype classes to torch's dtypes."""

import jaxtyping
import pytest
import torch

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.dtypes import all_dtypes, dtype_text, torch_dtypes


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("Int32", torch.int32, torch.int64),
        ("Float", torch.bfloat16, torch.int32),
        ("Float32", torch.float32, torch.float64),
        ("Integer", torch.uint8, torch.float32),
        ("Bool", torch.bool, torch.uint8),
        ("Complex", torch.complex64, torch.float32),
    ],
)
def test_torch_dtypes__holds_what_the_class_names(name, inside, outside):
    accepted = torch_dtypes(getattr(jaxtyping, name).dtypes, name)
    assert inside in accepted
    assert outside not in accepted


def test_torch_dtypes__is_none_for_any_dtype():
    assert torch_dtypes(jaxtyping.Shaped.dtypes, "Shaped") is None


def test_torch_dtypes__refuses_a_class_that_torch_knows_no_dtype_of():
    with pytest.raises(ContractDefinitionError) as caught:
        torch_dtypes(jaxtyping.Key.dtypes, "Key")
    assert str(caught.value) == "torch has no dtype that `Key` accepts."


@pytest.mark.parametrize("name", sorted(all_dtypes()))
def test_dtype_text__is_the_name_in_torch(name):
    assert getattr(torch, dtype_text(all_dtypes()[name])) is all_dtypes()[name]
