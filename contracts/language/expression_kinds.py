"""What kind of value an expression may have, as far as its form tells: a number, a truth value."""

from __future__ import annotations

from tensorpact.contracts.language.expression import (
    Attribute,
    Binary,
    Call,
    Compare,
    Constant,
    Expression,
    Logic,
    Method,
    Tuple,
    Unary,
    walk,
)


def may_be_number(tree: Expression) -> bool:
    """Tell whether an expression may have a number as its value; a truth value is none."""
    match tree:
        case Constant(value):
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case Compare() | Logic() | Unary("not", _) | Tuple():
            return False
        case Call(function, _):
            return function not in ("power_of_two", "tuple")
        case Attribute(_, name):
            return name not in ("shape", "dtype", "device")
        case Method(_, name, arguments):
            return name != "is_contiguous" and not (name in ("size", "stride") and not arguments)
        case _:
            return True


def may_be_equal(constant: Constant, other: Expression) -> bool:
    """Tell whether something might equal a literal: a number, a string, True or False."""
    if isinstance(constant.value, (bool, str)):
        return not isinstance(other, (Binary, Call)) and not _is_tensor_fact(other)
    return may_be_number(other)


def _is_tensor_fact(node: Expression) -> bool:
    return isinstance(node, Attribute) and node.name in ("shape", "dtype", "device")


def may_be_size(tree: Expression) -> bool:
    """Tell whether an expression may be the size or stride of an axis: a whole number."""
    constants = (part for part in walk(tree) if isinstance(part, Constant))
    return may_be_number(tree) and not any(isinstance(c.value, float) for c in constants)
