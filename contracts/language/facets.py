"""What jaxtyping cannot say of a tensor, as PEP 593 metadata: `Annotated[..., Contiguous()]`.

Each facet is plain data. Its `tier` says when it is looked at: `metadata` facets at every call;
`value` facets are declarations so far, which drawn examples keep and no call is held to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

Tier: TypeAlias = Literal["metadata", "pointer", "value", "declaration"]


@dataclass(frozen=True)
class Facet:
    """Base of everything that may stand in `Annotated[...]` beside a tensor annotation."""

    kind: ClassVar[str] = ""
    tier: ClassVar[Tier] = "metadata"

    def describe(self) -> str:
        """Say in a few words what the facet promises."""
        raise TypeError(f"{type(self).__name__} does not describe itself")


@dataclass(frozen=True)
class Contiguous(Facet):
    """Dense row-major memory, as `tensor.is_contiguous()` tells."""

    kind = "layout"

    def describe(self) -> str:
        return "contiguous"


@dataclass(frozen=True)
class LastDimContiguous(Facet):
    """Stride 1 on the last axis; the others are free. An axis of size 0 or 1 has no stride."""

    kind = "layout"

    def describe(self) -> str:
        return "last dim contiguous"


@dataclass(frozen=True)
class Strides(Facet):
    """One stride per axis, counted in elements: expressions over the dims, `_` for any.

    `Strides("_ head_dim 1")` allows padding between rows only. The stride of an axis of size 0
    or 1 is not looked at.
    """

    pattern: str
    kind = "layout"

    def describe(self) -> str:
        return f"strides [{', '.join(self.pattern.split())}]"


@dataclass(frozen=True)
class SameDtype(Facet):
    """The dtype of another tensor parameter."""

    parameter: str
    kind = "dtype"

    def describe(self) -> str:
        return f"dtype of `{self.parameter}`"


@dataclass(frozen=True)
class AnyDevice(Facet):
    """May lie on another device than the rest (the default is one device for all tensors)."""

    kind = "device"
    tier = "declaration"

    def describe(self) -> str:
        return "any device"


@dataclass(frozen=True)
class SameDevice(Facet):
    """On the device of another tensor parameter, or of the first one (the default)."""

    parameter: str | None = None
    kind = "device"

    def describe(self) -> str:
        return f"device of `{self.parameter}`" if self.parameter else "the common device"


@dataclass(frozen=True)
class Mutated(Facet):
    """The op writes into this tensor; it is never copied on the way.

    Memory in which one element is visited twice (an expanded tensor) is refused.
    """

    kind = "mutated"

    def describe(self) -> str:
        return "written in place"


@dataclass(frozen=True, init=False)
class NoAlias(Facet):
    """Not the same tensor object as any of `parameters`; debug mode also compares memory."""

    parameters: tuple[str, ...]
    kind = "alias"

    def __init__(self, *parameters: str) -> None:
        object.__setattr__(self, "parameters", parameters)

    def describe(self) -> str:
        return "another tensor than " + ", ".join(f"`{name}`" for name in self.parameters)


@dataclass(frozen=True)
class Is(Facet):
    """For returned tensors: the very object that was passed as `parameter`, where one was."""

    parameter: str
    kind = "identity"

    def describe(self) -> str:
        return f"the object passed as `{self.parameter}`"


@dataclass(frozen=True)
class InRange(Facet):
    """Every value lies in `low <= value < high`; bounds are numbers or expressions over dims."""

    low: str | int | float | None = None
    high: str | int | float | None = None
    kind = "value"
    tier = "value"

    def describe(self) -> str:
        low = "" if self.low is None else f"{self.low} <= "
        high = "" if self.high is None else f" < {self.high}"
        return f"{low}value{high}"


@dataclass(frozen=True)
class IndexInto(Facet):
    """Every value is an index `0 <= value < dim`, or `padding`; `unique` ones occur once."""

    dim: str
    padding: int | None = None
    unique: bool = False
    kind = "value"
    tier = "value"

    def describe(self) -> str:
        padding = "" if self.padding is None else f" or {self.padding}"
        unique = ", each once" if self.unique else ""
        return f"index below {self.dim}{padding}{unique}"


@dataclass(frozen=True)
class Finite(Facet):
    """No value is infinite or not a number."""

    kind = "value"
    tier = "value"

    def describe(self) -> str:
        return "finite"


ROW_FACETS = (
    "type",
    "rank",
    "dtype",
    "dims",
    "shape",
    "extent",
    "layout",
    "device",
    "alias",
    "mutated",
    "identity",
    "value",
)
"""Facet words that an error row may name after a parameter; `shape` is rank, dims and extent."""
