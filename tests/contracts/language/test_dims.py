"""The dim grammar, against jaxtyping's own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float
from torch import Tensor

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.dims import (
    Anonymous,
    Computed,
    Fixed,
    Named,
    Spliced,
    Variadic,
    dims_text,
    parse_dims,
)
from tensorpact.contracts.language.expression import Name

_NAMES = st.sampled_from(["n", "batch", "HV", "größe"])
_PARTS = (
    _NAMES
    | st.integers(0, 99).map(str)
    | st.builds("{}={}".format, _NAMES, st.integers(0, 9) | _NAMES)
    | st.builds("{}{}{}".format, _NAMES, st.sampled_from("+-*"), _NAMES | st.integers(1, 9))
    | st.sampled_from(["...", "_", "*_", "_rows", "min(n,m)", "(n+1)*2"])
)
_ELEMENTS = st.builds("{}{}".format, st.sampled_from(["", "#", "*", "?", "_", "*#", "#*"]), _PARTS)
_STRINGS = st.lists(_ELEMENTS, max_size=4).map(" ".join)


def _jaxtyping_accepts(text):
    try:
        Float[Tensor, text]
    except (ValueError, SyntaxError):
        return False
    return True


def _accepts(text):
    try:
        parse_dims(text)
    except ContractDefinitionError:
        return False
    return True


@given(_STRINGS)
@settings(max_examples=600)
def test_parse_dims__accepts_what_jaxtyping_accepts(text):
    assert _accepts(text) == _jaxtyping_accepts(text)


@given(st.text(max_size=20))
@settings(max_examples=500)
def test_parse_dims__refuses_any_other_text_as_a_definition_error(text):
    _accepts(text)


def test_parse_dims__knows_every_kind_of_axis():
    axes = parse_dims("batch 4 heads=4 #n ?k _ _rows ... 2*H")
    assert [type(axis) for axis in axes] == [
        Named,
        Fixed,
        Fixed,
        Named,
        Named,
        Anonymous,
        Anonymous,
        Variadic,
        Computed,
    ]
    assert dims_text(axes) == "[batch, 4, heads=4, #n, ?k, _, _rows, ..., 2*H]"


def test_parse_dims__splices_a_tuple_parameter():
    assert parse_dims("{shape} n", frozenset({"shape"})) == (
        Spliced(Name("shape"), "{shape}"),
        Named("n", text="n"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n,m", "dim 'n,m': axes are separated by spaces, not commas."),
        ("n#", "dim 'n#': `#` is written in front of the dim."),
        ("##n", "dim '##n': `#` (broadcasting) is given twice."),
        (
            "*a *b",
            (
                "dims '*a *b': more than one axis pattern of unknown length "
                "(`...`, `*name`, a spliced tuple)."
            ),
        ),
        ("n>2", "dim 'n>2': a size is a whole number from 0 up."),
        ("1.5*n", "dim '1.5*n': a size is a whole number from 0 up."),
        ("-3", "dim '-3': a size is a whole number from 0 up."),
        ("*n+1", "dim '*n+1': `*` (several axes) does not go with an expression."),
        ("?4", "dim '?4': `?` (a size free per item) does not go with a fixed size."),
        ("class", "dim 'class': `class` is a word of Python, not a name."),
        ("9" * 50, f"dim '{'9' * 50}': more than 40 digits."),
        (
            "2*kv/2",
            (
                "dim '2*kv/2': cannot read the expression '2*kv/2': unexpected '/' at character 5. "
                "Sizes are whole numbers: write `//`."
            ),
        ),
    ],
)
def test_parse_dims__says_which_dim_is_wrong(text, message):
    with pytest.raises(ContractDefinitionError) as caught:
        parse_dims(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["²", "٣", "n²", "{{n}}", "{n", "n}", "{n}{m}", "....", "n...", "#_", "*?n"]
)
def test_parse_dims__survives_hostile_text(text):
    with pytest.raises(ContractDefinitionError):
        parse_dims(text)
