"""Values and memory of a drawn tensor: what value facets and layout facets allow."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass

import torch

from tensorpact.contracts.language.drawing import DrawnTensor, dense_strides
from tensorpact.contracts.language.evaluation import Values, evaluate
from tensorpact.contracts.language.expression import Expression
from tensorpact.contracts.language.expression_parser import parse_expression
from tensorpact.contracts.language.facets import (
    Contiguous,
    IndexInto,
    InRange,
    LastDimContiguous,
    Strides,
)
from tensorpact.contracts.language.strides import parse_strides

_SMALL = 8
"""Whole numbers about which nothing is said lie below this."""


@dataclass(frozen=True)
class Bounds:
    """What the values of a tensor may be."""

    low: float | None = None
    high: float | None = None
    padding: int | None = None
    unique: bool = False


def bound(limit: str | int | float | None) -> Expression | int | float | None:
    """Return a bound of `InRange` as a number or a tree."""
    return _parsed(limit) if isinstance(limit, str) else limit


_parsed = functools.cache(parse_expression)


def bounds_of(drawn: DrawnTensor, values: Values) -> Bounds:
    """Join the value facets of a tensor."""
    found = Bounds()
    for facet in drawn.slot.facets:
        low: float | None = None
        high: float | None = None
        match facet:
            case IndexInto(dim, padding, unique):
                low, high = 0, values.read(dim)
                found = Bounds(found.low, found.high, padding, unique)
            case InRange():
                low, high = _number(facet.low, values), _number(facet.high, values)
        lows = [value for value in (found.low, low) if value is not None]
        highs = [value for value in (found.high, high) if value is not None]
        found = Bounds(
            max(lows, default=None), min(highs, default=None), found.padding, found.unique
        )
    return found


def _number(limit: str | int | float | None, values: Values) -> float | None:
    node = bound(limit)
    if node is None or isinstance(node, (int, float)):
        return node
    value: float = evaluate(node, values)
    return value


def make_tensor(
    drawn: DrawnTensor,
    values: Values,
    generator: random.Random,
    torch_generator: torch.Generator,
    *,
    dense: bool,
) -> torch.Tensor:
    """Make a tensor that keeps its facets; not always dense where they allow it."""
    shape = drawn.shape
    strides = dense_strides(shape) if dense else _draw_strides(drawn, shape, values, generator)
    bounds = bounds_of(drawn, values)
    count = math.prod(shape)
    if strides == dense_strides(shape):
        flat = _fill(drawn.dtype, count, bounds, generator, torch_generator)
        tensor = flat.to(drawn.device).view(shape)
    else:
        span = (
            1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if count else 0
        )
        revisited = any(step == 0 and n > 1 for n, step in zip(shape, strides, strict=True))
        flat = _fill(drawn.dtype, span if revisited else count, bounds, generator, torch_generator)
        if revisited:
            tensor = flat.to(drawn.device).as_strided(shape, strides)
        else:
            memory = torch.zeros(span, dtype=drawn.dtype, device=drawn.device)
            tensor = memory.as_strided(shape, strides)
            tensor.copy_(flat.view(shape))
    return _of_class(tensor, drawn.array.array_type)


def _of_class(tensor: torch.Tensor, kind: type[torch.Tensor]) -> torch.Tensor:
    if isinstance(tensor, kind):
        return tensor
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
    return tensor.as_subclass(kind)


def _draw_strides(
    drawn: DrawnTensor, shape: tuple[int, ...], values: Values, generator: random.Random
) -> tuple[int, ...]:
    slot = drawn.slot
    pattern = slot.facet(Strides)
    wanted: list[int | None] = [None] * len(shape)
    if pattern is not None:
        wanted = [
            None if node is None else evaluate(node, values)
            for node in parse_strides(pattern.pattern)
        ]
    if slot.facet(Contiguous) is not None:
        return dense_strides(shape)
    if slot.facet(LastDimContiguous) is not None and shape:
        wanted[-1] = 1
    choice = generator.random()
    if choice < 0.6 and not any(step is not None for step in wanted[:-1]) and wanted[-1:] != [None]:
        return dense_strides(shape)
    if pattern is None and choice < 0.6:
        return dense_strides(shape)
    order = list(reversed(range(len(shape))))
    if pattern is None and wanted[-1:] == [None] and choice > 0.8:
        generator.shuffle(order)
    return _free_strides(shape, wanted, order, generator)


def _free_strides(
    shape: tuple[int, ...], wanted: list[int | None], order: list[int], generator: random.Random
) -> tuple[int, ...]:
    """Give every axis without a wanted stride one that steps over all that is placed already."""
    strides = {axis: step for axis, step in enumerate(wanted) if step is not None}
    padding = generator.choice((0, 1, 3))
    for axis in order:
        if axis not in strides:
            reach = sum((shape[other] - 1) * step for other, step in strides.items())
            strides[axis] = 1 + max(reach, 0) + padding
    return tuple(strides[axis] for axis in range(len(shape)))


def _fill(
    dtype: torch.dtype,
    count: int,
    bounds: Bounds,
    generator: random.Random,
    torch_generator: torch.Generator,
) -> torch.Tensor:
    if bounds.unique or bounds.padding is not None:
        return torch.tensor(_indices(dtype, count, bounds, generator), dtype=dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), generator=torch_generator, dtype=dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return _reals(dtype, count, bounds, torch_generator)
    info = torch.iinfo(dtype)
    low = info.min if bounds.low is None else math.ceil(bounds.low)
    high = info.max if bounds.high is None else math.ceil(bounds.high)
    if bounds.low is None:
        low = min(0, high - 1) if bounds.high is not None else 0
    if bounds.high is None:
        high = max(low, 0) + _SMALL
    low, high = max(low, info.min), min(high, info.max)
    if high <= low:
        high = low + 1
    drawn = torch.randint(low, high, (count,), generator=torch_generator)
    return drawn.to(dtype)


def _reals(
    dtype: torch.dtype, count: int, bounds: Bounds, torch_generator: torch.Generator
) -> torch.Tensor:
    low = -1.0 if bounds.low is None else float(bounds.low)
    high = 1.0 if bounds.high is None else float(bounds.high)
    if low >= high:
        low, high = (low, low + 2) if bounds.high is None else (high - 2, high)
    # Rounding to a short dtype must not reach the bounds.
    margin = (high - low) / 16
    wide = torch.empty(count).uniform_(low + margin, high - margin, generator=torch_generator)
    return wide if dtype is torch.float32 else wide.to(dtype)


def _indices(dtype: torch.dtype, count: int, bounds: Bounds, generator: random.Random) -> list[int]:
    low = math.ceil(bounds.low or 0)
    high = math.ceil(low + _SMALL if bounds.high is None else bounds.high)
    kept = count if high > low else 0
    if bounds.unique:
        kept = min(count, max(high - low, 0))
        found = generator.sample(range(low, high), kept)
    else:
        found = [generator.randrange(low, high) for _ in range(kept)]
    if bounds.padding is None or (bounds.padding < 0 and not dtype.is_signed):
        return found
    found = [bounds.padding if generator.random() < 0.125 else value for value in found]
    found += [bounds.padding] * (count - kept)
    generator.shuffle(found)
    return found
