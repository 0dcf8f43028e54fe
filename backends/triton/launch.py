"""Launches of Triton kernels whose host side stays short.

Triton's own launch binds the arguments by name, derives from each of them what specialises the
kernel and asks the driver about each pointer, at every call. Here a `Plan` holds what follows from
the shapes, strides and dtypes of a call, looked up by just these; its first launch goes Triton's
way, and later ones hand raw pointers and the raw stream to the compiled kernel. The interfaces for
that are private. Where one is missing or refuses its arguments, all launches go Triton's way.

The current stream and device are asked for at every launch, so streams, graph capture and several
devices need nothing more. Plans are replaced, never changed in a way that another thread could see
half done.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

VARIABLE = "TENSORPACT_TRITON_LAUNCH"
"""Set it to `public` before the import to send every launch Triton's way."""

MAX_PLANS = 4096
"""Plans kept per kernel. Token counts may be many; a forgotten plan costs microseconds."""

Scalars = tuple[int | float, ...]


@dataclass(frozen=True)
class Geometry:
    """What follows from the shapes and strides of a call.

    Attributes:
        grid: number of programs.
        scalars: run-time arguments that these shapes and strides fix; the last ones before the
            constants.
        constants: the kernel's `tl.constexpr` parameters, in order.
        num_warps: warps of a program.
    """

    grid: int
    scalars: Scalars
    constants: Mapping[str, int | bool]
    num_warps: int


class Kernel:
    """A kernel, its plans and its compiled variants.

    Args:
        load: returns the jitted function; called at the first launch, so that importing a backend
            does not import Triton.
        specialised: how many of the leading tensors are specialised on 16-byte alignment; for the
            others the kernel says `do_not_specialize_on_alignment`.
    """

    options: Mapping[str, Any] = {"enable_fp_fusion": True}

    def __init__(self, load: Callable[[], Any], specialised: int) -> None:
        self.load = functools.cache(load)
        self.specialised = specialised
        self.plans: dict[Hashable, Plan] = {}
        self.variants: dict[Hashable, RawKernel] = {}
        self.public_only = os.environ.get(VARIABLE) == "public"

    def new_plan(
        self, facts: Hashable, device: int, dtypes: tuple[torch.dtype, ...], geometry: Geometry
    ) -> Plan:
        """Remember a plan for calls with these facts.

        `dtypes` are those of all tensors that may differ from call to call.
        """
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        plan = self.plans[facts] = Plan(self, device, dtypes, geometry)
        return plan


class Plan:
    """How calls with certain shapes, strides and dtypes are launched."""

    def __init__(
        self, kernel: Kernel, device: int, dtypes: tuple[torch.dtype, ...], geometry: Geometry
    ) -> None:
        self.kernel = kernel
        self.device = device
        self.geometry = geometry
        constants = tuple(geometry.constants.values())
        self.variant = (device, dtypes, constants, geometry.num_warps)
        self.tail = (*geometry.scalars, *constants)

    def launch(self, tensors: tuple[Tensor, ...], scalars: Scalars = ()) -> None:
        """Launch on the current stream of the plan's device.

        The kernel's arguments are `tensors`, `scalars`, then the geometry's scalars and constants.
        """
        kernel = self.kernel
        raw = kernel.variants.get(self.variant)
        if raw is not None:
            pointers = [tensor.data_ptr() for tensor in tensors]
            aligned = functools.reduce(operator.or_, pointers[: kernel.specialised]) & 15 == 0
            if aligned and raw.launch(self, pointers, scalars):
                return
        self._launch_publicly(tensors, scalars)

    def _launch_publicly(self, tensors: tuple[Tensor, ...], scalars: Scalars) -> None:
        geometry = self.geometry
        with on_device(self.device):
            compiled = self.kernel.load()[(geometry.grid,)](
                *tensors,
                *scalars,
                *geometry.scalars,
                **geometry.constants,
                num_warps=geometry.num_warps,
                **self.kernel.options,
            )
        if self.kernel.public_only or self.variant in self.kernel.variants:
            return
        pointers = [tensor.data_ptr() for tensor in tensors[: self.kernel.specialised]]
        if all(pointer % 16 == 0 for pointer in pointers):
            raw = RawKernel.of(compiled)
            if raw is not None:
                self.kernel.variants[self.variant] = raw


_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)


@dataclass
class RawKernel:
    """A compiled kernel and the private entry point that launches it."""

    run: Callable[..., Any]
    function: int
    metadata: Any
    owner: Any
    works: bool = True

    @classmethod
    def of(cls, compiled: Any) -> RawKernel | None:
        """Take the entry point out of what Triton compiled; None where any part is missing."""
        if _raw_stream is None or _current_device is None:
            return None
        try:
            run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
        except AttributeError:
            return None
        if not callable(run) or not isinstance(function, int):
            return None
        return cls(run, function, metadata, compiled)

    def launch(self, plan: Plan, pointers: list[int], scalars: Scalars) -> bool:
        """Launch; False where the entry point does not take these arguments.

        It checks them before it launches anything, so the call can be made another way then.
        """
        if not self.works:
            return False
        device = plan.device
        if _current_device() != device:
            with torch.cuda.device(device):
                return self.launch(plan, pointers, scalars)
        stream = _raw_stream(device)
        try:
            # The three Nones: metadata for, and hooks of, profilers that watch Triton's own launch.
            self.run(
                plan.geometry.grid, 1, 1, stream, self.function, self.metadata, None, None, None,
                *pointers, *scalars, *plan.tail,
            )  # fmt: skip
        except TypeError:
            self.works = False
            return False
        return True


def on_device(device: int) -> contextlib.AbstractContextManager[Any]:
    """Make a CUDA device current; nothing for -1, a tensor on the CPU under the interpreter."""
    return torch.cuda.device(device) if device >= 0 else contextlib.nullcontext()


def interpreted() -> bool:
    """Tell whether Triton's interpreter runs the kernels, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def common_unit(strides: Iterable[int]) -> int:
    """Largest power of two up to 16 that divides all strides.

    Kernels take strides divided by it and multiply again, which tells the compiler the alignment
    that they have, with five variants at most.
    """
    combined = functools.reduce(operator.or_, strides, 16)
    return combined & -combined
