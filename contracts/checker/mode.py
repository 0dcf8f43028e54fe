"""When contracts are enforced: `off`, `on` or `debug`.

`off` is chosen before import (TENSORPACT_MODE=off) and costs nothing: a decorated op is then the
undecorated function. `debug` looks at everything, collects every violation into one error, and can
be entered for a block of code.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar

MODES = ("off", "on", "debug")
VARIABLE = "TENSORPACT_MODE"


class ModeSwitch:
    """The mode of this process and of this context.

    The generated guard reads one attribute, `maybe_debug`; only while some context may be in
    debug mode does it look further.
    """

    def __init__(self, start: str) -> None:
        self.start = start
        self.maybe_debug = start == "debug"
        self._entered = 0
        self._lock = threading.Lock()
        self._here: ContextVar[str] = ContextVar("tensorpact_mode", default=start)

    @property
    def current(self) -> str:
        """The mode in this context."""
        return self._here.get()

    @contextlib.contextmanager
    def entered(self, mode: str) -> Iterator[None]:
        """Switch this context to a mode, and back at the end."""
        token = self._here.set(mode)
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._here.reset(token)

    def _count(self, change: int) -> None:
        with self._lock:
            self._entered += change
            self.maybe_debug = self.start == "debug" or self._entered > 0


def mode_from_environment() -> str:
    """Read TENSORPACT_MODE; `on` when it is not set.

    Raises:
        ValueError: the variable holds anything but off, on or debug.
    """
    value = os.environ.get(VARIABLE, "on").strip().lower() or "on"
    if value not in MODES:
        raise ValueError(f"{VARIABLE}={value!r}: expected one of {', '.join(MODES)}.")
    return value


switch = ModeSwitch(mode_from_environment())


def mode(name: str) -> contextlib.AbstractContextManager[None]:
    """Enter a mode for a block: `with tensorpact.mode("debug"): ...`.

    Raises:
        ValueError: the name is no mode; or it is `off`, which must be chosen before import, since
            an op decorated under another mode stays decorated.
    """
    if name == "off":
        raise ValueError(f"mode 'off' is chosen before import: set {VARIABLE}=off.")
    if name not in MODES:
        raise ValueError(f"unknown mode {name!r}: expected one of {', '.join(MODES)}.")
    if switch.start == "off":
        raise ValueError(
            f"mode {name!r} cannot be entered: ops were left unguarded by {VARIABLE}=off."
        )
    return switch.entered(name)


def in_debug_mode() -> bool:
    """Tell whether this context is in debug mode."""
    return switch.maybe_debug and switch.current == "debug"
