"""Cases from the field, 1 to 10: the language. Beside each bad value stands the last legal one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

import tensorpact as tp

ROOT = Path(__file__).parents[2]
NOTHING_BINDS_IT = "no axis, int parameter or `let` gives it a value, and it cannot be solved for."
SHAPE, FIRST, END = "have shape [B, C, ?N]:", "axis", " of `feats[0]`."


def refusal(function, *arguments, **keywords):
    """Return the text of the contract error that a call raises."""
    with pytest.raises(tp.ContractError) as caught:
        function(*arguments, **keywords)
    return str(caught.value)


def defined(source, **names):
    """Run source text as a module that has none of this file's future imports."""
    names |= {"torch": torch, "tp": tp, "Tensor": Tensor, "Float": Float, "Int32": Int32}
    names["__name__"] = "a_module"
    exec(compile(source, "a_module.py", "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("expression", "size"),
    [
        ("T+1", 6),
        ("2*T", 10),
        ("T-1", 4),
        ("T//2", 2),
        ("(T+1)*3", 18),
        ("min(T,4)", 4),
        ("3-T%3", 1),
    ],
)
def test_case_01__an_expression_stands_before_the_name_that_binds_it(expression, size, first):
    if first:

        @tp.op
        def op(a: Float[Tensor, expression], b: Float[Tensor, "T"]): ...

    else:

        @tp.op
        def op(b: Float[Tensor, "T"], a: Float[Tensor, expression]): ...

    b = torch.zeros(5)
    op(a=torch.zeros(size), b=b)
    for wrong in {size + 1, size - 1} - {0}:
        with pytest.raises(tp.ContractError) as caught:
            op(a=torch.zeros(wrong), b=b)
        assert caught.value.argument == "a"
        assert str(caught.value) == (
            f"`a` must have shape [{expression}]: axis 0 must be {size}, got {wrong} in shape "
            f"({wrong},); T = 5 from axis 0 of `b`."
        )


@pytest.mark.parametrize("kv_size", [7, 9])
def test_case_02__the_message_says_what_was_expected_and_from_where(kv_size):
    @tp.op
    def of_tensor(kv: Float[Tensor, "ctx 2*kv_size"], k: Float[Tensor, "kv_size"]): ...

    @tp.op
    def of_int(kv: Float[Tensor, "ctx 2*kv_size"], kv_size: int): ...

    @tp.op(let={"kv_size": "heads + extra"})
    def of_let(kv: Float[Tensor, "ctx 2*kv_size"], w: Float[Tensor, "heads"], extra: int): ...

    kv = torch.zeros(16, 16)
    start = (
        f"`kv` must have shape [ctx, 2*kv_size]: axis 1 must be {2 * kv_size}, got 16 in shape "
        f"(16, 16); kv_size = {kv_size} from "
    )
    of_tensor(kv, torch.zeros(8))
    assert refusal(of_tensor, kv, torch.zeros(kv_size)) == f"{start}axis 0 of `k`."
    of_int(kv, 8)
    assert refusal(of_int, kv, kv_size) == f"{start}parameter `kv_size`."
    of_let(kv, torch.zeros(3), 5)
    assert refusal(of_let, kv, torch.zeros(3), kv_size - 3) == (
        f"{start}heads + extra, heads = 3 from axis 0 of `w`, extra = {kv_size - 3} from "
        "parameter `extra`."
    )


def misspelt(name, part):
    """Declare a contract in which one part names a dim; all others call it `kv_size`."""
    axes, where, let, zero, errors = "ctx 2*kv_size", [], {}, {}, []
    layout = tp.LastDimContiguous()
    match part:
        case "axis":
            axes = f"ctx 2*{name}"
        case "where":
            where = [f"{name} % 4 == 0"]
        case "when":
            where = [tp.relation("ctx > 1", when=f"{name} > 1")]
        case "let":
            axes, let = "ctx width", {"width": f"2*{name}"}
        case "zero":
            zero = {name: "nothing is done"}
        case "placeholder":
            errors = [tp.raises("row", f"wrong {{{name}}}", unless="kv: dims")]
        case "when of a row":
            errors = [tp.raises("row", "wrong", unless="kv: dims", when=f"{name} > 1")]
        case "strides":
            layout = tp.Strides(f"{name}*2 1")

    @tp.op(where=where, let=let, zero=zero, errors=errors)
    def op(kv: Annotated[Float[Tensor, axes], layout], k: Float[Tensor, "kv_size"]): ...

    return op


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("axis", ": the dim `kv_sze` is named once, in an expression."),
        ("where", ", relation 'kv_sze % 4 == 0': unknown name `kv_sze`."),
        ("when", ", `when` of relation 'ctx > 1': unknown name `kv_sze`."),
        ("let", f", `let` width: nothing binds the dim `kv_sze`: {NOTHING_BINDS_IT}"),
        ("zero", ", `zero`: unknown dim `kv_sze`."),
        ("placeholder", ", error `row`: unknown placeholder `kv_sze`."),
        ("when of a row", ", `when` of error `row`: unknown name `kv_sze`."),
        ("strides", ", `kv`, strides [kv_sze*2, 1]: unknown dim `kv_sze`."),
    ],
)
def test_case_03__a_misspelt_dim_fails_at_decoration(part, says):
    misspelt("kv_size", part)(torch.zeros(3, 8), torch.zeros(4))
    with pytest.raises(tp.ContractDefinitionError) as caught:
        misspelt("kv_sze", part)
    place = f"{__name__}.misspelt.<locals>.op"
    assert str(caught.value) == f"{place}{says} Did you mean `kv_size`?"
    assert caught.value.hint == "Did you mean `kv_size`?"


@pytest.mark.parametrize("width", [6, 7])
def test_case_04__results_are_held_to_the_contract(width):
    @tp.op
    def op(x: Float[Tensor, "batch d"], result: object) -> Float[Tensor, "batch d//2"]:
        return result

    x = torch.zeros(4, width)
    assert op(x, torch.zeros(4, 3)).shape == (4, 3)
    for wrong in (width, 4, 2):
        assert refusal(op, x, torch.zeros(4, wrong)) == (
            f"`return` must have shape [batch, d//2]: axis 1 must be 3, got {wrong} in shape "
            f"(4, {wrong}); d = {width} from axis 1 of `x`."
        )
    assert refusal(op, x, torch.zeros(5, 3)) == (
        "`return` must have shape [batch, d//2]: axis 0 must be 4, got 5 in shape (5, 3); "
        "batch = 4 from axis 0 of `x`."
    )
    assert refusal(op, x, torch.zeros(4, 3).int()) == "`return` must have dtype Float: got int32."
    assert refusal(op, x, None) == "`return` must be a torch.Tensor: got None."


@pytest.mark.parametrize(
    "hint", [list[Float[Tensor, "B C ?N"]], tuple[Float[Tensor, "B C ?N"], ...]]
)
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            (2, 4, 7),
            f"{SHAPE} axis 1 must be 3, got 4 in shape (2, 4, 7); C = 3 from {FIRST} 1{END}",
        ),
        (
            (5, 3, 7),
            f"{SHAPE} axis 0 must be 2, got 5 in shape (5, 3, 7); B = 2 from {FIRST} 0{END}",
        ),
        ((2, 3), "have 3 axes [B, C, ?N]: got shape (2, 3)."),
        (None, "be a torch.Tensor: got None."),
    ],
)
def test_case_05__a_wrong_item_of_a_list_fails_every_time(hint, place, wrong, text):
    @tp.op
    def op(feats: hint): ...

    kind = list if "list" in str(hint) else tuple
    feats = [torch.zeros(2, 3, free) for free in (4, 5, 6)]
    op(kind(feats))
    feats[place] = None if wrong is None else torch.zeros(wrong)
    texts = {refusal(op, kind(feats)) for _ in range(50)}
    assert texts == {f"`feats[{place}]` must {text}"}


@pytest.mark.parametrize(
    ("m", "d", "text"),
    [
        (1, 16, "m >= 2 must hold: got m = 1; m = 1 from"),
        (2, 15, "d % 8 == 0 must hold: got d = 15; d = 15 from"),
        (2, 17, "d % 8 == 0 must hold: got d = 17; d = 17 from"),
        (1, 15, "m >= 2 must hold: got m = 1; m = 1 from"),
        (2, 1, "d % 8 == 0 must hold: got d = 1; d = 1 from"),
    ],
)
def test_case_06__bounds_and_divisibility(m, d, text):
    where = ["m >= 2", "d % 8 == 0"]

    @tp.op(where=where)
    def of_axes(x: Float[Tensor, "m d"]): ...

    @tp.op(where=where)
    def of_ints(m: int, d: int): ...

    for good in ((2, 8), (2, 16), (3, 24)):
        of_axes(torch.zeros(good))
        of_ints(*good)
    name = text[0]
    assert refusal(of_axes, torch.zeros(m, d)) == f"{text} axis {'md'.index(name)} of `x`."
    assert refusal(of_ints, m, d) == f"{text} parameter `{name}`."


@pytest.mark.parametrize(
    ("arguments", "keywords", "sizes"),
    [
        ((3,), {}, (3, 16)),
        ((3, 5), {}, (3, 5)),
        ((), {"n": 3}, (3, 16)),
        ((4,), {"head_dim": 9}, (4, 9)),
    ],
)
def test_case_07__a_default_binds_a_dim(arguments, keywords, sizes):
    @tp.op
    def right(n: int, head_dim: int = 16) -> Float[Tensor, "n head_dim"]:
        return torch.zeros(n, head_dim)

    @tp.op
    def wrong(n: int, head_dim: int = 16) -> Float[Tensor, "n head_dim"]:
        return torch.zeros(n, head_dim + 1)

    assert right(*arguments, **keywords).shape == sizes
    n, head_dim = sizes
    assert refusal(wrong, *arguments, **keywords) == (
        f"`return` must have shape [n, head_dim]: axis 1 must be {head_dim}, got {head_dim + 1} in "
        f"shape ({n}, {head_dim + 1}); head_dim = {head_dim} from parameter `head_dim`."
    )


KINDS = """
class Layer:
    def __init__(self, heads):
        self.heads = heads

    @tp.op
    def method(self, x: Float[Tensor, "n self.heads"] | None, y: Float[Tensor, "n"]):
        return self.heads

    @staticmethod
    @tp.op
    def static(x: Float[Tensor, "n 3"] | None, y: Float[Tensor, "n"]):
        return 3

    @tp.op
    @staticmethod
    def static_inside(x: Float[Tensor, "n 3"] | None, y: Float[Tensor, "n"]):
        return 3

    @classmethod
    @tp.op
    def of_class(cls, x: Float[Tensor, "n 3"] | None, y: Float[Tensor, "n"]):
        return 3


def enclosing():
    Local = Float[Tensor, "n 3"]

    @tp.op
    def nested(x: Local | None, y: Float[Tensor, "n"]):
        return 3

    return nested


layer = Layer(3)
functions = [layer.method, Layer.static, Layer.static_inside, Layer.of_class, enclosing()]
"""


@pytest.mark.parametrize(
    "future", ["from __future__ import annotations", ""], ids=["future", "now"]
)
def test_case_08__methods_static_methods_and_nested_functions(future):
    names = defined(f"{future}\n{KINDS}")
    assert inspect.ismethod(names["layer"].method)
    assert names["layer"].method.__self__ is names["layer"]
    for function in names["functions"]:
        y = torch.zeros(2)
        assert function(torch.zeros(2, 3), y) == function(None, y) == function(x=None, y=y) == 3
        heads = "self.heads" if function.__name__ == "method" else "3"
        # Of the two tensors, `y` gives n its value: `x` may be None.
        assert refusal(function, torch.zeros(5, 3), y) == (
            f"`x` must have shape [n, {heads}]: axis 0 must be 2, got 5 in shape (5, 3); "
            "n = 2 from axis 0 of `y`."
        )
        assert "axis 1 must be 3, got 4 in shape (2, 4)" in refusal(function, torch.zeros(2, 4), y)
        assert refusal(function, None, None) == "`y` must be a torch.Tensor: got None."


@pytest.mark.parametrize(
    "future", ["from __future__ import annotations", ""], ids=["future", "now"]
)
@pytest.mark.parametrize(
    ("hint", "default", "result"),
    [
        ('Missing[Tensor, "n"]', "", "Tensor"),
        ('Float[Tensr, "n"]', "", "Tensor"),
        ("\"Flaot[Tensor, 'n']\"", "", "Tensor"),
        ('Float[Tensor, "n"] | Missing', " = None", "Tensor"),
        ('list["Missing"]', "", "Tensor"),
        ('Float[torch.Tensr, "n"]', "", "Tensor"),
        ('Float[Tensor, "n"]', "", 'Missing[Tensor, "n"]'),
        ('Float[Tensor, "n +"]', "", "Tensor"),
    ],
)
def test_case_09__an_annotation_that_cannot_be_resolved_fails_at_decoration(
    hint, default, result, future
):
    source = "{}\n@tp.op\ndef op(x: {}{}) -> {}:\n    return x"
    good = defined(source.format(future, 'Float[Tensor, "n"]', "", "Tensor"))["op"]
    assert refusal(good, torch.zeros(3).int()) == "`x` must have dtype Float: got int32."
    # Without the future import Python itself, or jaxtyping, may stumble before we see anything.
    expected = tp.ContractDefinitionError if future else Exception
    with pytest.raises(expected):
        defined(source.format(future, hint, default, result))


def test_case_10__same_size_and_other_meaning_cannot_be_seen():
    @tp.op
    def op(q: Float[Tensor, "batch heads dim"], k: Float[Tensor, "batch groups dim"]) -> object:
        return q

    q, k = torch.zeros(2, 6, 5), torch.ones(2, 6, 5)
    assert op(k, q) is k
    for page in ("README.md", "docs/enforcement.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert "can be swapped" in text
        assert "distinct sizes" in text
