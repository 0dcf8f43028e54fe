"""`tensorpact doctor`: what is installed, and which backends can run here, and why not."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from tensorpact.commands import own_version, takes_color, version_of

HELP = "say what is installed, and which backends can run here"

_PACKAGES = ("torch", "triton", "jaxtyping", "beartype")
_RED, _PLAIN = "\033[31m", "\033[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(options: argparse.Namespace) -> int:
    """Print the findings; 1 when an op has no usable backend or a plugin failed."""
    findings = examine_machine()
    if options.json:
        print(json.dumps(findings, indent=2))
    else:
        for line in _lines(findings, color=takes_color(sys.stdout)):
            print(line)
    return 1 if findings["problems"] else 0


def examine_machine() -> dict[str, Any]:
    """Return everything `tensorpact doctor` knows, as JSON types."""
    from tensorpact.backends import registry
    from tensorpact.backends.choice import VARIABLE as BACKEND_VARIABLE
    from tensorpact.contracts.checker.mode import VARIABLE as MODE_VARIABLE
    from tensorpact.contracts.checker.mode import switch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # plugin problems are reported below
        registry.load()
        ops = _ops()
    problems = [
        f"{name} has no backend that can run on this machine"
        for name, op in ops.items()
        if not op["own_body"] and not any(b["usable"] for b in op["backends"])
    ]
    problems += [
        f"the backend plugin {name!r} could not be loaded: {problem}"
        for name, problem in registry.plugin_problems.items()
    ]
    return {
        "versions": {
            "tensorpact": own_version(),
            "python": platform.python_version(),
            **{package: version_of(package) for package in _PACKAGES},
        },
        "mode": switch.current,
        "variables": {name: os.environ.get(name) for name in (MODE_VARIABLE, BACKEND_VARIABLE)},
        "devices": _devices(),
        "ops": ops,
        "plugin_problems": dict(registry.plugin_problems),
        "problems": problems,
    }


def _ops() -> dict[str, Any]:
    """Describe the backends of this project's ops, and of others that plugins brought."""
    from tensorpact.backends import registry
    from tensorpact.commands.finding import contract_of, own_ops

    contracts = {name: contract_of(op) for name, op in own_ops().items()}
    contracts |= {c.name: c for c in registry.contracts() if c not in contracts.values()}
    found: dict[str, Any] = {}
    for name, contract in contracts.items():
        backends = []
        for implementation in registry.implementations(contract):
            reasons = implementation.requirements.unmet_by_machine(ask_devices=True)
            backends.append(
                {
                    "backend": implementation.backend,
                    "priority": implementation.priority,
                    "requires": implementation.requirements.describe(),
                    "usable": not reasons,
                    "reasons": list(reasons),
                }
            )
        # An op that is a method has a body of its own and calls other ops.
        found[name] = {"own_body": not backends and "." in name, "backends": backends}
    return found


def _devices() -> dict[str, Any]:
    import torch

    cuda = [
        {
            "index": index,
            "name": torch.cuda.get_device_name(index),
            "capability": ".".join(map(str, torch.cuda.get_device_capability(index))),
        }
        for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    ]
    return {"cpu_cores": os.cpu_count(), "torch_threads": torch.get_num_threads(), "cuda": cuda}


def _lines(findings: dict[str, Any], *, color: bool) -> Iterator[str]:
    yield "Versions"
    for package, version in findings["versions"].items():
        yield f"  {package:<12}{version or 'not installed'}"
    yield "Settings"
    yield f"  contracts are {findings['mode']}"
    for name, value in findings["variables"].items():
        yield f"  {name}: {value if value is not None else 'not set'}"
    yield "Devices"
    devices = findings["devices"]
    yield f"  {devices['cpu_cores']} CPU cores, {devices['torch_threads']} torch threads"
    for device in devices["cuda"]:
        yield f"  cuda:{device['index']} {device['name']}, capability {device['capability']}"
    if not devices["cuda"]:
        yield "  no CUDA device"
    yield "Backends"
    for name, op in findings["ops"].items():
        yield f"  {name}{': has a body of its own' if op['own_body'] else ''}"
        for backend in op["backends"]:
            verdict = "usable" if backend["usable"] else "not usable: "
            head = f"    {backend['backend']} (priority {backend['priority']}"
            needs = f"needs {backend['requires']}): {verdict}{'; '.join(backend['reasons'])}"
            yield f"{head}, {needs}"
    yield "Problems"
    for problem in findings["problems"]:
        yield f"  {_RED}{problem}{_PLAIN}" if color else f"  {problem}"
    if not findings["problems"]:
        yield "  none"
