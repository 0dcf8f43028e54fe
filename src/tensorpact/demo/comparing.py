"""Comparing tensors: with a tolerance, and bit for bit."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tensorpact.demo.cases import LayerStore
from tensorpact.demo.results import Check

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Closeness:
    """How far several tensors are from what they should be, in units of the tolerance.

    Args:
        name: what is compared.
        atol, rtol: the tolerance is `atol + rtol * |expected|`.
    """

    def __init__(self, name: str, atol: float, rtol: float) -> None:
        self.name = name
        self.atol = atol
        self.rtol = rtol
        self.largest = 0.0
        self.count = 0

    def add(self, actual: Tensor, expected: Tensor) -> None:
        """Compare one tensor with its float64 reference of the same shape."""
        if actual.numel() == 0:
            return
        wanted = expected.detach().cpu().double()
        distance = (actual.detach().cpu().double() - wanted).abs()
        ratio = float((distance / (self.atol + self.rtol * wanted.abs())).max())
        self.largest = max(self.largest, math.inf if math.isnan(ratio) else ratio)
        self.count += actual.numel()

    def check(self) -> Check:
        """Return the verdict; nothing compared is no success."""
        ok = self.count > 0 and self.largest <= 1.0
        detail = (
            f"{self.largest:.2g} of atol {self.atol:g}, rtol {self.rtol:g}; {self.count:,} values"
        )
        return Check(self.name, ok, detail)


class Sameness:
    """Whether several pairs of tensors are equal bit for bit."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ok = True
        self.count = 0

    def add(self, actual: Tensor, expected: Tensor) -> None:
        """Compare one pair."""
        self.ok = self.ok and bool(torch.equal(bits(actual), bits(expected)))
        self.count += actual.numel()

    def check(self) -> Check:
        """Return the verdict; nothing compared is no success."""
        return Check(self.name, self.ok and self.count > 0, f"{self.count:,} values, bit for bit")


def bits(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor as whole numbers, in memory of their own."""
    dense = tensor.detach().clone(memory_format=torch.contiguous_format)
    return dense.view(_WHOLE[dense.element_size()])


def snapshot(arguments: dict[str, Any]) -> dict[str, Tensor]:
    """Copy the bits of everything in a call that could be written into."""
    found: dict[str, Tensor] = {}
    for name, value in arguments.items():
        if isinstance(value, Tensor) and not value.is_meta:
            found[name] = bits(value)
        elif isinstance(value, LayerStore):
            found[name] = torch.tensor(value.layers)
    return found


def same_snapshot(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Tell whether nothing changed between two snapshots."""
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.items()
    )
