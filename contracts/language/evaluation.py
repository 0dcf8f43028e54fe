"""The meaning of expressions: exact evaluation, and solving for one unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorpact.contracts.language.expression import (
    Attribute,
    Binary,
    Call,
    Compare,
    Constant,
    Expression,
    Logic,
    Method,
    Name,
    Subscript,
    Tuple,
    Unary,
    names_in,
)


class Unbound(Exception):  # noqa: N818
    """A name that an expression reads has no value in this call."""


@dataclass(frozen=True, slots=True)
class Values:
    """What names mean in one call: the dims, and the arguments as they were passed.

    A dim and a parameter may share a name: `x` alone is then the dim, `x.shape` the argument.
    """

    dims: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def read(self, name: str) -> Any:
        """Return the dim of this name, or else the argument."""
        for mapping in (self.dims, self.arguments):
            if name in mapping:
                return mapping[name]
        raise Unbound(name)

    def owner(self, name: str) -> Any:
        """Return the argument of this name, for an attribute read."""
        if name in self.arguments:
            return self.arguments[name]
        raise Unbound(name)


def cdiv(numerator: int, denominator: int) -> int:
    """Divide and round up.

    >>> cdiv(7, 2)
    4
    """
    return -(-numerator // denominator)


def power_of_two(number: int) -> bool:
    """Tell whether a whole number is 1, 2, 4, 8, ...

    >>> [n for n in range(9) if power_of_two(n)]
    [1, 2, 4, 8]
    """
    return number > 0 and number & (number - 1) == 0


ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
}
COMPARISON: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "is": lambda a, b: a is b,
    "is not": lambda a, b: a is not b,
}
FUNCTION_MEANINGS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "cdiv": cdiv,
    "power_of_two": power_of_two,
    "tuple": tuple,
}


def evaluate(node: Expression, values: Values) -> Any:
    """Evaluate an expression over named values; tensors are read by attribute only.

    Raises:
        Unbound: a name has no value, or an attribute is read of something that is None.
        ZeroDivisionError: a divisor is zero.
    """
    match node:
        case Constant(value):
            return value
        case Name(identifier):
            return values.read(identifier)
        case Attribute(owner, name):
            return _read(_owner(owner, values), name)
        case Subscript(owner, index):
            sequence = evaluate(owner, values)
            position = evaluate(index, values)
            if not -len(sequence) <= position < len(sequence):
                raise Unbound(f"axis {position}")
            return sequence[position]
        case Method(owner, name, arguments):
            method = _read(_owner(owner, values), name)
            try:
                return method(*(evaluate(argument, values) for argument in arguments))
            except IndexError as error:
                raise Unbound(str(error)) from error
        case Call(function, arguments):
            return FUNCTION_MEANINGS[function](*(evaluate(a, values) for a in arguments))
        case Unary("not", operand):
            return not evaluate(operand, values)
        case Unary(_, operand):
            return -evaluate(operand, values)
        case Binary(operator, left, right):
            return ARITHMETIC[operator](evaluate(left, values), evaluate(right, values))
        case Compare(first, rest):
            left_value = evaluate(first, values)
            for operator, right in rest:
                right_value = evaluate(right, values)
                if not COMPARISON[operator](left_value, right_value):
                    return False
                left_value = right_value
            return True
        case Logic(operator, operands):
            return _first_that_decides(operator, operands, values)
        case Tuple(items):
            return tuple(evaluate(item, values) for item in items)


def _first_that_decides(operator: str, operands: tuple[Expression, ...], values: Values) -> Any:
    """Return what Python's `and` and `or` return: the first operand that decides, or the last."""
    value = None
    for operand in operands:
        value = evaluate(operand, values)
        if bool(value) is (operator == "or"):
            break
    return value


def _owner(node: Expression, values: Values) -> Any:
    return values.owner(node.id) if isinstance(node, Name) else evaluate(node, values)


def _read(owner: Any, name: str) -> Any:
    if owner is None:
        raise Unbound(name)
    try:
        return getattr(owner, name)
    except AttributeError as error:
        raise Unbound(name) from error


def linear_in(node: Expression, unknown: str) -> tuple[Expression, Expression] | None:
    """Write an expression as `factor * unknown + rest`, or return None where that is impossible.

    Factor and rest are expressions over the other names. `2*H*K + HV*V` in `H` gives
    `2*K` and `HV*V`; `n // 2`, `n * n` and `n - n` in `n` give None.
    """
    parts = _linear_parts(node, unknown)
    return None if parts is None or parts[0] == Constant(0) else parts


def _linear_parts(node: Expression, unknown: str) -> tuple[Expression, Expression] | None:
    if unknown not in names_in(node):
        return Constant(0), node
    match node:
        case Name():
            return Constant(1), Constant(0)
        case Unary("-", operand):
            parts = _linear_parts(operand, unknown)
            return parts and (_minus(parts[0]), _minus(parts[1]))
        case Binary("+" | "-" as sign, left, right):
            first, second = _linear_parts(left, unknown), _linear_parts(right, unknown)
            if first is None or second is None:
                return None
            return _joined(sign, first[0], second[0]), _joined(sign, first[1], second[1])
        case Binary("*", left, right):
            inside, factor = (left, right) if unknown in names_in(left) else (right, left)
            parts = _linear_parts(inside, unknown)
            if parts is None or unknown in names_in(factor):
                return None
            return _times(parts[0], factor), _times(parts[1], factor)
        case _:
            return None


def _minus(node: Expression) -> Expression:
    if isinstance(node, Constant) and isinstance(node.value, int):
        return Constant(-node.value)
    return Unary("-", node)


def _joined(sign: str, left: Expression, right: Expression) -> Expression:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(ARITHMETIC[sign](left.value, right.value))
    if right == Constant(0):
        return left
    if left == Constant(0):
        return right if sign == "+" else _minus(right)
    return Binary(sign, left, right)


def _times(left: Expression, right: Expression) -> Expression:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(ARITHMETIC["*"](left.value, right.value))
    if Constant(0) in (left, right):
        return Constant(0)
    if left == Constant(1):
        return right
    return left if right == Constant(1) else Binary("*", left, right)
