"""Making a mistake on purpose, and looking at what came of it."""

from __future__ import annotations

from typing import Any

from tensorpact.contracts import ContractError
from tensorpact.contracts.language.evaluation import Values
from tensorpact.demo.cases import Arguments, own_arguments
from tensorpact.demo.comparing import same_snapshot, snapshot
from tensorpact.demo.mistakes import Mistake, op_named
from tensorpact.demo.results import Check, MistakeResult


def try_mistake(mistake: Mistake, call: Arguments) -> MistakeResult:
    """Make a mistake in a valid call.

    The error has to be the documented one, word for word, nothing may have been written, and the
    legal call next to the mistake has to pass.
    """
    op = op_named(mistake.op)
    row = mistake.row
    broken = mistake.broken(call)
    changed = {name: value for name, value in broken.items() if value is not call.get(name)}
    before = snapshot(call), snapshot(changed)
    message, checks = _raised(op, broken, mistake)
    after = snapshot(call), snapshot(changed)
    untouched = all(same_snapshot(one, other) for one, other in zip(before, after, strict=True))
    checks += (Check("nothing was written", untouched), _passes(op, mistake, call))
    return MistakeResult(
        op=mistake.op,
        slug=mistake.slug,
        what=mistake.what,
        message=message,
        cause=row.cause,
        fix=row.fix,
        nearest_legal=mistake.nearest_is,
        checks=checks,
    )


def _raised(op: Any, broken: Arguments, mistake: Mistake) -> tuple[str, tuple[Check, ...]]:
    names = ("the documented error", "the text is the template, word for word")
    try:
        op(**broken)
    except ContractError as error:
        same_slug = error.slug == mistake.slug
        reserved = {
            "argument": error.argument,
            "expected": error.expected,
            "actual": error.actual,
        }
        values = Values({**reserved, **error.bindings}, broken)
        rendered = mistake.row.template.render(values)
        same_text = str(error) == rendered and "?" not in rendered
        return str(error), (
            Check(names[0], same_slug, "" if same_slug else f"got {error.slug}"),
            Check(names[1], same_text, "" if same_text else f"expected {rendered!r}"),
        )
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        problem = "no error was raised"
    return problem, tuple(Check(name, False, problem) for name in names)


def _passes(op: Any, mistake: Mistake, call: Arguments) -> Check:
    name = "the nearest legal call passes"
    try:
        op(**mistake.legal(own_arguments(call)))
    except Exception as error:
        return Check(name, False, f"{type(error).__name__}: {error}")
    return Check(name, True)
