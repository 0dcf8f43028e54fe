"""How generated functions take their arguments, and how they pass them on."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable

from tensorpact.contracts.language.parameters import Parameter

Constant = Callable[[str, object], str]
"""Registers a global of a generated function under a wished name; returns the name it got."""


def parameter_list(parameters: tuple[Parameter, ...], constant: Constant) -> str:
    """Return the text of a parameter list; defaults that are no simple literals are constants."""
    parts: list[str] = []
    star_written = False
    for index, parameter in enumerate(parameters):
        text = parameter.name
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            text, star_written = f"*{text}", True
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            text = f"**{text}"
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star_written:
            parts.append("*")
            star_written = True
        if parameter.has_default:
            text = f"{text}={_default(parameter, constant)}"
        parts.append(text)
        last_positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY and (
            index + 1 == len(parameters)
            or parameters[index + 1].kind is not inspect.Parameter.POSITIONAL_ONLY
        )
        if last_positional:
            parts.append("/")
    return ", ".join(parts)


def forwarded(parameters: Iterable[Parameter]) -> str:
    """Return the text that passes the arguments on to a function of the same parameters."""
    parts = []
    for parameter in parameters:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                parts.append(f"*{parameter.name}")
            case inspect.Parameter.VAR_KEYWORD:
                parts.append(f"**{parameter.name}")
            case inspect.Parameter.KEYWORD_ONLY:
                parts.append(f"{parameter.name}={parameter.name}")
            case _:
                parts.append(parameter.name)
    return ", ".join(parts)


def _default(parameter: Parameter, constant: Constant) -> str:
    value = parameter.default
    simple = value is None or type(value) in (bool, int, str)
    if simple or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return constant(f"_default_{parameter.name}", value)
