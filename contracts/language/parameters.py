"""From a Python signature to what each parameter may be: the reading of annotations."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, Union

import torch
from jaxtyping import AbstractArray, AbstractDtype

from tensorpact.contracts.language.definition_error import ContractDefinitionError, near_name_hint
from tensorpact.contracts.language.dims import Axis, Variadic, dims_text, flexible_index, parse_dims
from tensorpact.contracts.language.dtypes import torch_dtypes
from tensorpact.contracts.language.facets import Facet
from tensorpact.contracts.language.hints import is_sizes_hint, refuse_hint, without_none

Scalar: TypeAlias = Literal["int", "float", "bool", "str"]
_SCALARS: Mapping[Any, Scalar] = {int: "int", float: "float", bool: "bool", str: "str"}
_LIST_ORIGINS = (list, collections.abc.Sequence)


@dataclass(frozen=True)
class ArraySpec:
    """One tensor annotation: dtypes (None: all), array type and axes."""

    dtype_name: str
    dtypes: frozenset[torch.dtype] | None
    array_type: type[torch.Tensor]
    axes: tuple[Axis, ...]

    @property
    def flexible(self) -> int | None:
        """Position of the axis pattern of unknown length, if there is one."""
        return flexible_index(self.axes)

    @property
    def minimum_rank(self) -> int:
        """The fewest axes a tensor may have."""
        return len(self.axes) - (self.flexible is not None)

    @property
    def takes_any_shape(self) -> bool:
        """Whether nothing is said about rank and sizes."""
        return self.axes == (Variadic(None),)

    def accepts_rank(self, rank: int) -> bool:
        """Tell whether a tensor of this rank may fit."""
        return rank == len(self.axes) if self.flexible is None else rank >= self.minimum_rank

    def __str__(self) -> str:
        return f"{self.dtype_name}{dims_text(self.axes)}"


@dataclass(frozen=True)
class Slot:
    """A place where tensors arrive: a parameter, an item of a fixed tuple, or an output.

    `arrays` are the alternatives of a union. `repeated` slots hold a list of tensors.
    `path` is the position inside the parameter (empty for the parameter itself).
    """

    name: str
    parameter: str
    arrays: tuple[ArraySpec, ...]
    optional: bool = False
    repeated: type | None = None
    other_types: bool = False
    facets: tuple[Facet, ...] = ()
    path: tuple[int, ...] = ()
    is_output: bool = False

    def facet(self, kind: type[Facet]) -> Any:
        """Return the first facet of this class, or None."""
        return next((facet for facet in self.facets if isinstance(facet, kind)), None)

    @property
    def always_there(self) -> bool:
        """Whether every valid call passes exactly one tensor here, of one known pattern."""
        return not (self.optional or self.other_types or self.repeated) and len(self.arrays) == 1


@dataclass(frozen=True)
class Parameter:
    """One parameter of the op: its Python types and the tensors inside it."""

    name: str
    kind: inspect._ParameterKind
    default: Any
    hint: Any
    scalars: tuple[Scalar, ...] = ()
    optional: bool = False
    is_sizes: bool = False
    is_instance: bool = False
    slots: tuple[Slot, ...] = ()
    other_hints: tuple[Any, ...] = field(default=())

    @property
    def has_default(self) -> bool:
        """Whether the parameter may be left out."""
        return self.default is not inspect.Parameter.empty

    @property
    def binds_dim(self) -> bool:
        """Whether an int passed here is the value of the dim of the same name."""
        alone = self.scalars == ("int",) and not (self.slots or self.other_hints)
        return alone and self.kind is not inspect.Parameter.VAR_KEYWORD


@dataclass(frozen=True)
class Returned:
    """The return annotation: `single`, `tuple`, `none` or `opaque` (not looked at).

    A tuple may hold other values beside tensors; `length` counts all of them.
    """

    shape: Literal["single", "tuple", "none", "opaque"]
    slots: tuple[Slot, ...]
    hint: Any
    length: int = 1


def read_parameters(
    function: Callable[..., Any], hints: Mapping[str, Any], *, is_method: bool
) -> tuple[Parameter, ...]:
    """Return the parameters of a function in order.

    Raises:
        ContractDefinitionError: a parameter has no annotation, or one with a mistake in it.
    """
    signature = inspect.signature(function)
    sizes = frozenset(name for name, hint in hints.items() if is_sizes_hint(without_none(hint)))
    found: list[Parameter] = []
    for position, (name, parameter) in enumerate(signature.parameters.items()):
        if name not in hints:
            if position == 0 and is_method:
                found.append(
                    Parameter(name, parameter.kind, parameter.default, Any, is_instance=True)
                )
                continue
            raise ContractDefinitionError(
                f"parameter `{name}` has no annotation; write `Any` to leave it unchecked."
            )
        try:
            found.append(_read_parameter(name, parameter, hints[name], sizes))
        except ContractDefinitionError as error:
            raise error.at(f"parameter `{name}`") from None
    return tuple(found)


def read_return(hints: Mapping[str, Any], sizes: frozenset[str]) -> Returned:
    """Return what the return annotation promises about tensors."""
    hint = hints.get("return", Any)
    try:
        if hint in (None, type(None)):
            return Returned("none", (), hint)
        if typing.get_origin(hint) is tuple and Ellipsis not in typing.get_args(hint):
            slots = tuple(
                _output_slot(member, f"return[{index}]", (index,), sizes)
                for index, member in enumerate(typing.get_args(hint))
            )
            found = tuple(slot for slot in slots if slot is not None)
            return Returned("tuple" if found else "opaque", found, hint, len(slots))
        slot = _output_slot(hint, "return", (), sizes)
    except ContractDefinitionError as error:
        raise error.at("the return annotation") from None
    return Returned("single", (slot,), hint) if slot else Returned("opaque", (), hint)


def size_parameters(parameters: tuple[Parameter, ...]) -> frozenset[str]:
    """Return the names of the parameters that hold a tuple of sizes."""
    return frozenset(parameter.name for parameter in parameters if parameter.is_sizes)


def _read_parameter(
    name: str, parameter: inspect.Parameter, hint: Any, sizes: frozenset[str]
) -> Parameter:
    if parameter.kind is parameter.VAR_POSITIONAL:
        members = _Members.of(hint, sizes)
        slots: tuple[Slot, ...] = ()
        if members.arrays:
            slots = (Slot(name, name, members.arrays, repeated=tuple, facets=members.facets),)
        return Parameter(name, parameter.kind, parameter.default, hint, slots=slots)
    members = _Members.of(hint, sizes)
    if parameter.kind is parameter.VAR_KEYWORD and members.has_arrays:
        raise ContractDefinitionError("tensors in `**` keywords cannot be declared.")
    return Parameter(
        name,
        parameter.kind,
        parameter.default,
        hint,
        scalars=members.scalars,
        optional=members.optional,
        is_sizes=name in sizes,
        slots=members.slots(name),
        other_hints=members.others,
    )


def _output_slot(hint: Any, name: str, path: tuple[int, ...], sizes: frozenset[str]) -> Slot | None:
    members = _Members.of(hint, sizes)
    if not members.has_arrays or members.tuples:
        return None
    (slot,) = members.slots(name)
    return Slot(
        name,
        "return",
        slot.arrays,
        slot.optional,
        slot.repeated,
        slot.other_types,
        slot.facets,
        path,
        is_output=True,
    )


@dataclass
class _Members:
    """The members of one annotation, sorted by what they are."""

    arrays: tuple[ArraySpec, ...] = ()
    repeated: type | None = None
    tuples: tuple[_Members, ...] = ()
    facets: tuple[Facet, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    others: tuple[Any, ...] = ()
    optional: bool = False
    stray: Facet | None = None

    @property
    def has_arrays(self) -> bool:
        return bool(self.arrays or self.tuples)

    def slots(self, name: str) -> tuple[Slot, ...]:
        mixed = bool(self.scalars or self.others)
        if self.arrays:
            return (
                Slot(
                    name,
                    name,
                    self.arrays,
                    self.optional,
                    self.repeated,
                    mixed,
                    self.facets,
                ),
            )
        return tuple(
            Slot(
                f"{name}[{index}]",
                name,
                item.arrays,
                item.optional or self.optional,
                item.repeated,
                bool(item.scalars or item.others),
                item.facets,
                (index,),
            )
            for index, item in enumerate(self.tuples)
            if item.arrays
        )

    @classmethod
    def of(cls, hint: Any, sizes: frozenset[str]) -> _Members:
        """Sort one annotation into arrays, scalars, None and other types."""
        found = cls()
        found.add(hint, sizes, ())
        if found.stray is not None and not found.has_arrays:
            raise ContractDefinitionError(
                f"the facet `{type(found.stray).__name__}` stands beside no tensor."
            )
        return found

    def add(self, hint: Any, sizes: frozenset[str], facets: tuple[Facet, ...]) -> None:
        origin = typing.get_origin(hint)
        if origin is Annotated:
            inner, *metadata = typing.get_args(hint)
            own = _facets_of(metadata)
            self.stray = self.stray or next(iter(own), None)
            self.add(inner, sizes, (*own, *facets))
        elif origin in (Union, types.UnionType):
            for member in typing.get_args(hint):
                self.add(member, sizes, facets)
        elif hint in (None, type(None)):
            self.optional = True
        elif (array := _array_spec(hint, sizes)) is not None:
            self._add_array(array, None, facets)
        elif origin in _LIST_ORIGINS or (origin is tuple and Ellipsis in typing.get_args(hint)):
            self._add_list(hint, origin, sizes, facets)
        elif origin is tuple and (items := _tuple_items(hint, sizes)):
            if self.arrays or self.tuples:
                raise ContractDefinitionError("a union of tensors and tuples of tensors.")
            self.tuples = items
        elif isinstance(hint, type) and hint in _SCALARS:
            self.scalars = (*self.scalars, _SCALARS[hint])
        else:
            refuse_hint(hint)
            self.others = (*self.others, hint)

    def _add_array(
        self, array: ArraySpec, repeated: type | None, facets: tuple[Facet, ...]
    ) -> None:
        if self.arrays and (self.repeated is not repeated):
            raise ContractDefinitionError("a union of a tensor and a list of tensors.")
        if self.arrays and self.facets != facets:
            raise ContractDefinitionError(
                "the members of a union carry different facets; put `Annotated` around the union."
            )
        self.arrays = (*self.arrays, array)
        self.repeated = repeated
        self.facets = facets

    def _add_list(
        self, hint: Any, origin: Any, sizes: frozenset[str], facets: tuple[Facet, ...]
    ) -> None:
        item = _Members.of(typing.get_args(hint)[0], sizes)
        if not item.arrays:
            self.others = (*self.others, hint)
        elif item.optional or item.scalars or item.others or item.repeated:
            raise ContractDefinitionError("a list of tensors holds tensors only.")
        else:
            for array in item.arrays:
                self._add_array(array, origin, (*item.facets, *facets))


def _array_spec(hint: Any, sizes: frozenset[str]) -> ArraySpec | None:
    if not isinstance(hint, type):
        return None
    if issubclass(hint, torch.Tensor):
        return ArraySpec("Tensor", None, hint, (Variadic(None),))
    if issubclass(hint, AbstractDtype):
        raise ContractDefinitionError(
            f"`{hint.__name__}` stands without a tensor type and dims.",
            hint=f'Write `{hint.__name__}[Tensor, "batch dim"]`.',
        )
    if not issubclass(hint, AbstractArray):
        return None
    array_type = hint.array_type if hint.array_type is not Any else torch.Tensor
    if not issubclass(array_type, torch.Tensor):
        raise ContractDefinitionError(
            f"`{hint.__name__}` is an array of {array_type.__name__}, not of torch."
        )
    name = hint.dtype.__name__
    axes = parse_dims(hint.dim_str, sizes)
    dtypes: Any = hint.dtypes
    accepted = torch_dtypes(tuple(dtypes) if isinstance(dtypes, list) else dtypes, name)
    return ArraySpec(name, accepted, array_type, axes)


def _tuple_items(hint: Any, sizes: frozenset[str]) -> tuple[_Members, ...]:
    """Return the members of a fixed tuple that holds tensors, or nothing."""
    items = tuple(_Members.of(member, sizes) for member in typing.get_args(hint))
    return items if any(item.arrays for item in items) else ()


def _facets_of(metadata: collections.abc.Iterable[Any]) -> tuple[Facet, ...]:
    """Pick our facets out of the metadata; other libraries' metadata is none of our business."""
    found: list[Facet] = []
    for item in metadata:
        if isinstance(item, type) and issubclass(item, Facet):
            raise ContractDefinitionError(
                f"the facet `{item.__name__}` is given as a class.",
                hint=f"Write `{item.__name__}()`.",
            )
        if isinstance(item, Facet):
            found.append(item)
        elif isinstance(item, str):
            names = [facet.__name__ for facet in Facet.__subclasses__()]
            if near_name_hint(item, names).startswith("Did"):
                raise ContractDefinitionError(
                    f"unknown facet {item!r}.", hint=near_name_hint(item, names)
                )
    return tuple(found)
