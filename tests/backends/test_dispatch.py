"""The choice of a backend: priorities, requirements, strict names, and what is never caught."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import tensorpact as tp
from tensorpact.backends.choice import BackendChoice
from tensorpact.backends.dispatch import Option
from tensorpact.backends.registry import registry


def make_op(*backends):
    """Make an op over `x [rows width]` with backends given as (name, priority, requirements)."""

    @tp.contract(where=["width <= 1000"])
    def double(
        x: Float[Tensor, "rows width"],
        y: Float[Tensor, "rows"] | None = None,
        factor: int = 2,
        *,
        backend: str | None = None,
    ) -> Float[Tensor, "rows width"]: ...

    calls = []

    def register(name, priority, requirements):
        @tp.implements(double, backend=name, priority=priority, requires=requirements)
        def implementation(x, y=None, factor=2):
            calls.append(name)
            return x * factor

    for name, priority, requirements in backends:
        register(name, priority, requirements)

    @tp.op(double)
    def entry(x, y=None, factor=2, *, backend=None):
        """Double."""

    entry.calls = calls
    return entry


NARROW = tp.Requirements(where=["width <= 4"])
HALF = tp.Requirements(dtypes={"x": (torch.float16,)})
CUDA = tp.Requirements(devices=("cuda",), capability=(9, 0))
MISSING = tp.Requirements(package="no_such_package_anywhere")


def test_dispatch__highest_priority_among_the_eligible_runs():
    op = make_op(("slow", 0, None), ("fast", 10, NARROW))
    op(torch.ones(3, 4))
    op(torch.ones(3, 5))
    op(torch.ones(3, 4))
    assert op.calls == ["fast", "slow", "fast"]


def test_dispatch__the_choice_follows_dtype_and_relation_of_each_call():
    op = make_op(("slow", 0, None), ("half", 5, HALF), ("narrow", 10, NARROW))
    op(torch.ones(3, 5, dtype=torch.float16))
    op(torch.ones(3, 5))
    op(torch.ones(3, 2, dtype=torch.float16))
    assert op.calls == ["half", "slow", "narrow"]


def test_dispatch__a_repeated_call_does_not_choose_again(monkeypatch):
    op = make_op(("slow", 0, None), ("fast", 10, NARROW))
    op(torch.ones(3, 4))

    def refuse(*_):
        raise AssertionError("chosen twice")

    monkeypatch.setattr(Option, "accepts", refuse)
    op(torch.ones(2, 3))
    assert op.calls == ["fast", "fast"]


def test_dispatch__the_named_backend_runs():
    op = make_op(("slow", 0, None), ("fast", 10, None))
    op(torch.ones(3, 4), backend="slow")
    with tp.use_backend("slow"):
        op(torch.ones(3, 4))
        op(torch.ones(3, 4), backend="fast")
    op(torch.ones(3, 4))
    assert op.calls == ["slow", "slow", "fast", "fast"]


def test_dispatch__a_named_backend_that_cannot_run_is_an_error_with_the_reasons():
    op = make_op(("slow", 0, None), ("fast", 10, NARROW))
    with pytest.raises(tp.BackendUnavailableError) as caught:
        op(torch.ones(3, 5), backend="fast")
    assert str(caught.value) == (
        f"backend 'fast' cannot run this call of {op.contract.name}: it needs width <= 4. It was "
        "named explicitly (by `backend=`, `use_backend` or TENSORPACT_BACKEND), so no other one "
        "is tried."
    )
    assert op.calls == []


def test_dispatch__an_unknown_backend_is_an_error_with_a_near_name():
    op = make_op(("eager", 0, None))
    with pytest.raises(tp.BackendUnavailableError) as caught:
        op(torch.ones(3, 5), backend="eagre")
    name = op.contract.name
    assert str(caught.value) == (
        f"backend 'eagre' does not implement {name}. Did you mean `eager`?"
    )


def test_dispatch__no_eligible_backend_is_an_error_with_all_reasons():
    op = make_op(("half", 5, HALF), ("missing", 1, MISSING))
    with pytest.raises(tp.BackendUnavailableError) as caught:
        op(torch.ones(3, 5))
    assert str(caught.value) == (
        f"no backend can run {op.contract.name}: half: it takes `x` in float16, not float32; "
        "missing: the package `no_such_package_anywhere` is not installed."
    )


def test_dispatch__a_contract_error_is_never_a_reason_to_fall_back():
    op = make_op(("slow", 0, None), ("fast", 10, NARROW))
    with pytest.raises(tp.ContractError, match="must have"):
        op(torch.ones(3))
    assert op.calls == []


def test_dispatch__a_contract_error_from_inside_a_backend_is_not_caught():
    @tp.op
    def inner(x: Float[Tensor, "n 7"]) -> Float[Tensor, "n 7"]:
        return x

    @tp.contract()
    def outer(x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]: ...

    reached = []

    @tp.implements(outer, backend="fast", priority=1)
    def fast(x):
        return inner(x)

    @tp.implements(outer, backend="slow")
    def slow(x):
        reached.append("slow")
        return x

    @tp.op(outer)
    def entry(x):
        """Outer."""

    with pytest.raises(tp.ContractError) as caught:
        entry(torch.ones(2, 3))
    assert caught.value.op == inner.contract.name
    assert reached == []


def test_dispatch__explains_itself():
    op = make_op(("slow", 0, None), ("narrow", 10, NARROW), ("gone", 20, MISSING))
    report = op.explain_dispatch(torch.ones(3, 5))
    assert str(report) == (
        f"{op.contract.name}: slow (the highest priority among those that can run)\n"
        "  gone (priority 20): passed over: the package `no_such_package_anywhere` is not "
        "installed\n"
        "  narrow (priority 10): passed over: it needs width <= 4\n"
        "  slow (priority 0): taken"
    )
    assert report.chosen == "slow"
    assert op.calls == []


def test_dispatch__explains_a_call_without_backends():
    @tp.op
    def alone(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x

    assert "a body of its own" in str(alone.explain_dispatch(torch.ones(2)))


def test_dispatch__a_backend_registered_later_is_seen():
    op = make_op(("slow", 0, None))
    op(torch.ones(3, 4))

    @tp.implements(op.contract, backend="late", priority=5)
    def late(x, y=None, factor=2):
        op.calls.append("late")
        return x * factor

    op(torch.ones(3, 4))
    registry.remove(op.contract, "late")
    op(torch.ones(3, 4))
    assert op.calls == ["slow", "late", "slow"]


def test_dispatch__a_wrong_machine_is_a_reason():
    op = make_op(("gpu", 10, CUDA), ("slow", 0, None))
    reasons = op.explain_dispatch(torch.ones(3, 4)).candidates[0].reasons
    if torch.cuda.is_available():
        assert reasons == ("it runs on cuda, and the call is on cpu",)
    else:
        assert reasons == ("this machine has no cuda device",)


def test_dispatch__threads_have_their_own_choice():
    op = make_op(("slow", 0, None), ("fast", 10, None))
    seen = []

    def other():
        op(torch.ones(2, 2))
        seen.append(op.calls[-1])

    with tp.use_backend("slow"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        op(torch.ones(2, 2))
        seen.append(op.calls[-1])
    assert seen == ["fast", "slow"]


def test_backend_choice__counts_nested_blocks():
    choice = BackendChoice(None)
    assert not choice.maybe_named
    with choice.entered("a"), choice.entered("b"):
        assert (choice.maybe_named, choice.resolve(None), choice.resolve("c")) == (True, "b", "c")
    assert (choice.maybe_named, choice.resolve(None)) == (False, None)


def test_dispatch__the_environment_names_a_backend():
    code = (
        "from tensorpact.ops import fused_kv_materialize as op\n"
        "example = op.contract.example(seed=1)\n"
        "example.pop('backend', None)\n"
        "print(op.explain_dispatch(**example))\n"
        "try:\n    op(**example)\nexcept RuntimeError as error:\n    print(error)\n"
    )
    environment = {**os.environ, "TENSORPACT_BACKEND": "eagre"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "named 'eagre'" in result.stdout
    assert "backend 'eagre' does not implement fused_kv_materialize." in result.stdout
    assert "Did you mean `eager`?" in result.stdout


def test_compile__dispatch_is_traced():
    op = make_op(("slow", 0, None), ("fast", 10, NARROW))
    compiled = torch.compile(lambda x: op(x, factor=3), fullgraph=True, backend="eager")
    x = torch.randn(3, 4)
    assert torch.equal(compiled(x), x * 3)
    with tp.use_backend("slow"):
        assert torch.equal(torch.compile(lambda x: op(x), backend="eager")(x), x * 2)


def test_dispatch__the_unchecked_call_has_the_same_defaults():
    op = make_op(("eager", 0, None))
    assert torch.equal(op.unchecked(torch.ones(1, 1)), torch.full((1, 1), 2.0))
    assert torch.equal(op.unchecked(torch.ones(1, 1), None, 3), torch.full((1, 1), 3.0))


def test_dispatch__parameters_may_have_the_names_of_generated_code():
    @tp.contract()
    def attend(
        query: Float[Tensor, "n d"],
        key: Float[Tensor, "n d"],
        found: int = 1,
        _choice: int = 2,
        _key: int = 3,
        *,
        backend: str | None = None,
    ) -> Float[Tensor, "n d"]: ...

    @tp.implements(attend, backend="plain")
    def plain(query, key, found=1, _choice=2, _key=3):
        return key, found, _choice, _key

    @tp.op(attend)
    def entry(query, key, found=1, _choice=2, _key=3, *, backend=None):
        """Attend."""

    key = torch.zeros(2, 3)
    assert entry(torch.ones(2, 3), key, 4)[0] is key
    assert entry(torch.ones(2, 3), key, 4)[1:] == (4, 2, 3)


def test_dispatch__a_device_requirement_without_any_tensor():
    @tp.contract()
    def optional(x: Float[Tensor, "n"] | None = None) -> None: ...

    @tp.implements(optional, backend="cpu", requires=tp.Requirements(devices=("cpu",)))
    def on_cpu(x=None):
        return None

    @tp.op(optional)
    def entry(x=None): ...

    assert entry() is None
    assert entry(torch.ones(2)) is None
