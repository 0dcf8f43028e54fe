"""A contract with any number of tensors, for the cost of one more of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from approaches import OURS, Approach

from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.language.contract import contract

COUNTS = (1, 2, 4, 8, 12, 16)

_SOURCE = """
from typing import Annotated
from jaxtyping import Float
from torch import Tensor
from tensorpact.contracts.language.facets import LastDimContiguous

def synthetic({parameters}) -> None: ...
"""


def synthetic(count: int) -> Approach:
    """Return a guarded function of `count` matrices of one shape, dtype unspecified, one device."""
    hint = 'Annotated[Float[Tensor, "rows columns"], LastDimContiguous()]'
    names = [f"x{index}" for index in range(count)]
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(_SOURCE.format(parameters=", ".join(f"{name}: {hint}" for name in names)), namespace)
    function: Callable[..., Any] = namespace["synthetic"]
    return Approach(OURS, enforce(contract()(function), function, check_result=False))


def matrices(count: int, device: str) -> dict[str, torch.Tensor]:
    """Return a valid call of `synthetic(count)`."""
    return {f"x{index}": torch.zeros(3, 4, device=device) for index in range(count)}
