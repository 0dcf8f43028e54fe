"""Small pieces of generated Python: an indented writer and expressions over local names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

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
    text_of,
    walk,
)


@dataclass
class Writer:
    """Lines of Python with the current indentation."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0
    _closed: tuple[str, int] = ("", 0)

    def write(self, line: str) -> None:
        """Add one line."""
        self.lines.append("    " * self.depth + line)

    def write_list(self, first: str, items: list[str], operator: str, last: str) -> None:
        """Add items one a line, joined by `and` or `or`; a single one stays on the line."""
        if len(items) == 1:
            self.write(f"{first}{items[0]}{last}")
            return
        self.write(first)
        self.depth += 1
        for index, item in enumerate(items):
            bracketed = f"({item})" if " and " in item or " or " in item else item
            self.write(f"{operator} {bracketed}" if index else bracketed)
        self.depth -= 1
        self.write(last)

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a header and indent what follows.

        Conditions and loops that hold nothing are left out; two alike in a row become one.
        """
        line = "    " * self.depth + header
        plain = header.startswith(("if ", "for ")) and header.endswith(":")
        start = len(self.lines)
        if not (plain and self._closed == (line, start)):
            self.lines.append(line)
        before = len(self.lines)
        self.depth += 1
        yield
        empty = len(self.lines) == before
        if empty and not plain:
            self.write("pass")
        self.depth -= 1
        if empty and plain:
            del self.lines[start:]
        else:
            self._closed = (line, len(self.lines)) if plain else ("", 0)

    def text(self) -> str:
        """Return everything written."""
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True)
class Locals:
    """How names of the contract are spelled in the generated function.

    `dims` maps a dim to its variable; `maybe_dims` and `maybe_arguments` are the dims and
    parameters that may be None in a valid call; `functions` are those of the contract language;
    `shapes` maps a parameter to the variable that already holds its shape.
    """

    dims: Mapping[str, str]
    maybe_dims: frozenset[str]
    maybe_arguments: frozenset[str]
    functions: Mapping[str, str]
    shapes: Mapping[str, str]

    def with_item(self, names: Mapping[str, str]) -> Locals:
        """Return the same with dims that belong to one item of a list."""
        always = self.maybe_dims.difference(names)
        return replace(self, dims={**self.dims, **names}, maybe_dims=always)

    def expression(self, node: Expression) -> str:
        """Print an expression over the local variables."""
        return text_of(self._spelled(node))

    def presence(self, node: Expression) -> list[str]:
        """Return the conditions under which every name an expression needs has a value."""
        needed = needed_names(node)
        found = [self.spell(name) for name in needed.values if self.maybe(name)]
        found += [name for name in needed.owners if name in self.maybe_arguments]
        return [f"{variable} is not None" for variable in dict.fromkeys(found)]

    def maybe(self, name: str) -> bool:
        """Tell whether a dim or parameter may be None in a valid call."""
        return name in (self.maybe_dims if name in self.dims else self.maybe_arguments)

    def spell(self, name: str) -> str:
        """Return the variable of a dim or parameter."""
        return self.dims.get(name, name)

    def _spelled(self, node: Expression) -> Expression:
        match node:
            case Name(identifier):
                return Name(self.spell(identifier))
            case Attribute(Name(owner), "shape") if owner in self.shapes:
                return Name(self.shapes[owner])
            case Attribute(Name(), _):
                return node
            case Attribute(owner, name):
                return Attribute(self._spelled(owner), name)
            case Method(Name() as owner, name, arguments):
                return Method(owner, name, tuple(self._spelled(a) for a in arguments))
            case Method(owner, name, arguments):
                spelled = tuple(self._spelled(a) for a in arguments)
                return Method(self._spelled(owner), name, spelled)
            case Subscript(owner, index):
                return Subscript(self._spelled(owner), self._spelled(index))
            case Call(function, arguments):
                spelled = tuple(self._spelled(a) for a in arguments)
                return Call(self.functions[function], spelled)
            case Unary(operator, operand):
                return Unary(operator, self._spelled(operand))
            case Binary(operator, left, right):
                return Binary(operator, self._spelled(left), self._spelled(right))
            case Compare(first, rest):
                pairs = tuple((operator, self._spelled(right)) for operator, right in rest)
                return Compare(self._spelled(first), pairs)
            case Logic(operator, operands):
                return Logic(operator, tuple(self._spelled(operand) for operand in operands))
            case Tuple(items):
                return Tuple(tuple(self._spelled(item) for item in items))
            case Constant():
                return node


@dataclass(frozen=True, slots=True)
class NeededNames:
    """What an expression cannot do without: dims and parameters, and owners of attributes."""

    values: tuple[str, ...]
    owners: tuple[str, ...]


def needed_names(node: Expression) -> NeededNames:
    """Return the names that must have a value for an expression to mean something.

    A name that is only compared with None needs none.
    """
    owners = [
        part.owner
        for part in walk(node)
        if isinstance(part, (Attribute, Method)) and isinstance(part.owner, Name)
    ]
    exempt = {id(owner) for owner in owners}
    exempt |= {
        id(part.first)
        for part in walk(node)
        if isinstance(part, Compare) and all(op.startswith("is") for op, _ in part.rest)
    }
    values = (part.id for part in walk(node) if isinstance(part, Name) and id(part) not in exempt)
    return NeededNames(
        tuple(dict.fromkeys(values)), tuple(dict.fromkeys(owner.id for owner in owners))
    )


def divisors(node: Expression) -> list[Expression]:
    """Return what an expression divides by, inner ones first; numbers other than 0 left out."""
    found: list[Expression] = []
    for part in walk(node):
        match part:
            case Binary("//" | "%", _, divisor) | Call("cdiv", (_, divisor)):
                if not (isinstance(divisor, Constant) and divisor.value != 0):
                    found.insert(0, divisor)
            case _:
                pass
    return found


def joined(conditions: list[str], operator: str) -> str:
    """Join conditions with `and` or `or`, bracketing the inner ones where needed."""
    if len(conditions) == 1:
        return conditions[0]
    other = " or " if operator == "and" else " and "
    return f" {operator} ".join(f"({c})" if other in c else c for c in conditions)
