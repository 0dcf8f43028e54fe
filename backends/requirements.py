"""What a backend needs to run a call, and why a call does not meet it."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tensorpact.backends.errors import BackendRegistrationError
from tensorpact.contracts.checker.examination import Examination, read
from tensorpact.contracts.language.dtypes import dtype_text
from tensorpact.contracts.language.expression import Expression
from tensorpact.contracts.language.expression_parser import parse_expression


@dataclass(frozen=True)
class Requirements:
    """What has to hold for a backend to be asked. Not meeting it is no fault of the caller.

    Attributes:
        devices: device types, such as `("cuda",)`; empty for all.
        capability: the least compute capability of a CUDA device.
        dtypes: the dtypes that single parameters may have.
        where: relations over the contract's dims and arguments, such as `"head_dim <= 256"`.
        package: a package that has to be importable.
    """

    devices: Sequence[str] = ()
    capability: tuple[int, int] | None = None
    dtypes: Mapping[str, Sequence[torch.dtype]] = field(default_factory=dict)
    where: Sequence[str] = ()
    package: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could not be looked at when a call comes; lists become tuples."""
        fields: dict[str, Any] = {
            "devices": _tuple_of(str, self.devices, "`devices`"),
            "where": _tuple_of(str, self.where, "`where`"),
            "dtypes": {
                name: _tuple_of(torch.dtype, dtypes, f"the dtypes of `{name}`")
                for name, dtypes in self.dtypes.items()
            },
        }
        if self.capability is not None:
            fields["capability"] = _tuple_of(int, self.capability, "`capability`")
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @functools.cached_property
    def relations(self) -> tuple[Expression, ...]:
        """The relations, parsed."""
        return tuple(parse_expression(text) for text in self.where)

    def unmet_by_machine(self, *, ask_devices: bool = False) -> list[str]:
        """Return why no call can run on this machine, whatever its arguments.

        `ask_devices` also looks at compute capabilities, which starts CUDA in this process.
        """
        reasons: list[str] = []
        if self.package is not None and not _is_installed(self.package):
            reasons.append(f"the package `{self.package}` is not installed")
        if self.devices and not any(_device_exists(kind) for kind in self.devices):
            reasons.append(f"this machine has no {' or '.join(self.devices)} device")
        elif ask_devices and self.devices == ("cuda",) and self.capability is not None:
            found = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
            if found and max(found) < self.capability:
                reasons.append(
                    f"it needs compute capability {_dotted(self.capability)}, and the best device "
                    f"here has {_dotted(max(found))}"
                )
        return reasons

    def unmet_by_call(self, call: Examination, device: torch.device | None) -> list[str]:
        """Return why this call cannot run, over and above what the machine lacks."""
        reasons: list[str] = []
        if self.devices and device is not None and device.type not in self.devices:
            reasons.append(f"it runs on {' or '.join(self.devices)}, and the call is on {device}")
        elif self.capability is not None and device is not None and device.type == "cuda":
            actual = torch.cuda.get_device_capability(device)
            if actual < self.capability:
                reasons.append(
                    f"it needs compute capability {_dotted(self.capability)}, and {device} has "
                    f"{_dotted(actual)}"
                )
        for name, allowed in self.dtypes.items():
            value = call.arguments.get(name)
            if isinstance(value, torch.Tensor) and value.dtype not in allowed:
                names = ", ".join(dtype_text(dtype) for dtype in allowed)
                reasons.append(f"it takes `{name}` in {names}, not {dtype_text(value.dtype)}")
        for text, relation in zip(self.where, self.relations, strict=True):
            if read(relation, call.values) is False:
                reasons.append(f"it needs {text}")
        return reasons

    def describe(self) -> str:
        """Say in one line what is needed."""
        parts = [" or ".join(self.devices)] if self.devices else []
        if self.capability is not None:
            parts.append(f"compute capability {_dotted(self.capability)}")
        for name, allowed in self.dtypes.items():
            parts.append(f"{name} in {'/'.join(dtype_text(dtype) for dtype in allowed)}")
        parts += self.where
        parts += [f"package {self.package}"] if self.package else []
        return ", ".join(parts) or "nothing"


def _tuple_of(kind: type, value: object, what: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, kind) for item in value):
        raise BackendRegistrationError(
            f"{what} in requirements is a sequence of {kind.__name__}: got {value!r}."
        )
    return tuple(value)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _device_exists(kind: str) -> bool:
    if kind in ("cpu", "meta"):
        return True
    module: Any = getattr(torch, kind, None)
    return bool(module is not None and module.is_available())


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
