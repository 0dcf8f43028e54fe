"""Error rows and conditions as they are declared."""

import pytest

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.rows import (
    FacetTarget,
    RelationTarget,
    as_condition,
    predicate,
    raises,
    relation,
    same_condition,
)


@pytest.mark.parametrize(
    ("unless", "targets"),
    [
        ("x: rank dtype", (FacetTarget("x", "rank"), FacetTarget("x", "dtype"))),
        ("*: device", (FacetTarget("*", "device"),)),
        ("x: dims[1]", (FacetTarget("x", "dims", slice(1, 2)),)),
        ("x: dims[-1]", (FacetTarget("x", "dims", slice(-1, None)),)),
        ("x: dims[1:]", (FacetTarget("x", "dims", slice(1, None)),)),
        ("x: dims[:2]", (FacetTarget("x", "dims", slice(None, 2)),)),
        (["x: rank", "y[0]: dtype"], (FacetTarget("x", "rank"), FacetTarget("y[0]", "dtype"))),
    ],
)
def test_raises__reads_facets_and_axes(unless, targets):
    assert raises("slug", "text", unless=unless).targets == targets


def test_raises__knows_a_relation_by_its_meaning_not_by_its_spaces():
    (target,) = raises("slug", "text", unless="HV%H==0").targets
    assert isinstance(target, RelationTarget)
    assert same_condition(target, relation("HV % H == 0"))
    assert not same_condition(target, relation("H % HV == 0"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"slug": "Bad", "unless": "x: rank"},
            "error slug 'Bad' is not lower-case words joined by hyphens.",
        ),
        ({"slug": 3, "unless": "x: rank"}, "an error slug is a string, not an int."),
        ({"message": 3, "unless": "x: rank"}, "error `slug`: the message is a string, not an int."),
        ({"unless": []}, "error `slug`: `unless` names nothing."),
        ({"unless": 3}, "error `slug`: `unless` is a string or a list of strings."),
        ({"unless": "x: rnk"}, "error `slug`: unknown facet 'rnk' of `x`. Did you mean `rank`?"),
        (
            {"unless": "x: rank", "when": "n >"},
            (
                "error `slug`, `when`: cannot read the expression 'n >': it ends too early at "
                "character 4."
            ),
        ),
    ],
)
def test_raises__says_what_is_wrong(arguments, message):
    with pytest.raises(ContractDefinitionError) as caught:
        raises(**{"slug": "slug", "message": "text", **arguments})
    assert str(caught.value) == message


@pytest.mark.parametrize("function", [3, max, lambda n, /: True, lambda *n: True, lambda **n: True])
def test_predicate__refuses_what_cannot_be_called_by_name(function):
    with pytest.raises(ContractDefinitionError) as caught:
        predicate(function, "n is fine")
    assert str(caught.value) == (
        "predicate 'n is fine': a predicate is a function whose parameters can be given by name."
    )


def test_predicate__knows_what_it_reads():
    assert predicate(lambda n, d: True, "fine").names == ("n", "d")


def test_as_condition__refuses_other_things():
    with pytest.raises(ContractDefinitionError) as caught:
        as_condition(3)
    assert str(caught.value) == (
        "`where` holds strings, `relation(...)` and `predicate(...)`, not int."
    )
