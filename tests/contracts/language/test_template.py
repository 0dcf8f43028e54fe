"""Message templates: parsed once, never evaluated, rendered without surprises."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.evaluation import Values
from tensorpact.contracts.language.template import Template

_VALUES = Values({"n": 2, "m": 3}, {"x": torch.zeros(2, 3), "s": "bf16"})


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("got {n + 1} of {{n}}", "got 3 of {n}"),
        ("{tuple(x.shape)}, expected {(n,)} or {(n, m * 2)}", "(2, 3), expected (2,) or (2, 6)"),
        ("{x.numel()} {x.dtype} {x.device}", "6 torch.float32 cpu"),
        ("{s!r} {s!s} {s}", "'bf16' bf16 bf16"),
        ("{q} {x.shape[7]} {n // (m - 3)}", "? ? ?"),
        ("{x}", "Tensor"),
    ],
)
def test_render__fills_the_placeholders(text, rendered):
    template = Template.parse(text)
    assert template.render(_VALUES) == rendered
    assert re.fullmatch(template.pattern, rendered)


@given(st.text())
def test_parse__gives_back_any_text_whose_braces_are_doubled(text):
    doubled = text.replace("{", "{{").replace("}", "}}")
    assert Template.parse(doubled).render(Values()) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a } b", "message template 'a } b': a `}` without `{`."),
        ("a {n", "message template 'a {n': a `{` without `}`."),
        (
            "{}",
            "message template '{}': cannot read the expression '': nothing there at character 1.",
        ),
        (
            "{n:>10}",
            (
                "message template '{n:>10}': cannot read the expression 'n:>10': unexpected ':' at "
                "character 2."
            ),
        ),
    ],
)
def test_parse__says_what_is_wrong(text, message):
    with pytest.raises(ContractDefinitionError) as caught:
        Template.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["{n!a}", "{n.__class__}", "{x.item()}", "{f'a'}", "{a b}", "{!r}"]
)
def test_parse__refuses_what_a_format_string_would_run(text):
    with pytest.raises(ContractDefinitionError):
        Template.parse(text)
