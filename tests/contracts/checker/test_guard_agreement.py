"""The generated guard and the diagnosis say the same of every call of every contract.

`TENSORPACT_FUZZ=20` looks at twenty times as many contracts; `TENSORPACT_FUZZ_SEED` starts
elsewhere.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tensorpact.contracts.checker.diagnosis import diagnose
from tensorpact.contracts.checker.enforcement import Enforcer, enforce
from tensorpact.contracts.checker.errors import ContractError

SCALE = float(os.environ.get("TENSORPACT_FUZZ", "1"))
FIRST_SEED = int(os.environ.get("TENSORPACT_FUZZ_SEED", "0"))
BLOCKS = 8
CONTRACTS_A_BLOCK = int(40 * SCALE)
CALLS = 25


class Outcome:
    """What happened to the calls of many contracts."""

    def __init__(self) -> None:
        self.pairs = self.accepted = self.contracts = self.results_refused = 0


def look_at(made: Any, outcome: Outcome) -> None:
    """Hold guard and diagnosis to each other on calls of one contract."""
    contract = made.contract
    returned: list[Any] = [None]
    guarded = enforce(contract, lambda *_, **__: returned[0], check_result=True)
    enforcer = Enforcer(contract, guarded)
    outcome.contracts += 1
    for _ in range(CALLS):
        call, returned[0] = made.call(), made.results()
        star = [a.name for a in made.arguments if a.star]
        positional = [item for name in star for item in call[name]]
        keywords = {name: value for name, value in call.items() if name not in star}
        outcome.pairs += 1
        try:
            guarded(*positional, **keywords)
        except ContractError as error:
            about_result = error.violations[0].argument.startswith("return")
            broken, _ = diagnose(contract, call)
            assert bool(broken) is not about_result
            outcome.results_refused += about_result
        else:
            assert diagnose(contract, call)[0] == ()
            if contract.returned.slots and not enforcer._returned_early(call):
                assert enforcer.diagnose_result(returned[0], call)[0] == ()
            outcome.accepted += 1


@pytest.mark.parametrize("block", range(BLOCKS))
def test_guard__agrees_with_the_diagnosis(block: int, random_contract: Any) -> None:
    outcome = Outcome()
    first = FIRST_SEED + block * CONTRACTS_A_BLOCK
    for seed in range(first, first + CONTRACTS_A_BLOCK):
        made = random_contract(seed)
        if made.contract is not None:
            try:
                look_at(made, outcome)
            except Exception as error:
                error.add_note(f"seed {seed}")
                error.add_note(made.contract.source())
                raise
    assert outcome.contracts > CONTRACTS_A_BLOCK // 2
    assert outcome.accepted > outcome.pairs // 10
    assert outcome.accepted < outcome.pairs
