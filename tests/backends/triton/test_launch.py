"""The short launch: what it is taken from, when it gives way, streams, devices, graphs, threads."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton_calls import (
    CACHES,
    check_fused,
    check_packed,
    check_replay,
    fused_call,
    kda_call,
    replay_call,
)

from tensorpact.backends.triton import fused_kv, kda_packed, kda_replayssm, launch
from tensorpact.backends.triton.launch import Geometry, Kernel, RawKernel, common_unit

KERNELS = (fused_kv.KERNEL, kda_packed.KERNEL, kda_replayssm.KERNEL)
CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    ("strides", "unit"),
    [((), 16), ((0,), 16), ((32, 48), 16), ((24, 16), 8), ((80, 4), 4), ((3,), 1)],
)
def test_common_unit(strides: tuple[int, ...], unit: int) -> None:
    assert common_unit(strides) == unit


class FakeJit:
    """Stands in for a jitted function and for what it compiles to."""

    def __init__(self, refuses: bool = False, **parts: Any) -> None:
        self.public: list[tuple[Any, ...]] = []
        self.raw: list[tuple[Any, ...]] = []
        self.refuses = refuses
        self.parts = {"run": self.run, "function": 7, "packed_metadata": "packed"} | parts

    def __getitem__(self, grid: tuple[int]) -> Any:
        def start(*arguments: Any, **constants: Any) -> Any:
            self.public.append((grid, *arguments))
            return SimpleNamespace(**{n: x for n, x in self.parts.items() if x is not None})

        return start

    def run(self, *arguments: Any) -> None:
        if self.refuses:
            raise TypeError("function takes another number of arguments")
        self.raw.append(arguments)


def launches(
    jitted: FakeJit, monkeypatch: pytest.MonkeyPatch, times: int = 2, offset: int = 0
) -> Kernel:
    monkeypatch.setattr(launch, "_raw_stream", lambda device: 99)
    monkeypatch.setattr(launch, "_current_device", lambda: -1)
    kernel = Kernel(lambda: jitted, specialised=1)
    plan = kernel.new_plan("facts", -1, (), Geometry(5, (3,), {"N": 8}, 4))
    tensor = torch.zeros(16)[offset:]
    for _ in range(times):
        plan.launch((tensor,), (0.5,))
    return kernel


def test_launch__the_second_one_is_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = FakeJit()
    launches(jitted, monkeypatch)
    assert len(jitted.public) == 1
    (raw,) = jitted.raw
    assert raw[:9] == (5, 1, 1, 99, 7, "packed", None, None, None)
    assert raw[10:] == (0.5, 3, 8)


@pytest.mark.parametrize("part", ["run", "function", "packed_metadata"])
def test_launch__without_a_private_part_all_are_public(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jitted = FakeJit(**{part: None})
    launches(jitted, monkeypatch)
    assert (len(jitted.public), len(jitted.raw)) == (2, 0)


def test_launch__refused_arguments_lead_back_to_the_public_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jitted = FakeJit(refuses=True)
    launches(jitted, monkeypatch, times=3)
    assert len(jitted.public) == 3


def test_launch__an_unaligned_tensor_goes_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = FakeJit()
    launches(jitted, monkeypatch, offset=1)
    assert (len(jitted.public), len(jitted.raw)) == (2, 0)


def test_launch__without_torch_internals_all_are_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_raw_stream", None)
    assert RawKernel.of(SimpleNamespace(run=print, function=1, packed_metadata=())) is None


def test_plans__are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MAX_PLANS", 3)
    kernel = Kernel(FakeJit, specialised=0)
    for facts in range(10):
        kernel.new_plan(facts, -1, (), Geometry(1, (), {}, 1))
        assert len(kernel.plans) <= 3


@pytest.fixture(params=["raw", "public"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for kernel in KERNELS:
        kernel.variants.clear()
        monkeypatch.setattr(kernel, "public_only", request.param == "public")
    return str(request.param)


@pytest.mark.gpu
def test_gpu__both_ways_are_right(way: str) -> None:
    for _ in range(3):
        check_fused(fused_call(CUDA, torch.bfloat16))
        check_packed(kda_call(CUDA, torch.bfloat16))
        check_replay(replay_call(CUDA, torch.bfloat16, force_flush=(0, 1, 0, 0, 1)))
    assert all(bool(kernel.variants) == (way == "raw") for kernel in KERNELS)


@pytest.mark.gpu
def test_gpu__graph_capture_and_replay(way: str) -> None:
    call = replay_call(CUDA, torch.bfloat16)
    first = {name: call[name].clone() for name in CACHES}
    kda_replayssm.kda_replayssm_decode(**call)
    expected = {name: call[name].clone() for name in ("out", *CACHES)}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kda_replayssm.kda_replayssm_decode(**call)
    for _ in range(2):
        for name, value in first.items():
            call[name].copy_(value)
        call["out"].fill_(7.0)
        graph.replay()
        torch.cuda.synchronize()
        for name, value in expected.items():
            torch.testing.assert_close(call[name], value, rtol=0, atol=0, equal_nan=True)
    # The graph reads cursors and slots when it runs.
    call["write_pos"].fill_(0)
    graph.replay()
    assert not torch.equal(call["out"], expected["out"])


@pytest.mark.gpu
def test_gpu__kernels_run_on_the_current_stream(way: str) -> None:
    call = fused_call(CUDA, torch.bfloat16, total_ctx=33)
    expected, _ = fused_kv.fused_kv_materialize(**call)
    fused_kv.fused_kv_materialize(**call)
    source, target = call["kv"], torch.zeros_like(call["kv"])
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # a kernel on another stream would read the zeros
        target.copy_(source)
        k, _ = fused_kv.fused_kv_materialize(**call | {"kv": target})
    side.synchronize()
    assert torch.equal(k, expected)


@pytest.mark.gpu
def test_gpu__threads(way: str) -> None:
    call = fused_call(CUDA, torch.bfloat16, total_ctx=33)
    expected, _ = fused_kv.fused_kv_materialize(**call)
    wrong: list[int] = []

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            for _ in range(50):
                k, _ = fused_kv.fused_kv_materialize(**call)
            torch.cuda.current_stream().synchronize()
            if not torch.equal(k, expected):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_gpu__a_device_that_is_not_current(way: str) -> None:
    for _ in range(2):
        check_fused(fused_call(torch.device("cuda:1"), torch.bfloat16))
