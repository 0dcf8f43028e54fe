"""What is paid once: building the guard of an op, and importing tensorpact."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter_ns

import plain_hints
from approaches import CONTRACTS
from timing import Spread, rebuilt

from tensorpact.contracts.checker.enforcement import enforce

_FIRST_USE = """
import torch, tensorpact
from time import perf_counter_ns
from tensorpact.contracts.checker.enforcement import enforce
def body(): ...
start = perf_counter_ns()
from tensorpact.contracts import {module} as module
enforce(module.{op}, body, check_result=False)
print((perf_counter_ns() - start) / 1e6)
"""

_IMPORT = """
from time import perf_counter_ns
start = perf_counter_ns()
import torch
middle = perf_counter_ns()
import {module}
print((middle - start) / 1e9, (perf_counter_ns() - middle) / 1e9)
"""

_MODE_OFF = """
from jaxtyping import Float
from torch import Tensor
import tensorpact
def double(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + x
print(tensorpact.op(double) is double)
"""


def decoration(op: str, *, rounds: int) -> Spread:
    """Time `@contract(...)` on an op and `enforce` on the result, in milliseconds.

    The decorated function is compiled from the source of its module and run again and again in a
    copy of the module's names. What jaxtyping and Python remember of earlier rounds stays.
    """
    module = sys.modules[CONTRACTS[op].module]
    tree = ast.parse(inspect.getsource(module))
    future = ast.parse("from __future__ import annotations").body
    definition = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == op
    ]
    code = compile(ast.Module([*future, *definition], []), f"<{op}>", "exec")
    body: Callable[..., object] = getattr(plain_hints, op)

    def build() -> Callable[..., object]:
        names = dict(vars(module))
        exec(code, names)
        return enforce(names[op], body, check_result=False)

    return rebuilt(build, rounds=rounds)


def first_decoration(module: str, op: str, *, rounds: int) -> Spread:
    """Time the import of a contract module and `enforce`, each time in a new process, in ms."""
    script = _FIRST_USE.format(module=module, op=op)
    return Spread(tuple(float(_python(script)) for _ in range(rounds)))


def imports(module: str, *, rounds: int) -> tuple[Spread, Spread]:
    """Time `import torch` and then `import` of a module, in new processes, in seconds."""
    script = _IMPORT.format(module=module)
    pairs = [_python(script).split() for _ in range(rounds)]
    return (
        Spread(tuple(float(torch) for torch, _ in pairs)),
        Spread(tuple(float(ours) for _, ours in pairs)),
    )


def whole_processes(module: str, *, rounds: int) -> tuple[Spread, Spread]:
    """Time `python -c` with `import torch` alone and with a module on top, in seconds."""
    alone: list[float] = []
    both: list[float] = []
    for _ in range(rounds):
        for script, times in (("import torch", alone), (f"import torch, {module}", both)):
            start = perf_counter_ns()
            _python(script)
            times.append((perf_counter_ns() - start) / 1e9)
    return Spread(tuple(alone)), Spread(tuple(both))


def off_is_undecorated() -> bool:
    """Tell whether `op` returns the function itself under TENSORPACT_MODE=off."""
    return _python(_MODE_OFF, mode="off").strip() == "True"


def _python(script: str, *, mode: str = "on") -> str:
    """Run a script in a new interpreter and return what it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "TENSORPACT_MODE": mode},
        check=False,
    )
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr)
    return ran.stdout
