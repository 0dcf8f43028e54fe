"""Registration: what does not fit a contract is refused, plugins are loaded and may fail."""

import importlib.metadata

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import tensorpact as tp
from tensorpact.backends.registry import Registry, registry


def new_contract():
    @tp.contract()
    def scaled(
        x: Float[Tensor, "n m"], factor: float = 2.0, *, backend: str | None = None
    ) -> Float[Tensor, "n m"]: ...

    return scaled


def test_implements__another_order_of_parameters_is_refused():
    contract = new_contract()
    with pytest.raises(tp.BackendRegistrationError) as caught:

        @tp.implements(contract, backend="wrong")
        def wrong(factor, x):
            return x

    assert str(caught.value) == (
        f"backend 'wrong' of {contract.name} takes (factor, x), and the contract says "
        "(x, factor=2.0)."
    )
    assert registry.implementations(contract) == ()


def test_implements__another_default_is_refused():
    contract = new_contract()
    with pytest.raises(tp.BackendRegistrationError, match=r"factor=3\.0"):

        @tp.implements(contract, backend="wrong")
        def wrong(x, factor=3.0):
            return x


def test_implements__the_same_backend_twice_is_refused():
    contract = new_contract()

    @tp.implements(contract, backend="one")
    def one(x, factor=2.0):
        return x

    with pytest.raises(tp.BackendRegistrationError) as caught:
        tp.implements(contract, backend="one")(one)
    assert str(caught.value) == f"backend 'one' already implements {contract.name}."


def test_implements__a_requirement_of_an_unknown_dim_is_refused():
    contract = new_contract()
    with pytest.raises(tp.BackendRegistrationError, match="unknown name `k`"):

        @tp.implements(contract, backend="one", requires=tp.Requirements(where=["k <= 3"]))
        def one(x, factor=2.0):
            return x


def test_implements__a_requirement_that_cannot_be_read_is_refused():
    contract = new_contract()
    with pytest.raises(tp.BackendRegistrationError, match="cannot read the expression"):

        @tp.implements(contract, backend="one", requires=tp.Requirements(where=["n <="]))
        def one(x, factor=2.0):
            return x


def test_registry__loads_plugins_and_reports_those_that_fail(monkeypatch):
    loaded = []

    class EntryPoint:
        def __init__(self, name, action):
            self.name = name
            self.action = action

        def load(self):
            return self.action

    def fails():
        raise ImportError("no kernels here")

    points = [EntryPoint("good", lambda: loaded.append("good")), EntryPoint("bad", fails)]
    points.append(EntryPoint("last", lambda: loaded.append("last")))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    fresh = Registry()
    with pytest.warns(RuntimeWarning, match="'bad' could not be loaded: ImportError: no kernels"):
        fresh.load()
    fresh.load()
    assert loaded == ["good", "last"]
    assert fresh.plugin_problems == {"bad": "ImportError: no kernels here"}


def test_requirements__offsets_past_32_bits_pass_a_backend_over():
    """Case 20: a kernel with 32-bit offsets says so, and large calls go to another backend."""
    contract = new_contract()

    @tp.implements(
        contract,
        backend="narrow",
        priority=1,
        requires=tp.Requirements(where=["x.numel() < 2**31"]),
    )
    def narrow(x, factor=2.0):
        return ("narrow", x * factor)

    @tp.implements(contract, backend="wide")
    def wide(x, factor=2.0):
        return ("wide", x * factor)

    @tp.op(contract)
    def entry(x, factor=2.0, *, backend=None):
        """Scale."""

    last = torch.empty(2**16, 2**15 - 1, device="meta")
    first = torch.empty(2**16, 2**15, device="meta")
    assert entry(last)[0] == "narrow"
    assert entry(first)[0] == "wide"
    assert entry(first)[1].shape == (2**16, 2**15)
    report = entry.explain_dispatch(first)
    assert report.candidates[0].reasons == ("it needs x.numel() < 2**31",)


@pytest.mark.parametrize(
    ("requirements", "problem"),
    [
        ({"devices": "cuda"}, "`devices` in requirements is a sequence of str: got 'cuda'."),
        ({"capability": 90}, "`capability` in requirements is a sequence of int: got 90."),
        (
            {"dtypes": {"x": torch.float32}},
            "the dtypes of `x` in requirements is a sequence of dtype: got torch.float32.",
        ),
    ],
)
def test_requirements__that_could_not_be_looked_at_are_refused(requirements, problem):
    with pytest.raises(tp.BackendRegistrationError) as caught:
        tp.Requirements(**requirements)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("requirements", "problem"),
    [
        (tp.Requirements(dtypes={"factor": (torch.float32,)}), "which is no tensor parameter"),
        (tp.Requirements(where=["n % (m - 8) == 0"]), "may divide by zero"),
        (tp.Requirements(where=["x > 3"]), "unknown name `x`"),
    ],
)
def test_implements__requirements_that_may_fail_are_refused(requirements, problem):
    contract = new_contract()
    with pytest.raises(tp.BackendRegistrationError, match=problem):
        tp.implements(contract, backend="one", requires=requirements)(lambda x, factor=2.0: x)
    assert registry.implementations(contract) == ()


def test_requirements__a_missing_parent_package_is_a_reason():
    needs = tp.Requirements(package="no_such_package.inside")
    assert needs.unmet_by_machine() == ["the package `no_such_package.inside` is not installed"]


@pytest.mark.parametrize("name", ["", None, 3])
def test_implements__a_backend_has_a_name(name):
    with pytest.raises(tp.BackendRegistrationError, match="named by a word"):
        tp.implements(new_contract(), backend=name)
    with pytest.raises(ValueError, match="named by a word"):
        tp.use_backend(name)
