"""What a mistake is, and the views of a tensor that mistakes are made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tensorpact import ops
from tensorpact.contracts.language.rows import ErrorRow
from tensorpact.demo.cases import Arguments

Change = Callable[[Arguments], Arguments]
"""From a valid call to the arguments that differ in another one. It changes no tensor."""


def unchanged(call: Arguments) -> Arguments:
    """Change nothing: the valid call itself is the nearest legal one."""
    return {}


@dataclass(frozen=True)
class Mistake:
    """One way to break a contract, and the legal call next to it.

    Attributes:
        op: the op's name, such as `FusedKVMaterializer.materialize`.
        slug: the documented error that the mistake raises.
        what: what the caller did, in a few words.
        change: from a valid call to the arguments that break it.
        nearest: from a valid call to the arguments of the last legal call before the mistake.
        nearest_is: what that legal call does, in a few words.
    """

    op: str
    slug: str
    what: str
    change: Change
    nearest: Change = unchanged
    nearest_is: str = "the call without the mistake"

    def broken(self, call: Arguments) -> Arguments:
        """Return the arguments of the broken call."""
        return {**call, **self.change(call)}

    def legal(self, call: Arguments) -> Arguments:
        """Return the arguments of the nearest legal call."""
        return {**call, **self.nearest(call)}

    @property
    def row(self) -> ErrorRow:
        """The row of the contract that documents the error.

        Raises:
            LookupError: the contract has no such row.
        """
        rows: tuple[ErrorRow, ...] = op_named(self.op).contract.errors
        for row in rows:
            if row.slug == self.slug:
                return row
        raise LookupError(f"the contract of {self.op} has no error {self.slug!r}.")


def op_named(name: str) -> Any:
    """Return an op of this project: a function, or a method as `Class.method`."""
    found: Any = ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def every_other(tensor: Tensor) -> Tensor:
    """Return the same values with a stride of 2 in the last axis."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


def row_padded(tensor: Tensor) -> Tensor:
    """Return the same values with a gap after each row: the last axis stays dense."""
    return torch.cat([tensor, tensor], dim=-1)[..., : tensor.shape[-1]]


def page(tensor: Tensor) -> Tensor:
    """Return the same values as one page of a larger pool: gaps along the first axis."""
    return torch.stack([tensor, tensor], dim=1)[:, 0]


def twice(tensor: Tensor, dim: int = -1) -> Tensor:
    """Return the tensor and once more the same, side by side."""
    return torch.cat([tensor, tensor], dim=dim)


def longer(tensor: Tensor, dim: int) -> Tensor:
    """Return the tensor with its first entry along an axis repeated at the end."""
    return torch.cat([tensor, tensor.narrow(dim, 0, 1)], dim=dim)
