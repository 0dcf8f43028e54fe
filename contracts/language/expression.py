"""The tree of the closed expression language behind dims, `let`, `where`, `when` and templates.

Whole numbers, floats and strings; names; `+ - * // % **`; comparisons, `is None`; `and or not`;
`min max cdiv power_of_two abs`; attributes of an instance (`self.num_heads`) and a fixed list of
tensor reads (`kv.shape[0]`, `positions.numel()`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

FUNCTIONS = ("min", "max", "cdiv", "power_of_two", "abs")
"""Functions an expression may call; `cdiv(a, b)` rounds up, `power_of_two(n)` is a test."""

TENSOR_ATTRIBUTES = ("shape", "ndim", "dtype", "device")
TENSOR_METHODS = ("numel", "dim", "size", "stride", "element_size", "is_contiguous")


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: a number, a string, True, False or None."""

    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Name:
    """A dim, a parameter or a `let` definition."""

    id: str


@dataclass(frozen=True, slots=True)
class Attribute:
    """`owner.name`: an instance attribute or one of `TENSOR_ATTRIBUTES`."""

    owner: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Subscript:
    """`owner[index]`, for `x.shape[0]`."""

    owner: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Method:
    """`owner.name(arguments)`, one of `TENSOR_METHODS`."""

    owner: Expression
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`function(arguments)`, one of `FUNCTIONS`; templates also know `tuple`."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`-operand` or `not operand`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic: `left operator right`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Compare:
    """A chain `first op second op third ...`, as in `1 <= n <= 8`."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """`and` or `or` over two or more operands."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    """`(a, b)`, in message templates only."""

    items: tuple[Expression, ...]


Expression: TypeAlias = (
    Constant
    | Name
    | Attribute
    | Subscript
    | Method
    | Call
    | Unary
    | Binary
    | Compare
    | Logic
    | Tuple
)


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the direct operands of a node, in reading order."""
    match node:
        case Constant() | Name():
            return ()
        case Attribute(owner, _):
            return (owner,)
        case Subscript(owner, index):
            return (owner, index)
        case Method(owner, _, arguments):
            return (owner, *arguments)
        case Call(_, arguments):
            return arguments
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Compare(first, rest):
            return (first, *(right for _, right in rest))
        case Logic(_, operands):
            return operands
        case Tuple(items):
            return items


def walk(node: Expression) -> Iterator[Expression]:
    """Yield the node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def names_in(node: Expression) -> tuple[str, ...]:
    """Return the names an expression reads, each once, in reading order."""
    found: dict[str, None] = {}
    for part in walk(node):
        if isinstance(part, Name):
            found.setdefault(part.id)
    return tuple(found)


def substituted(node: Expression, meanings: Mapping[str, Expression]) -> Expression:
    """Put expressions in the place of names; a name that owns an attribute stays as it is."""

    def inside(part: Expression) -> Expression:
        return substituted(part, meanings)

    def owned(part: Expression) -> Expression:
        return part if isinstance(part, Name) else inside(part)

    match node:
        case Name(identifier):
            return meanings.get(identifier, node)
        case Constant():
            return node
        case Attribute(owner, name):
            return Attribute(owned(owner), name)
        case Subscript(owner, index):
            return Subscript(inside(owner), inside(index))
        case Method(owner, name, arguments):
            return Method(owned(owner), name, tuple(map(inside, arguments)))
        case Call(function, arguments):
            return Call(function, tuple(map(inside, arguments)))
        case Unary(operator, operand):
            return Unary(operator, inside(operand))
        case Binary(operator, left, right):
            return Binary(operator, inside(left), inside(right))
        case Compare(first, rest):
            return Compare(inside(first), tuple((op, inside(right)) for op, right in rest))
        case Logic(operator, operands):
            return Logic(operator, tuple(map(inside, operands)))
        case Tuple(items):
            return Tuple(tuple(map(inside, items)))


def conjuncts(node: Expression) -> tuple[Expression, ...]:
    """Split a top-level `and` into its operands."""
    if isinstance(node, Logic) and node.operator == "and":
        return node.operands
    return (node,)


def text_of(node: Expression) -> str:
    """Print an expression the way a person writes it, with parentheses only where needed."""
    return _print(node, 0)


_BINDING_STRENGTH = {
    "or": 1,
    "and": 2,
    "not": 3,
    "compare": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "//": 6,
    "%": 6,
    "negate": 7,
    "**": 8,
}


def _print(node: Expression, outer: int) -> str:
    match node:
        case Constant(int() | float() as value) if value < 0:
            return _wrapped(repr(value), 7, outer)
        case Constant(value):
            return repr(value)
        case Name(identifier):
            return identifier
        case Attribute(owner, name):
            return f"{_print(owner, 9)}.{name}"
        case Subscript(owner, index):
            return f"{_print(owner, 9)}[{_print(index, 0)}]"
        case Method(owner, name, arguments):
            return f"{_print(owner, 9)}.{name}({', '.join(_print(a, 0) for a in arguments)})"
        case Call(function, arguments):
            return f"{function}({', '.join(_print(a, 0) for a in arguments)})"
        case Unary("not", operand):
            return _wrapped(f"not {_print(operand, 3)}", 3, outer)
        case Unary(_, operand):
            return _wrapped(f"-{_print(operand, 7)}", 7, outer)
        case Binary(operator, left, right):
            strength = _BINDING_STRENGTH[operator]
            right_associative = operator == "**"
            first = _print(left, strength + right_associative)
            second = _print(right, strength + (not right_associative))
            return _wrapped(f"{first} {operator} {second}", strength, outer)
        case Compare(first, rest):
            parts = [_print(first, 5), *(f"{op} {_print(right, 5)}" for op, right in rest)]
            return _wrapped(" ".join(parts), 4, outer)
        case Logic(operator, operands):
            strength = _BINDING_STRENGTH[operator]
            joined = f" {operator} ".join(_print(part, strength + 1) for part in operands)
            return _wrapped(joined, strength, outer)
        case Tuple(items):
            inner = ", ".join(_print(item, 0) for item in items)
            return f"({inner},)" if len(items) == 1 else f"({inner})"


def _wrapped(text: str, strength: int, outer: int) -> str:
    return f"({text})" if strength < outer else text
