"""What one drawn tensor will look like: an alternative, a dtype and the sizes over the dims."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from tensorpact.contracts.language.binding import Binding, FromParameter, dim_names, slots_of
from tensorpact.contracts.language.dims import (
    Anonymous,
    Axis,
    Computed,
    Fixed,
    Named,
    Spliced,
    Variadic,
)
from tensorpact.contracts.language.dtypes import all_dtypes
from tensorpact.contracts.language.evaluation import Unbound, Values, evaluate
from tensorpact.contracts.language.expression import (
    Constant,
    Expression,
    Name,
    substituted,
)
from tensorpact.contracts.language.parameters import ArraySpec, Slot

_PREFERRED = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Covered:
    """The sizes of a `*name` pattern; a broadcasting one leaves out or flattens some."""

    name: str
    broadcast: bool
    left_out: int = 0
    flattened: int = 0

    def sizes(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the pattern covers where the dims of this name have these sizes."""
        if not self.broadcast:
            return whole
        kept = whole[self.left_out % (len(whole) + 1) :]
        return tuple(
            1 if self.flattened >> position & 1 else size for position, size in enumerate(kept)
        )


@dataclass(frozen=True)
class Splice:
    """As many sizes as a tuple holds."""

    expression: Expression


Size: TypeAlias = Expression | Covered | Splice


@dataclass
class DrawnTensor:
    """One tensor of a drawn call before its values are there; relations read it by attributes."""

    slot: Slot
    name: str
    array: ArraySpec
    dtypes: frozenset[torch.dtype] | None
    device: torch.device
    dims: Mapping[str, Any]
    sizes: tuple[tuple[Axis, Size], ...] = ()
    dtype_key: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """The names its shape depends on."""
        found: dict[str, None] = {}
        for _, size in self.sizes:
            if isinstance(size, Covered):
                found[size.name] = None
            else:
                node = size.expression if isinstance(size, Splice) else size
                found.update(dict.fromkeys(dim_names(node)))
        return tuple(found)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, once the dims have values."""
        found: list[int] = []
        values = Values(self.dims)
        for _, size in self.sizes:
            if isinstance(size, Covered):
                found += size.sizes(values.read(size.name))
            elif isinstance(size, Splice):
                found += evaluate(size.expression, values)
            else:
                found.append(evaluate(size, values))
        return tuple(found)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype, once it is drawn."""
        if self.dtype_key not in self.dims:
            raise Unbound(self.dtype_key)
        dtype: torch.dtype = self.dims[self.dtype_key]
        return dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return functools.reduce(lambda count, size: count * size, self.shape, 1)

    def size(self, axis: int | None = None) -> Any:
        """Return the shape, or the size of one axis."""
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis: int | None = None) -> Any:
        """Return the strides of dense memory, or one of them."""
        strides = dense_strides(self.shape)
        return strides if axis is None else strides[axis]

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """Tell that a tensor whose layout a relation reads is drawn dense."""
        return True


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of row-major memory.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    found: list[int] = []
    step = 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


@functools.cache
def creatable_dtypes() -> Mapping[str, torch.dtype]:
    """Return the dtypes whose tensors can be made and filled on the CPU, by name."""
    return {name: dtype for name, dtype in sorted(all_dtypes().items()) if _is_creatable(dtype)}


def _is_creatable(dtype: torch.dtype) -> bool:
    if dtype.is_complex:
        return dtype in (torch.complex64, torch.complex128)
    try:
        torch.ones(1).to(dtype).to(torch.float32)
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    return True


@functools.cache
def drawable_dtypes(declared: frozenset[torch.dtype] | None) -> tuple[torch.dtype, ...]:
    """Return those of the declared dtypes that can be drawn: the usual ones, or else any."""
    creatable = creatable_dtypes().values()
    accepted = [dtype for dtype in creatable if declared is None or dtype in declared]
    usual = [dtype for dtype in _PREFERRED if dtype in accepted]
    if declared is None:
        return (torch.float32, torch.bfloat16, torch.float16)
    return tuple(usual or accepted)


def draw_sizes(
    tensor: DrawnTensor,
    generator: random.Random,
    meanings: Mapping[str, Expression],
    full: set[str],
) -> Iterator[tuple[Axis, Size]]:
    """Yield, for each size of a tensor, the axis it belongs to and what it is made of.

    `meanings` are expressions for names that are not drawn themselves. A broadcasting axis is 1
    half of the time, but only if its name is in `full`: something else has the whole size then.
    """
    own = {
        axis.name: Name(f"{axis.name} of {tensor.name}")
        for axis in tensor.array.axes
        if isinstance(axis, Named) and axis.per_item
    }
    meanings = {**meanings, **own}
    for axis in tensor.array.axes:
        match axis:
            case Fixed(size, broadcast):
                yield axis, Constant(1 if broadcast and generator.random() < 0.5 else size)
            case Anonymous():
                yield axis, Constant(generator.randint(1, 4))
            case Variadic(None):
                for _ in range(generator.randint(0, 2)):
                    yield axis, Constant(generator.randint(1, 4))
            case Named(dim, broadcast):
                if broadcast and dim in full and generator.random() < 0.5:
                    yield axis, Constant(1)
                else:
                    full.add(dim)
                    yield axis, meanings.get(dim, Name(dim))
            case Variadic(str() as dim, broadcast):
                whole = not broadcast or dim not in full
                full.add(dim)
                left_out, flattened = (0, 0) if whole else generator.choices(range(8), k=2)
                yield axis, Covered(dim, broadcast, left_out, flattened)
            case Computed(expression, broadcast):
                one = broadcast and generator.random() < 0.5
                yield axis, Constant(1) if one else substituted(expression, meanings)
            case Spliced(Name(parameter)) if meanings.get(parameter) == Constant(None):
                for _ in range(generator.randint(0, 2)):
                    yield axis, Constant(generator.randint(1, 4))
            case Spliced(expression):
                yield axis, Splice(substituted(expression, meanings))


def choose_alternative(
    slot: Slot, generator: random.Random, bindings: Mapping[str, Binding]
) -> tuple[ArraySpec, frozenset[torch.dtype] | None, list[tuple[Expression, Expression]]]:
    """Choose a member of a union that cannot be taken for an earlier one.

    Returns the member, its dtypes without those that would make it an earlier member, and pairs
    of sizes that have to differ.
    """
    options = [(slot.arrays[0], slot.arrays[0].dtypes, list[tuple[Expression, Expression]]())]
    for index, array in enumerate(slot.arrays[1:], start=1):
        dtypes, differing, apart = array.dtypes, list[tuple[Expression, Expression]](), True
        for earlier in slot.arrays[:index]:
            if not _ranks_meet(earlier, array):
                continue
            pair = _unequal_sizes(slot, earlier, array, bindings)
            others = _without(dtypes, earlier.dtypes)
            if pair is not None:
                differing.append(pair)
            elif others:
                dtypes = others
            else:
                apart = False
        if apart:
            options.append((array, dtypes, differing))
    return generator.choice(options) if len(options) > 1 else options[0]


def _ranks_meet(first: ArraySpec, second: ArraySpec) -> bool:
    if first.flexible is None and second.flexible is None:
        return len(first.axes) == len(second.axes)
    if first.flexible is None:
        return first.accepts_rank(len(first.axes)) and len(first.axes) >= second.minimum_rank
    return second.flexible is not None or len(second.axes) >= first.minimum_rank


def _without(
    dtypes: frozenset[torch.dtype] | None, others: frozenset[torch.dtype] | None
) -> frozenset[torch.dtype] | None:
    if others is None:
        return None
    everything = frozenset(creatable_dtypes().values()) if dtypes is None else dtypes
    return (everything - others) or None


def _unequal_sizes(
    slot: Slot, first: ArraySpec, second: ArraySpec, bindings: Mapping[str, Binding]
) -> tuple[Expression, Expression] | None:
    """Return two sizes that tell alternatives of one rank apart, if the dims are known before."""
    if first.flexible is not None or second.flexible is not None:
        return None
    for one, other in zip(first.axes, second.axes, strict=True):
        left, right = _known_size(slot, one, bindings), _known_size(slot, other, bindings)
        if left is not None and right is not None and left != right:
            return left, right
    return None


def _known_size(slot: Slot, axis: Axis, bindings: Mapping[str, Binding]) -> Expression | None:
    match axis:
        case Fixed(size, False):
            return Constant(size)
        case Named(name, False, False) if _is_known(slot, name, bindings):
            return Name(name)
        case Computed(expression, False):
            names = dim_names(expression)
            return expression if all(_is_known(slot, n, bindings) for n in names) else None
        case _:
            return None


def _is_known(slot: Slot, name: str, bindings: Mapping[str, Binding]) -> bool:
    """Tell whether a dim always has its value from elsewhere."""
    binding = bindings.get(name)
    if binding is None or not binding.always:
        return False
    first = binding.sources[0]
    return isinstance(first, FromParameter) or all(s is not slot for s in slots_of(first))
