"""Which backend a user asked for: an argument, a `with` block, or the environment."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar

VARIABLE = "TENSORPACT_BACKEND"


class BackendChoice:
    """The backend named for this context. `maybe_named` is the one attribute a call reads."""

    def __init__(self, from_environment: str | None) -> None:
        self.from_environment = from_environment
        self.maybe_named = from_environment is not None
        self._entered = 0
        self._lock = threading.Lock()
        self._here: ContextVar[str | None] = ContextVar("tensorpact_backend", default=None)

    def resolve(self, argument: str | None) -> str | None:
        """Return the backend that counts: the argument, the `with` block, the environment."""
        return argument or self._here.get() or self.from_environment

    @contextlib.contextmanager
    def entered(self, backend: str) -> Iterator[None]:
        """Name a backend for this context, and no more at the end."""
        token = self._here.set(backend)
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._here.reset(token)

    def _count(self, change: int) -> None:
        with self._lock:
            self._entered += change
            self.maybe_named = self.from_environment is not None or self._entered > 0


choice = BackendChoice(os.environ.get(VARIABLE, "").strip() or None)


def use_backend(name: str) -> contextlib.AbstractContextManager[None]:
    """Run every op of a block on one backend: `with tensorpact.use_backend("eager"): ...`.

    The choice is strict: an op that the backend cannot run raises `BackendUnavailableError` with
    the reasons. An explicit `backend=` argument counts more.

    Raises:
        ValueError: the name is no word.
    """
    if not (name and type(name) is str):
        raise ValueError(f"a backend is named by a word: got {name!r}.")
    return choice.entered(name)
