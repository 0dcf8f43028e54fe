"""One drawn call in the making: alternatives and dtypes are chosen, then dims, then tensors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tensorpact.contracts.language.binding import dim_names, named_axes
from tensorpact.contracts.language.contract import Contract
from tensorpact.contracts.language.dims import Computed, Named, Variadic
from tensorpact.contracts.language.drawing import (
    Covered,
    DrawnTensor,
    Splice,
    choose_alternative,
    draw_sizes,
    drawable_dtypes,
)
from tensorpact.contracts.language.example_forms import (
    Form,
    NoExampleError,
    scalar_domain,
    size_domain,
)
from tensorpact.contracts.language.expression import (
    Attribute,
    Compare,
    Constant,
    Expression,
    Logic,
    Method,
    Name,
    Unary,
    conjuncts,
    substituted,
    walk,
)
from tensorpact.contracts.language.facets import IndexInto, InRange, SameDtype
from tensorpact.contracts.language.filling import bound
from tensorpact.contracts.language.parameters import Slot
from tensorpact.contracts.language.rows import Predicate
from tensorpact.contracts.language.search import Constraint, Domain, search

_PREFERENCE = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64)


class DrawnCall:
    """The forms of the parameters, and what is chosen for them so far."""

    def __init__(
        self, contract: Contract[..., Any], forms: Mapping[str, Form], device: torch.device
    ) -> None:
        self.contract = contract
        self.forms = forms
        self.device = device
        self.dims: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {
            name: form.value for name, form in forms.items() if form.kind == "value"
        }
        self.tensors: dict[str, list[DrawnTensor]] = {}
        self.domains: dict[str, Domain] = {}
        self.constraints: list[Constraint] = []
        self.lets = _resolved(contract.let)

    # Choosing

    def choose(self, generator: random.Random, sizes: Mapping[str, int]) -> None:
        """Choose alternatives, dtypes and dims; `sizes` are given.

        Raises:
            UnsatisfiableError: no dims satisfy the relations.
        """
        self._choose_alternatives(generator)
        self._draw_sizes(generator)
        self._open_domains(generator)
        self._open_dtypes(generator)
        for name, size in sizes.items():
            if name in self.lets:
                equal = Compare(self.lets[name], (("==", Constant(size)),))
                self._require(equal, f"{name} == {size}")
            elif name in self.domains:
                del self.domains[name]
                self.dims[name] = size
        self._require_sizes(sizes)
        self._require_relations()
        self._require_value_facets()
        read = {name for constraint in self.constraints for name in constraint.reads}
        for tensor in self.all_tensors():
            if tensor.dtype_key in self.domains and tensor.dtype_key not in read:
                self.dims[tensor.dtype_key] = self.domains.pop(tensor.dtype_key).candidates[0]
        search(self.domains, self.constraints, self.dims, self.arguments)

    def _present_slots(self) -> Iterator[Slot]:
        for parameter in self.contract.parameters:
            form = self.forms.get(parameter.name)
            if form is not None and form.kind == "tensors":
                yield from parameter.slots

    def all_tensors(self) -> Iterator[DrawnTensor]:
        """Yield every tensor of the call."""
        for tensors in self.tensors.values():
            yield from tensors

    def _choose_alternatives(self, generator: random.Random) -> None:
        bindings = {binding.name: binding for binding in self.contract.bindings}
        for slot in self._present_slots():
            drawn = self.tensors[slot.name] = []
            for index in range(generator.randint(1, 3) if slot.repeated else 1):
                name = f"{slot.name}[{index}]" if slot.repeated else slot.name
                array, dtypes, differing = choose_alternative(slot, generator, bindings)
                drawn.append(DrawnTensor(slot, name, array, dtypes, self.device, self.dims))
                for left, right in differing:
                    apart = substituted(Compare(left, (("!=", right),)), self.lets)
                    self._require(apart, f"the alternatives of `{name}` differ")
            if not (slot.repeated or slot.path):
                self.arguments[slot.name] = drawn[0]

    def _draw_sizes(self, generator: random.Random) -> None:
        # Where None is passed for a number or a tuple of sizes, the axes of that name are free.
        free: dict[str, Expression] = {}
        for parameter in self.contract.parameters:
            if parameter.name in self.arguments and self.arguments[parameter.name] is None:
                sizes = Constant(None) if parameter.is_sizes else Name(f"{parameter.name} of axes")
                free[parameter.name] = sizes
        lets = {name: substituted(tree, free) for name, tree in self.lets.items()}
        meanings = {**lets, **free}
        full = {*meanings, *(name for name, form in self.forms.items() if form.kind == "scalar")}
        for tensor in self.all_tensors():
            for axis in tensor.array.axes:
                if isinstance(axis, (Named, Variadic)) and axis.name and not axis.broadcast:
                    full.add(axis.name)
        for tensor in self.all_tensors():
            tensor.sizes = tuple(draw_sizes(tensor, generator, meanings, full))

    def _open_domains(self, generator: random.Random) -> None:
        named = named_axes((*self.contract.slots, *self.contract.returned.slots))
        shape_names = {name for tensor in self.all_tensors() for name in tensor.reads} | named
        for parameter in self.contract.parameters:
            form = self.forms.get(parameter.name)
            if form is None or (parameter.name in shape_names and form.scalar == "int"):
                continue
            if form.kind == "scalar":
                self.domains[parameter.name] = scalar_domain(
                    self.contract, parameter, form.scalar, generator
                )
        covered = {
            size.name
            for tensor in self.all_tensors()
            for _, size in tensor.sizes
            if isinstance(size, Covered)
        }
        sized = {name for name, form in self.forms.items() if form.kind == "sizes"}
        for name, form in self.forms.items():
            if form.kind == "sizes" or (form.kind == "scalar" and name in shape_names):
                self._open_size(name, generator, len(shape_names), covered, sized)
        for tensor in self.all_tensors():
            for name in tensor.reads:
                self._open_size(name, generator, len(shape_names), covered, sized)

    def _open_size(
        self, name: str, generator: random.Random, count: int, covered: set[str], sized: set[str]
    ) -> None:
        if name in self.domains or name in self.arguments:
            return
        if name in covered or name in sized:
            lengths = [generator.randint(0 if name in covered else 1, 2) for _ in range(8)]
            tuples = [tuple(generator.randint(1, 4) for _ in range(n)) for n in lengths]
            self.domains[name] = Domain(tuple(dict.fromkeys(tuples)))
        else:
            self.domains[name] = size_domain(self.contract, generator, count)

    def _open_dtypes(self, generator: random.Random) -> None:
        favourites = generator.sample(_PREFERENCE, len(_PREFERENCE))
        for tensor in self.all_tensors():
            tensor.dtype_key = f"{tensor.name}.dtype"
        joined = True
        while joined:
            joined = False
            for tensor in self.all_tensors():
                for other in self._same_dtype(tensor):
                    key = min(tensor.dtype_key, other.dtype_key)
                    joined = joined or tensor.dtype_key != other.dtype_key
                    tensor.dtype_key = other.dtype_key = key
        groups: dict[str, list[DrawnTensor]] = {}
        for tensor in self.all_tensors():
            groups.setdefault(tensor.dtype_key, []).append(tensor)
        for key, tensors in groups.items():
            options = _common_dtypes(tensors)
            usual = [dtype for dtype in favourites if dtype in options]
            if usual and generator.random() < 0.75:
                first = usual[0]
            else:
                first = generator.choice(options)
            self.domains[key] = Domain(tuple(dict.fromkeys((first, *usual, *options))))

    def _same_dtype(self, tensor: DrawnTensor) -> Iterator[DrawnTensor]:
        for facet in tensor.slot.facets:
            if isinstance(facet, SameDtype):
                others = self.tensors.get(facet.parameter, [])
                yield from others if others and not others[0].slot.repeated else ()

    # Relations

    def _require_sizes(self, given: Mapping[str, int]) -> None:
        """No axis is empty; one whose dims are all given may be."""
        for tensor in self.all_tensors():
            for axis, size in tensor.sizes:
                if isinstance(axis, Computed) and not isinstance(size, (Covered, Splice, Constant)):
                    low = 0 if set(dim_names(size)) <= set(given) else 1
                    text = f"{axis.text} >= {low}"
                    self._require(Compare(size, ((">=", Constant(low)),)), text)

    def _require_relations(self) -> None:
        for condition in self.contract.where:
            if isinstance(condition, Predicate):
                continue
            for part in conjuncts(condition.expression):
                tree = substituted(part, self.lets)
                if condition.when is not None:
                    when = substituted(condition.when, self.lets)
                    tree = Logic("or", (Unary("not", when), tree))
                self._require(tree, condition.text)
        early = self.contract.early_return
        if early is not None:
            tree = Unary("not", substituted(early, self.lets))
            self._require(tree, "no early return")

    def _require_value_facets(self) -> None:
        for tensor in self.all_tensors():
            for facet in tensor.slot.facets:
                match facet:
                    case InRange(low, high) if low is not None and high is not None:
                        trees = [bound(limit) for limit in (low, high)]
                        first, last = (
                            Constant(t)
                            if isinstance(t, (int, float))
                            else substituted(t, self.lets)
                            for t in trees
                            if t is not None
                        )
                        text = f"{low} < {high} of `{tensor.name}`"
                        self._require(Compare(first, (("<", last),)), text)
                    case IndexInto(dim, None, True) if not tensor.slot.repeated:
                        # As many different indices as there are elements.
                        size = self.lets.get(dim, Name(dim))
                        count = Method(Name(tensor.name), "numel", ())
                        text = f"{tensor.name}.numel() <= {dim}"
                        self._require(Compare(count, (("<=", size),)), text)

    def _require(self, tree: Expression, text: str) -> None:
        reads = self.reads(tree)
        if reads is not None:
            self.constraints.append(Constraint(tree, text, tuple(dict.fromkeys(reads))))

    def reads(self, tree: Expression) -> list[str] | None:
        """Return the names a relation waits for, or None where it does not apply to this call."""
        found: list[str] = []
        exempt: set[int] = set()
        for node in walk(tree):
            if isinstance(node, (Attribute, Method)) and isinstance(node.owner, Name):
                exempt.add(id(node.owner))
                owner = self.arguments.get(node.owner.id, self)
                if owner is None:
                    return None
                if owner is self:
                    raise NoExampleError(
                        f"an instance is needed, since `{node.owner.id}.{node.name}` is read."
                    )
                if isinstance(owner, DrawnTensor):
                    found += [*owner.reads, owner.dtype_key]
            elif isinstance(node, Compare) and asks_for_none(node):
                exempt.add(id(node.first))
            elif isinstance(node, Name) and id(node) not in exempt:
                if self.arguments.get(node.id, self) is None:
                    return None
                if node.id in self.domains or node.id in self.dims:
                    found.append(node.id)
                elif node.id not in self.arguments:
                    return None
        return found


def relation_trees(contract: Contract[..., Any]) -> Iterator[Expression]:
    """Yield the expressions of `where`, their `when`, and the early return."""
    for condition in contract.where:
        if condition.when is not None:
            yield condition.when
        if not isinstance(condition, Predicate):
            yield condition.expression
    if contract.early_return is not None:
        yield contract.early_return


def asks_for_none(node: Compare) -> bool:
    """Tell whether a comparison only asks if something is None."""
    return all(operator.startswith("is") for operator, _ in node.rest)


def _resolved(let: Mapping[str, Expression]) -> dict[str, Expression]:
    """Put `let` definitions into one another until they read dims and parameters only."""
    found = dict(let)
    for _ in let:
        found = {name: substituted(tree, found) for name, tree in found.items()}
    return found


def _common_dtypes(tensors: list[DrawnTensor]) -> tuple[torch.dtype, ...]:
    declared: frozenset[torch.dtype] | None = None
    for tensor in tensors:
        if tensor.dtypes is not None:
            declared = tensor.dtypes if declared is None else declared & tensor.dtypes
    found = drawable_dtypes(declared)
    if not found:
        names = " and ".join(f"`{tensor.name}`" for tensor in tensors)
        raise NoExampleError(f"no dtype of {names} can be made on the CPU.")
    return found
