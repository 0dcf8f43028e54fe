"""How kernels and calls are timed on a GPU; shared by `gpu.py` and `gpu_sweep.py`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

PAIRS = 10
REPLAYS = 9

_CUDA: Any = torch.cuda  # its streams and events are untyped


@dataclass(frozen=True)
class Spread:
    """Microseconds: median, least and greatest over the repetitions."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: list[float]) -> Spread:
        return cls(statistics.median(samples), min(samples), max(samples))

    def as_dict(self) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{self.median:.1f} ({self.low:.1f} to {self.high:.1f})"


def captured(work: Callable[[], object], warm: int = 2) -> torch.cuda.CUDAGraph:
    """Capture work in a CUDA graph, after running it a few times on a side stream."""
    side = _CUDA.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def graph_samples(graph: torch.cuda.CUDAGraph, replays: int) -> list[float]:
    """Time of each of a number of replays of a graph, in microseconds."""
    samples = []
    for _ in range(replays):
        start, end = (_CUDA.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3)
    return samples


class Timer:
    """Times kernels by graph replay, with the L2 cache flushed before each run.

    One graph holds `PAIRS` times a flush and the work, another the flushes alone; the difference
    is the work. The flush reads a buffer of 256 MiB, so that it leaves clean lines behind; with
    `dirty` it writes it, and the work pays for writing those lines back as well.
    """

    def __init__(self, dirty: bool = False) -> None:
        self.buffer = torch.zeros(64 * 1024 * 1024, device="cuda")
        self.sink = torch.zeros((), device="cuda")
        self.dirty = dirty
        self.flushes = captured(self.flush_all)
        graph_samples(self.flushes, 5)

    def flush_all(self) -> None:
        for _ in range(PAIRS):
            self.flush()

    def flush(self) -> None:
        if self.dirty:
            self.buffer.zero_()
        else:
            torch.amax(self.buffer, dim=0, out=self.sink)

    def kernel(self, work: Callable[[], object], replays: int = 21) -> Spread:
        """Time of the kernel alone: events around a graph of one run, queued behind a flush.

        What the kernel leaves dirty in L2 is written back after the second event.
        """
        graph = captured(work)
        samples = []
        for _ in range(replays):
            self.flush()
            samples += graph_samples(graph, 1)
        return Spread.of(samples[2:])

    def cold(self, work: Callable[[], object], replays: int = REPLAYS) -> Spread:
        """Time of the work from a cold L2 cache, with the writing back of what it leaves there."""

        def pairs() -> None:
            for _ in range(PAIRS):
                self.flush()
                work()

        graph = captured(pairs, warm=1)
        graph_samples(graph, 2)
        samples = []
        for _ in range(replays):
            # The two sides in ABBA order: both see the same drift.
            first = graph_samples(self.flushes, 1) + graph_samples(graph, 2)
            first += graph_samples(self.flushes, 1)
            samples.append((first[1] + first[2] - first[0] - first[3]) / (2 * PAIRS))
        return Spread.of(samples)


def warm_time(work: Callable[[], object], repeats: int = 50, replays: int = REPLAYS) -> Spread:
    """Time of one run in a graph of `repeats` runs, whatever fits in L2 staying there."""

    def many() -> None:
        for _ in range(repeats):
            work()

    graph = captured(many, warm=1)
    graph_samples(graph, 2)
    return Spread.of([sample / repeats for sample in graph_samples(graph, replays)])


def host_time(call: Callable[[], object], calls: int = 2000, rounds: int = 7) -> Spread:
    """Wall time of one call on the host, over a loop that the device keeps up with.

    The loop is cut into short bursts with a wait between them, outside the clock, so that the
    launch queue never fills.
    """
    burst = 50
    samples = []
    for _ in range(rounds):
        spent = 0.0
        for _ in range(calls // burst):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(burst):
                call()
            spent += time.perf_counter() - start
        samples.append(spent / (calls // burst * burst) * 1e6)
    torch.cuda.synchronize()
    return Spread.of(samples)


def copy_rate() -> float:
    """Bytes a second of a large device-to-device copy, read and written bytes both counted."""
    source = torch.randn(512 * 1024 * 1024, device="cuda")
    target = torch.empty_like(source)
    samples = []
    for _ in range(12):
        start, end = (_CUDA.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e-3)
    seconds: float = statistics.median(samples[3:])
    return 2 * source.numel() * source.element_size() / seconds
