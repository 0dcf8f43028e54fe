"""Trees mean what the same text means in Python."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorpact.contracts.language.evaluation import Unbound, Values, evaluate, linear_in
from tensorpact.contracts.language.expression_parser import parse_expression

_NAMES = ("a", "b", "c")
_ATOMS = st.sampled_from(_NAMES) | st.integers(0, 20).map(str)
_TEXTS = st.recursive(
    _ATOMS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner)
        | st.builds("({} {} {})".format, inner, st.sampled_from(["//", "%"]), st.sampled_from("ab"))
        | inner.map("-{}".format)
        | st.builds("max({}, {})".format, inner, inner)
        | inner.map("abs({})".format)
    ),
    max_leaves=10,
)
_CONDITIONS = st.builds(
    "{} {} a+{} and not ({} < b) or a == {}".format,
    _TEXTS,
    st.sampled_from(["<", "<=", ">", ">="]),
    _TEXTS,
    _TEXTS,
    _ATOMS,
)
_DIMS = st.fixed_dictionaries({name: st.integers(-30, 30) for name in _NAMES})


@given(_TEXTS | _CONDITIONS, _DIMS)
@settings(max_examples=400)
def test_evaluate__agrees_with_python(text, dims):
    tree = parse_expression(text)
    try:
        expected = eval(text, {"max": max, "abs": abs}, dims)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            evaluate(tree, Values(dims))
    else:
        assert evaluate(tree, Values(dims)) == expected


@given(_TEXTS, _DIMS)
@settings(max_examples=400)
def test_linear_in__is_factor_times_unknown_plus_rest(text, dims):
    tree = parse_expression(text)
    parts = linear_in(tree, "c")
    if parts is None:
        return
    factor, rest = parts
    others = {name: value for name, value in dims.items() if name != "c"}
    try:
        whole = evaluate(tree, Values(dims))
        solved = evaluate(factor, Values(others)) * dims["c"] + evaluate(rest, Values(others))
    except ZeroDivisionError:
        return
    assert whole == solved


@pytest.mark.parametrize(
    "text", ["c * c", "c // 2", "c % 2", "c - c", "min(c, 1)", "2 ** 3 + c ** 2"]
)
def test_linear_in__refuses_what_has_no_single_solution(text):
    assert linear_in(parse_expression(text), "c") is None


def test_evaluate__reads_tensors_by_attribute_only():
    values = Values({"x": 7}, {"x": torch.zeros(2, 3)})
    assert evaluate(parse_expression("x"), values) == 7
    assert evaluate(parse_expression("x.shape[1] + x.numel() + x.size(0)"), values) == 11


@pytest.mark.parametrize("text", ["q", "x.shape[5]", "none.shape", "q.shape", "x.foo"])
def test_evaluate__raises_unbound_where_a_value_is_missing(text):
    with pytest.raises(Unbound):
        evaluate(parse_expression(text), Values({}, {"x": torch.zeros(2), "none": None}))


def test_evaluate__stops_a_chain_at_the_first_false_link():
    assert evaluate(parse_expression("1 < a < 3"), Values({"a": 2})) is True
    assert evaluate(parse_expression("3 < a < q"), Values({"a": 2})) is False
