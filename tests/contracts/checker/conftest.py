"""Random contracts with calls for them, as a fixture."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union

import pytest
import torch
from jaxtyping import Float, Float32, Int, Int32, Shaped
from torch import Tensor

from tensorpact.contracts.language.contract import Contract, build_contract
from tensorpact.contracts.language.definition_error import ContractDefinitionError
from tensorpact.contracts.language.facets import (
    AnyDevice,
    Contiguous,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
    SameDevice,
    SameDtype,
    Strides,
)
from tensorpact.contracts.language.rows import predicate, relation

DTYPES = {
    Float: (torch.float32, torch.float16),
    Float32: (torch.float32,),
    Int: (torch.int32, torch.int64),
    Int32: (torch.int32,),
    Shaped: (torch.float32, torch.bool),
}
DIMS = ("n", "m", "k", "h")
COMPUTED = (
    "2*{0}", "{0}+{1}", "{0}*{1}", "{0}*{1}+1", "2*{0}*{1}+{2}", "{0}+1", "{0}//2", "cdiv({0},2)",
    "min({0},{1})", "{0}-1", "{{{0}}}", "{0}*{0}", "w", "w+{0}", "{0}%{1}", "{0}-{1}",
)  # fmt: skip
RELATIONS = (
    "{0} >= 1", "{0} % {1} == 0", "{0} + {1} < 9", "{0} != 3 or {1} >= 2", "{1} // {0} <= 4",
    "not {0} == 4", "1 <= {0} <= 4", "power_of_two({0})", "cdiv({0}, {1}) >= 1", "p > 0",
    "max({0}, {1}) < 5", "{2}.shape[0] >= 1", "{2}.numel() >= 0", "{2}.ndim < 4", "w >= {0}",
    "{2} is None or {0} >= 1", "flag or {0} < 4", "mode == 'a'", "{2}.shape[-1] % {0} == 0",
    "(-2)**2 > {0} - 5", "{0} >= 2 and ({1} > 1 or {0} < 4)", "abs({0} - {1}) < 4",
    "scale <= 2.5 or {0} < 3",
)  # fmt: skip
JUNK = (None, 3, True, 2.5, "a", (), [], object(), 10**60, -1, 0)


@dataclass
class Argument:
    """One parameter: its annotation, how it is written, and how a valid value is drawn."""

    name: str
    hint: Any
    draw: Callable[[], Any]
    star: bool = False
    default: str = ""


class RandomContract:
    """A contract drawn from a seed; `sizes` are the dims that its valid calls use."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.contract: Contract[..., Any] | None = None
        for _ in range(10):
            # A draw that makes no sense as a contract is refused; the next one is another.
            self.draw()
            if self.contract is not None:
                break

    def draw(self) -> None:
        self.zero = {n: "" for n in (*DIMS, "p") if self.maybe(0.15)}
        self.sizes: dict[str, Any] = {n: self.random.randint(1, 4) for n in (*DIMS, "q")}
        for name in self.zero:
            if self.maybe(0.4):
                self.sizes[name] = 0
        self.sizes |= {"p": self.sizes.get("p", self.random.randint(1, 4)), "b": self.shape(2)}
        self.sizes |= {"shape": self.shape(3)}
        self.dims = self.random.sample(DIMS, self.random.choice((2, 3, 3, 4)))
        self.let = {"w": "2*" + self.dims[0]} if self.maybe(0.3) else {}
        self.sizes["w"] = 2 * self.sizes[self.dims[0]]
        scalars = self.scalars()
        self.names = {*self.dims, *self.let, *(argument.name for argument in scalars)}
        self.tensors = [f"x{number}" for number in range(self.random.randint(1, 5))]
        self.arguments = [*map(self.argument, self.tensors), *scalars]
        if self.maybe(0.6):
            text, sizes = " ".join(self.dims), [self.sizes[name] for name in self.dims]
            every = Argument("every", Float[Tensor, text], lambda: torch.empty(sizes))
            self.arguments.insert(self.random.randint(0, len(self.tensors)), every)
        self.outputs = [self.array() for _ in range(self.random.choice((0, 0, 1, 2)))]
        self.contract = self.build()

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def shape(self, most: int) -> tuple[int, ...]:
        return tuple(self.random.randint(1, 3) for _ in range(self.random.randint(0, most)))

    # Annotations

    def axis(self, per_item: bool, flexible: bool) -> tuple[str, Callable[[], tuple[int, ...]]]:
        """An axis and how its sizes are drawn."""
        name, draw = self.random.choice(self.dims), self.random
        kinds = ["name"] * 8 + ["computed"] * 4 + ["fixed", "any", "soft", "soft"]
        kinds += ["parameter"] if "p" in self.names else []
        kinds += ["...", "*b", "*b", "*#b"] if flexible else []
        kinds += ["shape"] * 2 if flexible and "shape" in self.names else []
        match self.random.choice(kinds + ["item"] * 4 if per_item else kinds):
            case "name":
                return name, lambda: (self.sizes[name],)
            case "computed":
                text = self.written(COMPUTED)
                return text, lambda: (max(0, self.value(text.replace("{", "").replace("}", ""))),)
            case "fixed":
                return self.random.choice(["3", "rows=3", "#3"]), lambda: (3,)
            case "any":
                return "_", lambda: (draw.randint(0, 3),)
            case "soft":
                return f"#{name}", lambda: (draw.choice((1, self.sizes[name])),)
            case "parameter":
                return "p", lambda: (self.sizes["p"],)
            case "...":
                return "...", lambda: self.shape(2)
            case "*b":
                return "*b", lambda: self.sizes["b"]
            case "*#b":
                return "*#b", lambda: tuple(draw.choice((1, size)) for size in self.sizes["b"])
            case "shape":
                return "{shape}", lambda: self.sizes["shape"]
            case _:
                return draw.choice(["?q", "?q q+1"]), lambda: (draw.randint(1, 3),)

    def written(self, texts: Sequence[str]) -> str:
        """Choose one of some expressions and put names into it that the contract knows."""
        while True:
            text = self.random.choice(texts)
            dims = self.random.choices(self.dims, k=3)
            filled = text.format(*dims[:2], dims[2] if texts is COMPUTED else self.other())
            if {"w", "p", "flag", "mode", "scale"} & {*re.findall(r"\w+", text)} <= self.names:
                return filled

    def other(self, name: str = "") -> str:
        """Choose a tensor, another one than that of this name where there is one."""
        return self.random.choice([t for t in self.tensors if t != name] or self.tensors)

    def value(self, text: str) -> Any:
        functions = {"cdiv": lambda a, b: -(-a // b), "min": min}
        try:
            return eval(text, functions, self.sizes)
        except ZeroDivisionError:
            return 0

    def array(self, per_item: bool = False) -> tuple[Any, Callable[[], Tensor]]:
        """A tensor annotation and how a tensor for it is drawn."""
        kind = self.random.choice(list(DTYPES))
        axes: list[tuple[str, Callable[[], tuple[int, ...]]]] = []
        flexible = self.maybe(0.25)
        for _ in range(self.random.randint(0, 3)):
            axes.append(self.axis(per_item, flexible))
            flexible = flexible and not axes[-1][0].startswith(("*", "...", "{shape"))

        def draw() -> Tensor:
            sizes: list[int] = []
            for text, draw_axis in axes:
                drawn = draw_axis()
                sizes += (*drawn, drawn[0] + 1) if text == "?q q+1" else drawn
            return torch.empty(sizes, dtype=self.random.choice(DTYPES[kind]))

        return kind[Tensor, " ".join(text for text, _ in axes)], draw

    def argument(self, name: str) -> Argument:
        match self.random.choice(["one"] * 8 + ["union"] * 3 + ["list"] * 2 + ["tuple", "mixed"]):
            case "one":
                hint, draw = self.array()
            case "union":
                members = [self.array() for _ in range(self.random.randint(2, 3))]
                hint = Union[tuple(member for member, _ in members)]  # noqa: UP007

                def draw() -> Tensor:
                    return self.random.choice(members)[1]()
            case "list":
                return self.list_argument(name)
            case "tuple":
                items = [self.array(per_item=True) for _ in range(self.random.randint(1, 2))]
                hint = tuple[tuple(item for item, _ in items)]  # type: ignore[misc]
                return Argument(name, hint, lambda: tuple(draw() for _, draw in items))
            case _:
                member, draw = self.array()
                return Argument(name, member | self.random.choice([int, str, float]), draw)
        hint = self.with_facets(name, hint)
        if self.maybe(0.3):
            default = "None" if self.maybe(0.5) else ""
            return Argument(
                name, hint | None, lambda: draw() if self.maybe(0.6) else None, default=default
            )
        return Argument(name, hint, draw)

    def list_argument(self, name: str) -> Argument:
        item, draw = self.array(per_item=True)
        item = self.with_facets(name, item)
        sequence = self.random.choice([list, Sequence, tuple, "star"])
        make = tuple if sequence in (tuple, "star") else list

        def values() -> Any:
            return make(draw() for _ in range(self.random.randint(0, 3)))

        if sequence == "star":
            return Argument(name, item, values, star=True)
        hint = tuple[item, ...] if sequence is tuple else sequence[item]  # type: ignore[index]
        return Argument(name, hint | None if self.maybe(0.2) else hint, values)

    def with_facets(self, name: str, hint: Any) -> Any:
        other, first = self.other(name), self.random.choice(self.dims)
        rank = len(getattr(hint, "dim_str", "_ _").split())
        pattern = " ".join(["_", "_", first, "1"][-rank:]) if rank else "_"
        facets = [
            Contiguous(), LastDimContiguous(), LastDimContiguous(), Mutated(), Mutated(),
            AnyDevice(), SameDtype(other), SameDevice(other), NoAlias(other), Strides(pattern),
        ]  # fmt: skip
        chosen = self.random.sample(facets, self.random.choice((0, 0, 0, 1, 2)))
        for facet in chosen:
            hint = Annotated[hint, facet]
        return hint

    def scalars(self) -> list[Argument]:
        size = self.random.choice([int, int, int | None, int | str])
        kinds = {
            "p": (size, lambda: self.sizes["p"]),
            "shape": (tuple[int, ...], lambda: self.sizes["shape"]),
            "scale": (float, lambda: self.random.choice((1, 0.5, 3.0))),
            "flag": (bool, lambda: self.maybe(0.5)),
            "mode": (str, lambda: self.random.choice("ab")),
            "hook": (Callable[[int], int], lambda: abs),
            "other": (Any, lambda: self.random.choice(JUNK)),
        }
        return [Argument(n, *kinds[n]) for n in kinds if self.maybe(0.6 if n == "p" else 0.3)]

    # The contract

    def build(self) -> Contract[..., Any] | None:
        """Build the contract, or return None where the draw makes no sense as one."""
        stars = [a for a in self.arguments if a.star]
        plain = [a for a in self.arguments if not a.star]
        plain.sort(key=lambda argument: bool(argument.default))
        cut = len(plain) if not stars else 0
        written = [a.name + (f"={a.default}" if a.default else "") for a in plain]
        if stars:
            keep = stars[:1]
            self.arguments = [*keep, *plain]
            written = [f"*{keep[0].name}", *written]
        else:
            self.arguments = plain
            if self.maybe(0.2) and cut:
                written.insert(self.random.randint(0, cut - 1), "*")
        namespace: dict[str, Any] = {"__name__": __name__}
        exec(f"def op({', '.join(written)}): ...", namespace)
        op = namespace["op"]
        op.__annotations__ = {argument.name: argument.hint for argument in self.arguments}
        outputs = [hint for hint, _ in self.outputs]
        if outputs:
            whole: Any = outputs[0] if len(outputs) == 1 else tuple[tuple(outputs)]  # type: ignore[misc]
            if len(outputs) == 1 and self.maybe(0.2):
                whole = Annotated[whole, self.random.choice([Is("x0"), Contiguous()])]
            op.__annotations__["return"] = whole
        clauses: dict[str, Any] = {"let": self.let}
        clauses["where"] = [self.relation() for _ in range(self.random.choice((0, 0, 1, 2)))]
        if self.maybe(0.2):
            clauses["early_return"] = self.written(("{0} == 0", "{0} < 2", "{2}.shape[0] == 0"))
        if self.maybe(0.3):
            clauses["anchors"] = [self.other()]
        for zero in (self.zero, {}):
            try:
                return build_contract(op, names={}, zero=zero, **clauses)
            except ContractDefinitionError:
                continue
        return None

    def relation(self) -> Any:
        if self.maybe(0.1):
            return predicate(lambda n: n < 4, "n is small")
        when = f"{self.dims[0]} > 1" if self.maybe(0.2) else None
        return relation(self.written(RELATIONS), when=when)

    # Calls

    def call(self) -> dict[str, Any]:
        """Draw a call: valid in most cases where nothing is changed afterwards."""
        found = {argument.name: argument.draw() for argument in self.arguments}
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2))):
            if found:
                name = self.random.choice(list(found))
                star = any(a.star and a.name == name for a in self.arguments)
                found[name] = self.changed(found[name], found, keep=star)
        return found

    def results(self) -> Any:
        """Draw what the body returns."""
        drawn = [draw() for _, draw in self.outputs]
        if drawn and self.maybe(0.4):
            drawn[0] = self.changed(drawn[0], {}, keep=False)
        if self.maybe(0.05):
            return self.random.choice(JUNK)
        return drawn[0] if len(drawn) == 1 else tuple(drawn)

    def changed(self, value: Any, others: dict[str, Any], *, keep: bool) -> Any:
        """Change a value in one of many ways; with `keep` it stays a tuple."""
        if isinstance(value, (list, tuple)) and value and (keep or self.maybe(0.8)):
            items = list(value)
            position = self.random.randrange(len(items))
            items[position] = self.changed(items[position], others, keep=False)
            if self.maybe(0.2):
                items.append(items[0])
            return type(value)(items)
        if keep:
            return value
        if self.maybe(0.1):
            return self.random.choice([*JUNK, torch.empty(2, 2)])
        if others and self.maybe(0.1):
            return self.random.choice(list(others.values()))
        if isinstance(value, Tensor):
            return self.changed_tensor(value)
        if type(value) is int:
            return value + self.random.choice((-1, 1, -value))
        return self.random.choice(JUNK)

    def changed_tensor(self, value: Tensor) -> Tensor:
        shape = list(value.shape)
        match self.random.choice(["rank", "size", "size", "dtype", "layout", "layout", "device"]):
            case "rank":
                return value[None] if self.maybe(0.5) or not shape else value.flatten(0, -1)
            case "size" if shape:
                axis = self.random.randrange(len(shape))
                shape[axis] = self.random.choice((shape[axis] + 1, max(0, shape[axis] - 1), 0, 1))
                return torch.empty(shape, dtype=value.dtype)
            case "dtype":
                return value.to(self.random.choice([torch.int64, torch.float64, torch.int32]))
            case "device":
                return torch.empty(shape, dtype=value.dtype, device="meta")
            case _ if len(shape) >= 2 and self.maybe(0.4):
                return value.mT.contiguous().mT
            case _ if shape and self.maybe(0.5):
                return value[..., :1].expand(shape) if shape[-1] else value
            case _ if shape:
                return torch.empty([*shape[:-1], 2 * shape[-1]], dtype=value.dtype)[..., ::2]
        return torch.nn.Parameter(value, requires_grad=False)


@pytest.fixture
def random_contract() -> type[RandomContract]:
    """The class that draws contracts and calls from a seed."""
    return RandomContract
