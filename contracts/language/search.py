"""A bounded search over finite domains: values for names such that every relation holds.

Each relation is looked at as soon as all its names have values. Whole numbers are not guessed
where a relation says what they are: the last unknown of `n == h * d` is computed, that of
`n % block == 0` is tried at multiples of the block, that of `n >= m + 1` around the bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorpact.contracts.language.evaluation import Unbound, Values, evaluate, linear_in
from tensorpact.contracts.language.expression import (
    Binary,
    Compare,
    Constant,
    Expression,
    Name,
    conjuncts,
    names_in,
    walk,
)

BUDGET = 20_000
"""How many relations are looked at before a search gives up."""

_DISTINCT_BUDGET = 1_500
"""The same for the first try, in which no two sizes may be equal."""


@dataclass(frozen=True)
class Constraint:
    """A relation that must hold: `text` as it is written, `reads` the names it waits for."""

    expression: Expression
    text: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Domain:
    """What a name may be, in the order of preference; more whole numbers are tried if `open`."""

    candidates: tuple[Any, ...]
    low: int | None = None
    open: bool = False
    distinct: bool = False


class UnsatisfiableError(Exception):
    """Nothing that was tried satisfies a relation, by itself (`alone`) or beside the others."""

    def __init__(self, constraint: Constraint, alone: bool) -> None:
        self.constraint = constraint
        self.alone = alone
        super().__init__(constraint.text, alone)


def search(
    domains: Mapping[str, Domain],
    constraints: Iterable[Constraint],
    dims: dict[str, Any],
    arguments: Mapping[str, Any],
) -> None:
    """Add a value for every name of `domains` to `dims`, such that the constraints hold.

    `dims` holds what is fixed already; `arguments` is read by attributes (`x.shape[0]`).
    Values of `distinct` domains are pairwise different where the constraints allow it.

    Raises:
        UnsatisfiableError: nothing was found; names the relation that stands in the way.
    """
    waiting = [(c, [name for name in c.reads if name in domains]) for c in constraints]
    values = Values(dims, arguments)
    for constraint, reads in waiting:
        if not reads and not _holds(constraint, values):
            raise UnsatisfiableError(constraint, alone=True)
    for names in _components(domains, [reads for _, reads in waiting]):
        inside = [c for c, reads in waiting if reads and reads[0] in names]
        _solve_component({name: domains[name] for name in names}, inside, values)


def _solve_component(
    domains: dict[str, Domain], constraints: list[Constraint], values: Values
) -> None:
    attempt = _Attempt(domains, constraints, values, _DISTINCT_BUDGET, strict=True)
    if attempt.assign(0):
        return
    attempt = _Attempt(domains, constraints, values, BUDGET, strict=False)
    if attempt.assign(0):
        return
    texts = dict.fromkeys(constraint.text for constraint in constraints)
    for text in texts if len(texts) > 1 else ():
        same = [constraint for constraint in constraints if constraint.text == text]
        reads = {name for constraint in same for name in constraint.reads}
        own = {name: domain for name, domain in domains.items() if name in reads}
        single = _Attempt(own, same, values, _DISTINCT_BUDGET, strict=False)
        found = single.assign(0)
        single.forget()
        if not found:
            raise UnsatisfiableError(same[0], alone=True)
    raise UnsatisfiableError(attempt.blamed or constraints[0], alone=len(texts) == 1)


def _components(domains: Iterable[str], groups: list[list[str]]) -> list[list[str]]:
    """Split the names into sets that no relation joins; those with relations come first."""
    leader = {name: name for name in domains}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for group in groups:
        for name in group[1:]:
            leader[find(name)] = find(group[0])
    members: dict[str, list[str]] = {}
    for name in leader:
        members.setdefault(find(name), []).append(name)
    related = {name for group in groups for name in group}
    return sorted(members.values(), key=lambda names: names[0] not in related)


@dataclass
class _Attempt:
    """One depth-first walk over the names of a component."""

    domains: dict[str, Domain]
    constraints: list[Constraint]
    values: Values
    budget: int
    strict: bool
    blamed: Constraint | None = None
    depth: int = -1
    names: tuple[str, ...] = field(init=False)
    ready: dict[str, list[Constraint]] = field(init=False)
    dims: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        assert isinstance(self.values.dims, dict)
        self.dims = self.values.dims
        defined = {name for c in self.constraints for name in _defined_names(c.expression)}
        self.names = tuple(sorted(self.domains, key=defined.__contains__))
        self.ready = {name: [] for name in self.names}
        for constraint in self.constraints:
            last = max(self.names.index(name) for name in constraint.reads if name in self.domains)
            self.ready[self.names[last]].append(constraint)

    def assign(self, index: int) -> bool:
        """Give values to the names from `index` on; leave none behind where that fails."""
        if index == len(self.names):
            return True
        name = self.names[index]
        for candidate in self._candidates(name):
            self.dims[name] = candidate
            if self._fits(name, index) and self.assign(index + 1):
                return True
            if self.budget <= 0:
                break
        self.dims.pop(name, None)
        return False

    def forget(self) -> None:
        for name in self.names:
            self.dims.pop(name, None)

    def _fits(self, name: str, index: int) -> bool:
        for constraint in self.ready[name]:
            self.budget -= 1
            if not _holds(constraint, self.values):
                if index >= self.depth:
                    self.depth, self.blamed = index, constraint
                return False
        return True

    def _candidates(self, name: str) -> Iterable[Any]:
        domain = self.domains[name]
        found: Iterable[Any] = domain.candidates
        if domain.open and self.ready[name]:
            self.dims.pop(name, None)
            found = dict.fromkeys(self._seeded(name, domain))
            found = [n for n in found if domain.low is None or n >= domain.low]
        if not domain.distinct:
            return found
        used = {self.dims.get(other) for other in self.dims if other != name}
        fresh = [candidate for candidate in found if candidate not in used]
        return fresh if self.strict else [*fresh, *(c for c in found if c in used)]

    def _seeded(self, name: str, domain: Domain) -> list[int]:
        """Return the candidates of a name whose relations say what it is or might be."""
        first: list[int] = []
        last: list[int] = []
        for constraint in self.ready[name]:
            for part in conjuncts(constraint.expression):
                match part:
                    case Compare(left, (("==", right),)):
                        roots = list(self._roots(left, right, name))
                        if roots:
                            return [root for root in roots if root is not None]
                for node in walk(part):
                    last += self._around(node, name) if isinstance(node, Compare) else ()
                first += self._multiples(part, name)
        return [*first, *domain.candidates, *last]

    def _around(self, node: Compare, name: str) -> list[int]:
        """Return the numbers at which a comparison changes its answer."""
        operands = (node.first, *(right for _, right in node.rest))
        found: list[int] = []
        for left, right in itertools.pairwise(operands):
            for root in self._roots(left, right, name, rounded=True):
                found += [] if root is None else [root, root - 1, root + 1]
        return found

    def _roots(
        self, left: Expression, right: Expression, name: str, *, rounded: bool = False
    ) -> Iterator[int | None]:
        """Yield the solution of `left == right` where it is linear in a name, None for none."""
        parts = linear_in(Binary("-", left, right), name)
        if parts is None or name not in (*names_in(left), *names_in(right)):
            return
        factor, rest = (_number(part, self.values) for part in parts)
        if factor and rest is not None:
            yield -rest // factor if rounded or rest % factor == 0 else None

    def _multiples(self, part: Expression, name: str) -> list[int]:
        """Return multiples of what a name has to be divisible by."""
        found: list[int] = []
        for node in walk(part):
            match node:
                case Binary("%", left, right) if name in names_in(left):
                    block = _number(right, self.values)
                    found += [] if block is None else [block * k for k in (1, 2, 3, 4)]
        remainders = [n.value for n in walk(part) if isinstance(n, Constant)] if found else []
        offsets = [n for n in remainders if type(n) is int and n != 0]
        return [*found, *(base + offset for offset in offsets for base in found)]


def _defined_names(tree: Expression) -> Iterator[str]:
    """Yield the names that an equation gives as an expression over others, to be computed last."""
    for part in conjuncts(tree):
        match part:
            case Compare(Name(name), (("==", other),)) | Compare(other, (("==", Name(name)),)):
                if name not in names_in(other):
                    yield name


def _number(node: Expression, values: Values) -> int | None:
    try:
        value = evaluate(node, values)
    except (Unbound, TypeError, ZeroDivisionError):
        return None
    return value if type(value) is int else None


def _holds(constraint: Constraint, values: Values) -> bool:
    try:
        return bool(evaluate(constraint.expression, values))
    except (Unbound, TypeError, ZeroDivisionError):
        return False
