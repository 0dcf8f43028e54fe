"""The comparisons of the demo fail where they should."""

import torch

from tensorpact.demo.comparing import Closeness, Sameness, bits


def test_closeness__holds_up_to_the_tolerance() -> None:
    closeness = Closeness("x", atol=0.5, rtol=0.0)
    closeness.add(torch.tensor([1.5]), torch.tensor([1.0], dtype=torch.float64))
    assert closeness.check().ok
    closeness.add(torch.tensor([1.5625]), torch.tensor([1.0], dtype=torch.float64))
    assert not closeness.check().ok


def test_closeness__not_a_number_is_never_close() -> None:
    closeness = Closeness("x", atol=1.0, rtol=1.0)
    closeness.add(torch.tensor([0.0, float("nan")]), torch.zeros(2))
    closeness.add(torch.zeros(2), torch.zeros(2))
    assert not closeness.check().ok


def test_closeness__nothing_compared_is_no_success() -> None:
    closeness = Closeness("x", atol=1.0, rtol=1.0)
    closeness.add(torch.empty(0), torch.empty(0))
    assert not closeness.check().ok


def test_sameness__is_about_bits() -> None:
    sameness = Sameness("x")
    sameness.add(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert sameness.check().ok
    sameness.add(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not sameness.check().ok


def test_sameness__nothing_compared_is_no_success() -> None:
    assert not Sameness("x").check().ok


def test_bits__of_a_strided_view() -> None:
    view = torch.arange(6, dtype=torch.bfloat16)[::2]
    assert torch.equal(bits(view).view(torch.bfloat16), view)
