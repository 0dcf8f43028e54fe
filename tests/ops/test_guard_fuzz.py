"""Guard and diagnosis agree on random valid and broken calls of every op of the project.

`TENSORPACT_FUZZ=66` raises the number of calls to about 200,000 an op.
"""

import os
import random

import pytest
import torch

from tensorpact.contracts.checker.diagnosis import diagnose
from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.demo.mistakes import op_named

CALLS = int(3_000 * float(os.environ.get("TENSORPACT_FUZZ", "1")))
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64)
JUNK = (None, True, 3, -1, 0, 2.5, "x", (), [], object(), 2**70)


def reshaped(rng, tensor):
    """Return a tensor of another shape or layout: one random step away."""
    rank = tensor.dim()
    kind = rng.randrange(10)
    if kind == 0 or rank == 0:
        return tensor.unsqueeze(rng.randint(0, rank))
    axis = rng.randrange(rank)
    size = tensor.shape[axis]
    match kind:
        case 1:
            return tensor.select(axis, 0) if size else tensor
        case 2:
            return tensor.narrow(axis, 0, max(size - 1, 0))
        case 3:
            return torch.cat([tensor, tensor.narrow(axis, 0, min(size, 1))], dim=axis)
        case 4:
            return tensor.transpose(axis, rng.randrange(rank))
        case 5:
            return torch.stack([tensor, tensor], dim=-1)[..., 0]
        case 6:
            return torch.stack([tensor, tensor], dim=axis).select(axis, 0)
        case 7:
            return tensor.narrow(axis, 0, 1).expand_as(tensor) if size else tensor
        case 8:
            return tensor.narrow(axis, 0, 0)
        case _:
            return tensor.reshape(-1)


def mutated(rng, call, name):
    """Return another value for one argument; it may still be a legal one."""
    value = call[name]
    if rng.random() < 0.08:
        return rng.choice(JUNK)
    if isinstance(value, bool) or value is None or isinstance(value, (str, float)):
        return rng.choice((*JUNK, False, 0.25, 1))
    if isinstance(value, int):
        return value + rng.choice((-2, -1, 1, 2, -value, value))
    if not isinstance(value, torch.Tensor):
        return rng.choice(JUNK)
    kind = rng.random()
    if kind < 0.12:
        return value.to(rng.choice(DTYPES))
    if kind < 0.18:
        return value.to("meta")
    if kind < 0.24:
        return rng.choice([other for other in call.values() if isinstance(other, torch.Tensor)])
    return reshaped(rng, value)


def test_guard__agrees_with_the_diagnosis_on_the_ops(op_name, valid_call):
    contract = op_named(op_name).contract
    guarded = enforce(contract, lambda *_, **__: None, check_result=False)
    rng = random.Random(f"calls of {op_name}")
    accepted = refused = 0
    for number in range(CALLS):
        if number % 500 == 0:
            base = valid_call(seed=number)
            names = [name for name in base if name != "self"]
            guarded(**base)
        call = dict(base)
        for name in rng.sample(names, rng.choice((0, 1, 1, 1, 2, 3))):
            call[name] = mutated(rng, call, name)
        arguments = {p.name: call.get(p.name, p.default) for p in contract.parameters}
        violations, _ = diagnose(contract, arguments)
        if violations:
            with pytest.raises(ContractError) as caught:
                guarded(**call)
            assert str(caught.value) == violations[0].text
            refused += 1
        else:
            guarded(**call)
            accepted += 1
    assert accepted > CALLS // 10
    assert refused > CALLS // 3
