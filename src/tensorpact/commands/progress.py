"""Progress on standard error: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

_WIDTH = 100
_CLEAR = "\r\033[K"


class Progress:
    """Shows what is being done; on a terminal the line is gone at the end."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.on_terminal = stream.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.on_terminal:
            self._write(_CLEAR)

    def say(self, text: str) -> None:
        """Show what is being done now."""
        self._write(f"{_CLEAR}{text[: _WIDTH - 1]}" if self.on_terminal else f"{text}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
