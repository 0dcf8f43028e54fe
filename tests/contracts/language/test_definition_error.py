"""When one name looks like another one misspelt."""

import pytest

from tensorpact.contracts.language.definition_error import looks_misspelt


@pytest.mark.parametrize(
    ("name", "other"),
    [("kv_sze", "kv_size"), ("bacth", "batch"), ("kv_sise", "kv_size"), ("baatch", "batch")],
)
def test_looks_misspelt__a_slip_inside_a_word(name, other):
    assert looks_misspelt(name, other)
    assert looks_misspelt(other, name)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("k_len", "q_len"),
        ("head_dim_k", "head_dim_v"),
        ("hidden", "hidden2"),
        ("dim1", "dim2"),
        ("H", "HV"),
        ("half", "halves"),
        ("batch", "batch"),
        ("n_q_heads", "n_k_heads"),
    ],
)
def test_looks_misspelt__names_that_are_meant_to_differ(name, other):
    assert not looks_misspelt(name, other)
