"""Of every two documented errors that one call can break together, the earlier one is raised."""

import itertools

import pytest

from tensorpact.contracts.checker.diagnosis import diagnose
from tensorpact.contracts.checker.enforcement import enforce
from tensorpact.contracts.checker.errors import ContractError
from tensorpact.demo.mistakes import MISTAKES, op_named


def combined(first, second, call):
    """Make both mistakes in one call, in both orders of making them."""
    once = {**call, **first.change(call)}
    yield {**once, **second.change(call)}
    for one, other in ((first, second), (second, first)):
        half = {**call, **one.change(call)}
        try:
            yield {**half, **other.change(half)}
        except (RuntimeError, IndexError, ValueError, TypeError, AttributeError):
            continue  # the second mistake cannot be made on top of the first


def test_documented_order__the_earlier_of_two_errors_is_raised(op_name, valid_call):
    contract = op_named(op_name).contract
    guarded = enforce(contract, lambda *_, **__: None, check_result=False)
    slugs = [row.slug for row in contract.errors]
    call = valid_call()
    mistakes = [mistake for mistake in MISTAKES if mistake.op == op_name]
    together = 0
    for first, second in itertools.combinations(mistakes, 2):
        assert slugs.index(first.slug) < slugs.index(second.slug)
        for broken in combined(first, second, call):
            arguments = {p.name: broken.get(p.name, p.default) for p in contract.parameters}
            violations, _ = diagnose(contract, arguments)
            found = [violation.slug for violation in violations]
            if first.slug in found and second.slug in found:
                together += 1
                with pytest.raises(ContractError) as caught:
                    guarded(**broken)
                assert caught.value.slug == min(found, key=slugs.index)
                assert slugs.index(caught.value.slug) <= slugs.index(first.slug)
                assert found == sorted(found, key=slugs.index)
    possible = len(mistakes) * (len(mistakes) - 1) // 2
    assert together >= possible // 2
