"""Every mistake in a contract is found when it is declared, with its place and a hint."""

from __future__ import annotations

from typing import Annotated

import pytest
from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts.language import facets
from tensorpact.contracts.language.contract import build_contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.rows import predicate, raises, relation

_NAMES = {
    **vars(facets),
    "__name__": __name__,
    "Annotated": Annotated,
    "Float": Float,
    "Int32": Int32,
    "Tensor": Tensor,
}
_PLACE = f"{__name__}.op"


def _declare(parameters, **clauses):
    namespace = dict(_NAMES)
    exec(f"from __future__ import annotations\ndef op({parameters}): ...", namespace)
    return build_contract(namespace["op"], names=namespace, **clauses)


def _message(parameters, **clauses):
    with pytest.raises(ContractDefinitionError) as caught:
        _declare(parameters, **clauses)
    return str(caught.value)


_X = 'x: Float[Tensor, "n d"]'


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ({"where": ["q > 1"]}, ", relation 'q > 1': unknown name `q`. Known here: `d`, `n`."),
        (
            {"where": ["n + 1"]},
            ", relation 'n + 1': `n + 1` is neither true nor false. Compare it.",
        ),
        (
            {"where": ["n > 1 and d"]},
            ", relation 'n > 1 and d': `d` is neither true nor false. Compare it.",
        ),
        ({"where": ["1 < 2"]}, ", relation '1 < 2': reads no dim and no parameter."),
        ({"where": ["x is None"]}, ", relation 'x is None': `x` is never None."),
        ({"where": ["n is None"]}, ", relation 'n is None': `n` is never None."),
        (
            {"where": ["x.shape[2] > 1"]},
            ", relation 'x.shape[2] > 1': `x` may have 2 axes, so it has no axis 2 then.",
        ),
        (
            {"where": ["x.size(5) > 1"]},
            ", relation 'x.size(5) > 1': `x` may have 2 axes, so it has no axis 5 then.",
        ),
        ({"where": ["x.numel(1) > 1"]}, ", relation 'x.numel(1) > 1': `numel()` got 1 arguments."),
        (
            {"where": ["x.shap[0] > 1"]},
            ", relation 'x.shap[0] > 1': unknown tensor attribute `shap`. Did you mean `shape`?",
        ),
        ({"where": ["n[0] > 1"]}, ", relation 'n[0] > 1': `n` does not hold several sizes."),
        ({"where": "n > 1"}, ": `where` is a list, not a str."),
        (
            {"where": ["n >"]},
            ", `where`: cannot read the expression 'n >': it ends too early at character 4.",
        ),
        (
            {"where": [relation("n > 1", when="q > 1")]},
            ", `when` of relation 'n > 1': unknown name `q`. Known here: `d`, `n`.",
        ),
        (
            {"where": [predicate(lambda q: True, "fine")]},
            ", relation 'fine': unknown predicate parameter `q`. Known here: `d`, `n`, `x`.",
        ),
        ({"let": {"k": "n > 1"}}, ", `let` k: `n > 1` is no number."),
        ({"let": {"k": 3}}, ": `let` k is a string, not an int."),
        ({"let": {"a b": "n"}}, ": `let` holds 'a b', which is no name."),
        ({"let": ["k"]}, ": `let` maps names to strings; it is a list."),
        ({"let": {"x": "n"}}, ": `let` x is also a parameter."),
        (
            {"let": {"k": "j", "j": "k"}},
            (
                ", `let` k: nothing binds the dim `j`: no axis, int parameter or `let` gives it a "
                "value, and it cannot be solved for. Known here: `d`, `k`, `n`."
            ),
        ),
        ({"zero": {"q": "empty"}}, ", `zero`: unknown dim `q`. Known here: `d`, `n`."),
        ({"zero": {"n": 3}}, ": `zero` n is a string, not an int."),
        ({"anchors": ["n"]}, ", `anchors`: unknown tensor parameter `n`. Known here: `x`."),
        ({"anchors": "x"}, ": `anchors` is a list, not a str."),
        ({"early_return": "n"}, ", `early_return`: `n` is neither true nor false. Compare it."),
        ({"early_return": 3}, ": `early_return` is a string, not an int."),
        ({"errors": ["text"]}, ": `errors` holds what `raises(...)` returns, not a str."),
    ],
)
def test_validate__refuses_clauses(clauses, message):
    assert _message(_X, **clauses) == _PLACE + message


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            raises("a", "m", unless="y: rank"),
            "`unless` names the parameter `y`, which does not exist. Known here: `x`.",
        ),
        (
            raises("a", "m", unless="x: layout"),
            (
                "`x` promises nothing about its layout. It promises: device, dims, dtype, extent, "
                "rank, type."
            ),
        ),
        (raises("a", "m", unless="n > 5"), "`unless` names 'n > 5', which is no entry of `where`."),
        (
            raises("a", "got {q}", unless="x: rank"),
            "unknown placeholder `q`. Known here: `actual`, `argument`, `d`, `expected`, `n`, `x`.",
        ),
    ],
)
def test_validate__refuses_error_rows_that_match_nothing(row, message):
    found = _message(_X, errors=[row])
    assert found == f"{_PLACE}, error `a`: {message}"


def test_validate__refuses_a_placeholder_that_no_tensor_has():
    row = raises("a", "got {x.shap}", unless="x: rank")
    assert _message(_X, errors=[row]) == (
        f"{_PLACE}, error `a`, placeholder {{x.shap}}: unknown tensor attribute `shap`. "
        "Did you mean `shape`?"
    )


def test_validate__refuses_a_slug_used_twice():
    rows = [raises("a", "m", unless="x: rank"), raises("a", "m", unless="x: dtype")]
    assert _message(_X, errors=rows) == f"{_PLACE}: the error slug 'a' is used twice."


@pytest.mark.parametrize(
    ("facet", "message"),
    [
        ("Strides('1 1')", "strides [1, 1] does not give one per axis."),
        ("Strides('n > 1')", None),
        ("Strides('1.5')", "strides [1.5]: a stride is a whole number."),
        ("Strides(3)", "`Strides` takes a string, not 3."),
        ("IndexInto(3)", "`IndexInto` takes a string, not 3."),
        ("InRange()", "`InRange` has no bound."),
        ("InRange(3, 1)", "3 <= value < 1: no value lies there."),
        ("InRange([1])", "`InRange` is bounded by [1], which is no number."),
        ("NoAlias()", "`NoAlias` names no parameter."),
        ("NoAlias(3)", "`NoAlias` names 3, which is no string."),
        ("SameDtype('x')", "dtype of `x`: that is the tensor itself."),
        (
            "SameDtype('idx')",
            "no dtype is one of its own and one of `idx`, so no call could be valid.",
        ),
        ("Is('x')", None),
    ],
)
def test_validate__refuses_facets(facet, message):
    found = _message(f'x: Annotated[Float[Tensor, "n"], {facet}], idx: Int32[Tensor, "n"]')
    assert found.startswith(f"{_PLACE}, `x`")
    assert message is None or found == f"{_PLACE}, `x`: {message}"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            'x: Float[Tensor, "2*kv_sze"], kv_size: int',
            ": the dim `kv_sze` is named once, in an expression. Did you mean `kv_size`?",
        ),
        (
            'x: Float[Tensor, "n"], s: str, y: Float[Tensor, "s"]',
            ": `s` is a dim, and also a parameter that is not its value: only an `int` is.",
        ),
        (
            'shape: tuple[int, ...], y: Float[Tensor, "shape"]',
            ": `shape` is a dim, and also a parameter that is not its value: only an `int` is.",
        ),
        (
            'head_dim: int, x: Float[Tensor, "{width}"]',
            ", `x`, dim '{width}': unknown parameter `width`. Known here: `head_dim`, `x`.",
        ),
        (
            'x: Float[Tensor, "n self.q"]',
            ", `x`, dim 'self.q': unknown parameter `self`. Known here: `x`.",
        ),
        (
            'x: Float[Tensor, "?n"]',
            ", `x`: dim '?n': only an item of a list or tuple of tensors has a size of its own.",
        ),
        ('n: int = 0, x: Float[Tensor, "n"] | None = None', ", default of `n`: 0 is below 1."),
        ('x: Float[Tensor, "n"] = 3', ", default of `x`: 3 is no tensor."),
        ("n: int = True", ", default of `n`: True is no int."),
        (
            'x: Float[Tensor, "n"] = None',
            ", default of `x`: is None, which the annotation does not allow. Add `| None`.",
        ),
    ],
)
def test_validate__refuses_signatures(parameters, message):
    assert _message(parameters) == _PLACE + message


def test_validate__refuses_defaults_that_break_a_relation_together():
    assert _message("a: int = 3, b: int = 2", where=["a < b"]) == (
        f"{_PLACE}, the signature: the defaults break 'a < b'."
    )
