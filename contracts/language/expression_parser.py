"""Parser of the closed expression language: text in, tree out, nothing is ever evaluated."""

from __future__ import annotations

import keyword
import math
import re
import unicodedata
from dataclasses import dataclass, replace

from tensorpact.contracts.language.definition_error import ContractDefinitionError, near_name_hint
from tensorpact.contracts.language.expression import (
    FUNCTIONS,
    TENSOR_METHODS,
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
    text_of,
    walk,
)
from tensorpact.contracts.language.expression_kinds import may_be_equal, may_be_number

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<string>'[^'\\]*'|"[^"\\]*")
      | (?P<symbol>\*\*|//|<=|>=|==|!=|[-+*/%()<>.,\[\]&|^~@=!:])
    )""",
    re.VERBOSE,
)
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "is", "in")
_WORDS = ("and", "or", "not", "is", "in", "True", "False", "None")
_LITERALS = {"True": True, "False": False, "None": None}
_ADVICE = {
    "/": "Sizes are whole numbers: write `//`.",
    "=": "A comparison is written `==`.",
    "&": "Write `and`.",
    "|": "Write `or`.",
    "!": "Write `not`.",
}
MAXIMUM_DEPTH = 32
"""Nesting an expression may have; deeper text is a mistake or an attack."""
MAXIMUM_TOKENS = 256
"""Words, numbers and signs an expression may have; what reads its tree may then be recursive."""
MAXIMUM_DIGITS = 40
"""Digits a number may have."""
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse_expression(text: str, *, tuples: bool = False) -> Expression:
    """Parse one expression of the contract language.

    `tuples=True` also allows `(a, b)` and `tuple(x.shape)`, which message templates use.

    Raises:
        ContractDefinitionError: the text is not an expression of the language; the message
            shows the text with a caret under the place.

    >>> from tensorpact.contracts.language.expression import text_of
    >>> text_of(parse_expression("2*H*K+HV*V"))
    '2 * H * K + HV * V'
    """
    return _Parser(text, tuples).parse()


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise _mistake(text, start, f"unexpected character {text[start]!r}")
        kind = str(match.lastgroup)
        token = _Token(kind, match.group(kind), match.start(kind))
        if kind == "name":
            token = replace(token, text=_name(text, token))
        if len(tokens) == MAXIMUM_TOKENS:
            raise _mistake(text, token.position, f"more than {MAXIMUM_TOKENS} words and signs")
        tokens.append(token)
        position = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _name(text: str, token: _Token) -> str:
    if not token.text.isidentifier():
        raise _mistake(text, token.position, f"{token.text!r} is no name")
    name = spelled(token.text)
    if keyword.iskeyword(name) and name not in _WORDS:
        raise _mistake(text, token.position, f"`{name}` is a word of Python, not a name")
    return name


def spelled(name: str) -> str:
    """Spell a name as Python does, to which some letters are the same: `ﬁ` is `fi`."""
    return unicodedata.normalize("NFKC", name)


def _mistake(text: str, position: int, problem: str, hint: str = "") -> ContractDefinitionError:
    excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    shown = f"cannot read the expression {excerpt!r}: {problem} at character {position + 1}."
    return ContractDefinitionError(shown, hint=hint)


class _Parser:
    """One pass of recursive descent over one text."""

    def __init__(self, text: str, tuples: bool) -> None:
        self.text = text
        self.tuples = tuples
        self.tokens = _tokenize(text)
        self.index = 0
        self.depth = 0

    def parse(self) -> Expression:
        if self.tokens[0].kind == "end":
            raise _mistake(self.text, 0, "nothing there")
        tree = self.disjunction()
        if self.here.kind != "end":
            raise self.unexpected()
        return tree

    @property
    def here(self) -> _Token:
        return self.tokens[self.index]

    def accept(self, *texts: str) -> str | None:
        token = self.here
        if token.kind in ("symbol", "name") and token.text in texts:
            self.index += 1
            return token.text
        return None

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise self.unexpected(f"expected {text!r}")

    def unexpected(self, expected: str = "") -> ContractDefinitionError:
        token = self.here
        problem = "it ends too early" if token.kind == "end" else f"unexpected {token.text!r}"
        if expected:
            problem = f"{problem}, {expected},"
        return _mistake(self.text, token.position, problem, _ADVICE.get(token.text, ""))

    def disjunction(self) -> Expression:
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            raise _mistake(self.text, self.here.position, "nested too deeply")
        operands = [self.conjunction()]
        while self.accept("or"):
            operands.append(self.conjunction())
        self.depth -= 1
        return operands[0] if len(operands) == 1 else Logic("or", tuple(operands))

    def conjunction(self) -> Expression:
        operands = [self.negation()]
        while self.accept("and"):
            operands.append(self.negation())
        return operands[0] if len(operands) == 1 else Logic("and", tuple(operands))

    def negation(self) -> Expression:
        count = 0
        while self.accept("not"):
            count += 1
        tree = self.comparison()
        for _ in range(count):
            tree = Unary("not", tree)
        return tree

    def comparison(self) -> Expression:
        first = self.sum()
        rest: list[tuple[str, Expression]] = []
        while (operator := self.accept(*_COMPARISONS)) is not None:
            if operator == "in":
                raise _mistake(self.text, self.here.position, "`in` is not part of the language")
            if operator == "is" and self.accept("not"):
                operator = "is not"
            right = self.sum()
            if operator.startswith("is") and right != Constant(None):
                raise _mistake(self.text, self.here.position, f"`{operator}` only takes None")
            self.require_comparable(operator, rest, first, right)
            rest.append((operator, right))
        return Compare(first, tuple(rest)) if rest else first

    def require_comparable(
        self,
        operator: str,
        before: list[tuple[str, Expression]],
        first: Expression,
        right: Expression,
    ) -> None:
        left = before[-1][1] if before else first
        if operator.startswith("is"):
            if before or isinstance(first, Constant):
                raise _mistake(self.text, self.here.position, f"`{operator}` compares one name")
        elif Constant(None) in (left, right):
            hint = f"Write `{'is' if operator == '==' else 'is not'} None`."
            raise _mistake(self.text, self.here.position, f"`{operator}` with None", hint)
        elif operator in ("==", "!="):
            pairs = ((left, right), (right, left))
            if any(isinstance(a, Constant) and not may_be_equal(a, b) for a, b in pairs):
                problem = f"`{text_of(left)}` and `{text_of(right)}` are never equal,"
                raise _mistake(self.text, self.here.position, problem)
        else:
            self.require_number(left, operator)
            self.require_number(right, operator)

    def sum(self) -> Expression:
        tree = self.product()
        while (operator := self.accept("+", "-")) is not None:
            tree = self.arithmetic(operator, tree, self.product())
        return tree

    def product(self) -> Expression:
        tree = self.signed()
        while (operator := self.accept("*", "//", "%")) is not None:
            tree = self.arithmetic(operator, tree, self.signed())
        return tree

    def arithmetic(self, operator: str, left: Expression, right: Expression) -> Expression:
        for operand in (left, right):
            self.require_number(operand, operator)
        if operator in ("//", "%") and right == Constant(0):
            raise _mistake(self.text, self.here.position, "division by zero")
        return Binary(operator, left, right)

    def require_number(self, operand: Expression, operator: str) -> None:
        if not may_be_number(operand):
            problem = f"`{operator}` takes numbers, not `{text_of(operand)}`,"
            raise _mistake(self.text, self.here.position, problem)

    def signed(self) -> Expression:
        count = 0
        while (sign := self.accept("-", "+")) is not None:
            count += sign == "-"
        before = self.index
        tree = self.power()
        if self.tokens[before - 1].text in ("-", "+"):
            self.require_number(tree, self.tokens[before - 1].text)
        if count % 2 == 0:
            return tree
        if isinstance(tree, Constant) and isinstance(tree.value, (int, float)):
            return Constant(-tree.value)
        return Unary("-", tree)

    def power(self) -> Expression:
        base = self.postfix()
        if self.accept("**") is None:
            return base
        if any(isinstance(part, Binary) and part.operator == "**" for part in walk(base)):
            raise _mistake(self.text, self.here.position, "a power of a power")
        self.require_number(base, "**")
        exponent = self.signed()
        match exponent:
            case Constant(int(value)) if 0 <= value <= 64 and not isinstance(value, bool):
                return Binary("**", base, exponent)
        raise _mistake(self.text, self.here.position, "an exponent is a number from 0 to 64")

    def postfix(self) -> Expression:
        tree = self.atom()
        while True:
            if self.accept("."):
                name = self.identifier()
                if name.startswith("__"):
                    raise _mistake(self.text, self.here.position, f"`.{name}` is private")
                if self.accept("("):
                    tree = self.method(tree, name)
                else:
                    tree = Attribute(tree, name)
            elif self.accept("["):
                index = self.sum()
                self.expect("]")
                tree = Subscript(tree, index)
            else:
                return tree

    def method(self, owner: Expression, name: str) -> Expression:
        if name not in TENSOR_METHODS:
            raise _mistake(
                self.text,
                self.here.position,
                f"`.{name}()` cannot be called",
                near_name_hint(name, TENSOR_METHODS),
            )
        return Method(owner, name, self.arguments())

    def arguments(self) -> tuple[Expression, ...]:
        found: list[Expression] = []
        while self.accept(")") is None:
            found.append(self.disjunction())
            if self.accept(",") is None:
                self.expect(")")
                break
        return tuple(found)

    def identifier(self) -> str:
        token = self.here
        if token.kind != "name":
            raise self.unexpected("expected a name")
        self.index += 1
        return token.text

    def atom(self) -> Expression:
        token = self.here
        if token.kind == "number":
            self.index += 1
            return Constant(self.number(token))
        if token.kind == "string":
            self.index += 1
            return Constant(token.text[1:-1])
        if self.accept("("):
            return self.parenthesis()
        if token.kind == "name" and token.text not in _WORDS[:5]:
            self.index += 1
            if token.text in _LITERALS:
                return Constant(_LITERALS[token.text])
            return self.call(token) if self.accept("(") else Name(token.text)
        raise self.unexpected()

    def number(self, token: _Token) -> int | float:
        if len(token.text) > MAXIMUM_DIGITS:
            raise _mistake(self.text, token.position, f"more than {MAXIMUM_DIGITS} digits")
        if token.text.isdecimal():
            return int(token.text)
        value = float(token.text)
        if math.isinf(value):
            raise _mistake(self.text, token.position, "a number beyond all floats")
        return value

    def call(self, token: _Token) -> Expression:
        allowed = (*FUNCTIONS, "tuple") if self.tuples else FUNCTIONS
        if token.text not in allowed:
            hint = near_name_hint(token.text, allowed)
            problem = f"`{token.text}()` is not a function of the language"
            raise _mistake(self.text, token.position, problem, hint)
        arguments = self.arguments()
        count = len(arguments)
        fits = {"cdiv": count == 2, "power_of_two": count == 1, "abs": count == 1}
        if not fits.get(token.text, count == 1 if token.text == "tuple" else count >= 2):
            problem = f"`{token.text}()` got {count} arguments"
            raise _mistake(self.text, token.position, problem)
        for argument in arguments if token.text != "tuple" else ():
            self.require_number(argument, f"{token.text}()")
        if token.text == "cdiv" and arguments[1] == Constant(0):
            raise _mistake(self.text, token.position, "division by zero")
        return Call(token.text, arguments)

    def parenthesis(self) -> Expression:
        first = self.disjunction()
        if self.here.text != ",":
            self.expect(")")
            return first
        if not self.tuples:
            raise self.unexpected("expected ')'")
        items = [first]
        while self.accept(",") and self.here.text != ")":
            items.append(self.disjunction())
        self.expect(")")
        return Tuple(tuple(items))
