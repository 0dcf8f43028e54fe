"""Texts become trees, trees become the same texts, and every mistake is shown in its place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.expression import (
    Binary,
    Call,
    Compare,
    Constant,
    Logic,
    Name,
    Unary,
    names_in,
    substituted,
    text_of,
)
from tensorpact.contracts.language.expression_parser import (
    MAXIMUM_DEPTH,
    MAXIMUM_TOKENS,
    parse_expression,
)

names = st.sampled_from(["n", "m", "head_dim", "HV", "größe"]).map(Name)
whole = st.integers(0, 300).map(Constant)


def _extended(inner):
    arithmetic = st.builds(Binary, st.sampled_from("+-*"), inner, inner)
    division = st.builds(Binary, st.sampled_from(["//", "%"]), inner, names)
    minus = inner.filter(lambda node: not isinstance(node, (Constant, Unary))).map(
        lambda node: Unary("-", node)
    )
    calls = st.builds(lambda a, b: Call("min", (a, b)), inner, inner)
    return arithmetic | division | minus | calls


numbers = st.recursive(names | whole, _extended, max_leaves=8)
comparisons = st.builds(
    lambda first, op, second: Compare(first, ((op, second),)),
    numbers.filter(lambda node: not isinstance(node, Constant)),
    st.sampled_from(["<", "<=", "==", "!=", ">", ">="]),
    numbers,
)
conditions = st.recursive(
    comparisons,
    lambda inner: (
        inner.map(lambda node: Unary("not", node))
        | st.builds(
            lambda op, parts: Logic(op, tuple(parts)),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=2, max_size=3),
        )
    ),
    max_leaves=4,
)


@given(numbers | conditions)
@settings(max_examples=300)
def test_parse_expression__reads_what_text_of_prints(tree):
    assert parse_expression(text_of(tree)) == tree


@given(st.text(max_size=40))
@settings(max_examples=500)
def test_parse_expression__refuses_any_other_text_as_a_definition_error(text):
    try:
        tree = parse_expression(text)
    except ContractDefinitionError:
        return
    assert parse_expression(text_of(tree)) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read the expression '': nothing there at character 1."),
        ("n +", "cannot read the expression 'n +': it ends too early at character 4."),
        (
            "n / 2",
            (
                "cannot read the expression 'n / 2': unexpected '/' at character 3. "
                "Sizes are whole numbers: write `//`."
            ),
        ),
        (
            "n = 2",
            (
                "cannot read the expression 'n = 2': unexpected '=' at character 3. "
                "A comparison is written `==`."
            ),
        ),
        (
            "mni(n, m)",
            (
                "cannot read the expression 'mni(n, m)': `mni()` is not a function of the language "
                "at character 1. Did you mean `min`?"
            ),
        ),
        ("n $ m", "cannot read the expression 'n $ m': unexpected character '$' at character 3."),
        (
            "class + 1",
            (
                "cannot read the expression 'class + 1': `class` is a word of Python, not a name "
                "at character 1."
            ),
        ),
        (
            "n % 0 == 0",
            "cannot read the expression 'n % 0 == 0': division by zero at character 7.",
        ),
        (
            "n == None",
            (
                "cannot read the expression 'n == None': `==` with None at character 10. "
                "Write `is None`."
            ),
        ),
        (
            "(n > 1) + 1",
            (
                "cannot read the expression '(n > 1) + 1': `+` takes numbers, not `n > 1`, at "
                "character 12."
            ),
        ),
        (
            "x.__class__",
            "cannot read the expression 'x.__class__': `.__class__` is private at character 12.",
        ),
        (
            "x.item()",
            (
                "cannot read the expression 'x.item()': `.item()` cannot be called at character 8. "
                "Known here: `dim`, `element_size`, `is_contiguous`, `numel`, `size`, `stride`."
            ),
        ),
        ("1e999", "cannot read the expression '1e999': a number beyond all floats at character 1."),
        (
            "x.dtype == 'float32'",
            (
                "cannot read the expression \"x.dtype == 'float32'\": `x.dtype` and `'float32'` "
                "are never equal, at character 21."
            ),
        ),
    ],
)
def test_parse_expression__says_what_is_wrong_and_where(text, message):
    with pytest.raises(ContractDefinitionError) as caught:
        parse_expression(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "n" + ")" * 5000,
        "-" * 5000 + "n",
        "not " * 5000 + "n",
        "n" + "+n" * 5000,
        "n" + ".x" * 5000,
        "n" + "[0]" * 5000,
        "min(" * 200 + "n,1" + ")" * 200,
        "9" * 5000,
        "2" + "**64" * 10,
        "(2**64)**64",
        "n**m",
        "n**-1",
        "n\x00m",
        "n²",
        "٣",
        "n\u200b",
        "n is None is None",
        "n < None",
        "'a' + 1",
        "lambda: n",
        "[n for n in m]",
        "a := 1",
        "(n, m)",
    ],
)
def test_parse_expression__survives_hostile_text(text):
    with pytest.raises(ContractDefinitionError):
        parse_expression(text)


def test_parse_expression__takes_what_lies_within_the_limits():
    deep = MAXIMUM_DEPTH - 1
    assert parse_expression("(" * deep + "n" + ")" * deep) == Name("n")
    assert names_in(parse_expression("+".join(["n"] * (MAXIMUM_TOKENS // 2)))) == ("n",)


def test_parse_expression__spells_names_as_python_does():
    assert parse_expression("ﬁ + 𝐧") == parse_expression("fi + n")


def test_substituted__leaves_owners_of_attributes_alone():
    tree = parse_expression("x + x.shape[0] * n")
    put = substituted(tree, {"x": Constant(3), "n": parse_expression("a + b")})
    assert text_of(put) == "3 + x.shape[0] * (a + b)"
