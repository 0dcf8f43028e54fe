"""`tensorpact demo`: every op on real sizes, and every documented mistake."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys

from tensorpact.commands import UsageError, own_version, takes_color
from tensorpact.commands.progress import Progress

HELP = "run every op on real sizes, and make every documented mistake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    parser.add_argument("--backend", help="the backend to run on (default: the best that can)")


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 only when all held."""
    from tensorpact.contracts.checker.mode import VARIABLE, mode, switch
    from tensorpact.demo.printing import demo_lines
    from tensorpact.demo.session import run_demo

    if switch.start == "off":
        raise UsageError(f"contracts are switched off: unset {VARIABLE} to see them at work.")
    device = _device(options.device)
    with Progress(sys.stderr) as progress, mode("on"), _backend(options.backend):
        result = run_demo(device=device, quick=options.quick, say=progress.say)
    if options.json:
        print(json.dumps({"tensorpact": own_version(), **result.as_json()}, indent=2))
    else:
        for line in demo_lines(result, color=takes_color(sys.stdout)):
            print(line)
    return 0 if result.ok else 1


def _device(wanted: str | None) -> str:
    import torch

    if wanted is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=wanted)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"the device {wanted!r} cannot be used: {reason}") from error
    return wanted


def _backend(name: str | None) -> contextlib.AbstractContextManager[None]:
    if name is None:
        return contextlib.nullcontext()
    from tensorpact.backends import registry, use_backend
    from tensorpact.commands.finding import own_ops
    from tensorpact.contracts.language.definition_error import near_name_hint

    own_ops()  # an op registers its backends when it is imported
    known = {i.backend for c in registry.contracts() for i in registry.implementations(c)}
    if name not in known:
        raise UsageError(f"there is no backend {name!r}. {near_name_hint(name, known)}")
    return use_backend(name)
