"""The few facts of a call that a choice of backend may depend on, as a hashable tuple."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from tensorpact.contracts.checker.checks_code import ChecksCode
from tensorpact.contracts.checker.code import Writer
from tensorpact.contracts.checker.scope import Scope
from tensorpact.contracts.language.binding import dim_names
from tensorpact.contracts.language.checks import device_anchor
from tensorpact.contracts.language.contract import RESERVED_PARAMETERS, Contract
from tensorpact.contracts.language.expression import Expression


def build_facts(
    contract: Contract[..., Any],
    *,
    device: bool,
    dtypes: Sequence[str],
    relations: Sequence[Expression],
) -> Callable[..., Hashable]:
    """Generate a function over a valid call that returns its device, some dtypes, some relations.

    Relations enter as what they evaluate to, so that the number of different answers stays small.
    """
    scope = Scope(contract, relations)
    writer = Writer()
    names = [p.name for p in contract.parameters if p.name not in RESERVED_PARAMETERS]
    facts: list[str] = []
    with writer.block(f"def facts({', '.join(names)}):"):
        code = ChecksCode(contract, scope, writer, "pass")
        code.hoist_items()
        wanted = {name for relation in relations for name in dim_names(relation)}
        for binding in contract.bindings:
            if binding.name in wanted:
                code.bind(binding)
        anchor = device_anchor(contract.slots)
        if device and anchor is not None:
            present = code.presence(anchor)
            read = f"{scope.value(anchor)}.device"
            facts.append(f"{read} if {present} else None" if present else read)
        slots = {slot.name: slot for slot in contract.slots}
        for name in dtypes:
            present = code.presence(slots[name])
            read = f"{name}.dtype"
            facts.append(f"{read} if {present} else None" if present else read)
        plain = replace(scope.locals, shapes={})
        for relation in relations:
            presence = sorted(plain.presence(relation))
            holds = f"bool({plain.expression(relation)})"
            facts.append(f"{holds} if {' and '.join(presence)} else None" if presence else holds)
        writer.write(f"return ({', '.join(facts)}{',' if len(facts) == 1 else ''})")
    namespace: dict[str, Any] = dict(scope.constants)
    exec(compile(writer.text(), f"<facts of {contract.name}>", "exec"), namespace)
    built: Callable[..., Hashable] = namespace["facts"]
    return built
