"""Tensor contracts for GPU ops: declared once, enforced at every call, explained when they break.

>>> import torch
>>> import tensorpact as tp
>>> from jaxtyping import Float
>>> @tp.op(where=["width % 8 == 0"])
... def norms(x: Float[torch.Tensor, "rows width"], scale: float) -> Float[torch.Tensor, "rows"]:
...     return x.norm(dim=1) * scale
>>> norms(torch.ones(2, 16), 3.0)
tensor([12., 12.])
"""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from tensorpact.backends import (
    BackendError,
    BackendRegistrationError,
    BackendUnavailableError,
    DispatchReport,
    Requirements,
    implements,
    use_backend,
)
from tensorpact.contracts import (
    AnyDevice,
    Contiguous,
    Contract,
    ContractDefinitionError,
    ContractError,
    ContractTypeError,
    Facet,
    Finite,
    IndexInto,
    InRange,
    Is,
    LastDimContiguous,
    Mutated,
    NoAlias,
    SameDevice,
    SameDtype,
    Strides,
    Violation,
    contract,
    mode,
    predicate,
    raises,
    relation,
)
from tensorpact.ops.entry import Op, op

if TYPE_CHECKING:
    from tensorpact import ops as ops

__all__ = [
    "AnyDevice",
    "BackendError",
    "BackendRegistrationError",
    "BackendUnavailableError",
    "Contiguous",
    "Contract",
    "ContractDefinitionError",
    "ContractError",
    "ContractTypeError",
    "DispatchReport",
    "Facet",
    "Finite",
    "InRange",
    "IndexInto",
    "Is",
    "LastDimContiguous",
    "Mutated",
    "NoAlias",
    "Op",
    "Requirements",
    "SameDevice",
    "SameDtype",
    "Strides",
    "Violation",
    "contract",
    "implements",
    "mode",
    "op",
    "predicate",
    "raises",
    "relation",
    "use_backend",
]


def __getattr__(name: str) -> object:
    """Read the installed version when it is asked for."""
    if name == "__version__":
        return _version("tensorpact")
    raise AttributeError(f"module 'tensorpact' has no attribute {name!r}")
