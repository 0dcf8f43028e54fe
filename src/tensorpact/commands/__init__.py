"""The commands of `tensorpact`, one module each, and what they share.

Each module has `add_arguments(parser)` and `run(options) -> int`. Nothing here imports torch before
a command runs, so that `--help` is quick.
"""

from __future__ import annotations

import importlib.metadata
import os
from typing import TextIO


class UsageError(Exception):
    """The command line asks for something that is not there; the text says what and hints."""


def version_of(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """Say the version of this package, or that it is not installed."""
    return version_of("tensorpact") or "(not installed, so without a version)"


def takes_color(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that shows colors; see https://no-color.org."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()
