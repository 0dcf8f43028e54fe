"""Measures the Triton backend on a CUDA device.

    python benchmarks/gpu.py [--out FOLDER]

Numerics come first: every op against its float64 definition. Then kernel times beside their floor,
which is the bytes that have to move over the copy rate measured in the same run; host time of
validated calls; the amortised cycle of the replaying op; `materialize` beside its matrix product.
Writes `gpu.json`, and prints a table last.

- `kernel`: events around a graph of one run, queued behind a flush of the L2 cache (a read of
  256 MiB). `steady`: the same with the writing back of what the kernel leaves dirty in L2.
- `warm`: a run in a graph of 50, all of it in L2.
- host time: wall time per call in bursts of 50; never mixed with kernel times.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from gpu_cases import fused_kv_bytes, fused_kv_call, kda_bytes, kda_call
from gpu_timing import Spread, Timer, captured, copy_rate, graph_samples, host_time, warm_time

from tensorpact.demo.reference import (
    fused_kv_reference,
    kda_packed_reference,
    kda_replayssm_reference,
)
from tensorpact.ops.fused_kv import fused_kv_materialize
from tensorpact.ops.fused_kv_materializer import FusedKVMaterializer
from tensorpact.ops.kda_packed import kda_packed_decode
from tensorpact.ops.kda_replayssm import kda_replayssm_decode

Row = dict[str, Any]
FUSED = {
    "8 layers, 8 heads of 128": (8, 8, 128, 128, 1.08),
    "8 layers, 4 heads of 256": (8, 4, 256, 256, 1.08),
    "8 layers, 8 heads of 80": (8, 8, 80, 80, 1.12),
    "5 layers, 8 heads of 128, rotary 64": (5, 8, 128, 64, 1.08),
}
# batch, value heads, ring, state dtype, flush, goal over the floor
REPLAY = {
    "append B 64": (64, 32, 16, torch.float32, False, 1.25),
    "append B 256": (256, 32, 16, torch.float32, False, 1.15),
    "append B 64, bfloat16 state": (64, 32, 16, torch.bfloat16, False, 1.5),
    "flush B 64": (64, 32, 16, torch.float32, True, 1.25),
    "append B 64, HV 12": (64, 12, 16, torch.float32, False, 1.5),
    "append B 64, L 32": (64, 32, 32, torch.float32, False, 1.5),
}


def on_cpu(call: Row) -> Row:
    return {n: x.cpu().clone() if isinstance(x, torch.Tensor) else x for n, x in call.items()}


def numerics() -> Row:
    """Greatest error against float64, of small calls with real head sizes."""
    errors: Row = {}
    for name, (layers, heads, head_dim, rotary_dim, _) in FUSED.items():
        call = fused_kv_call(9, layers, heads, head_dim, rotary_dim, max_pos=64)
        k, v = fused_kv_materialize(**call)
        inputs = {n: x for n, x in on_cpu(call).items() if not n.endswith("_out")}
        expected_k, expected_v = fused_kv_reference(**inputs)
        assert torch.equal(v.cpu(), expected_v)
        torch.testing.assert_close(k.cpu().double(), expected_k, atol=1.5e-2, rtol=1.5e-2)
        errors[f"fused KV, {name}"] = float((k.cpu().double() - expected_k).abs().max())
    for cursor in (0, 7, 15):
        call = kda_call(3, 4)
        call["write_pos"].fill_(cursor)
        before = on_cpu(call)
        replayed = kda_replayssm_reference(**{n: x for n, x in before.items() if n != "out"})
        out, state = kda_replayssm_decode(**call)
        torch.testing.assert_close(out.cpu().double(), replayed.out, atol=1e-3, rtol=1e-2)
        wanted = replayed.initial_state
        torch.testing.assert_close(state.cpu().double(), wanted, atol=3e-3, rtol=1e-2)
        errors[f"replay out, cursor {cursor}"] = float((out.cpu() - replayed.out).abs().max())
        errors[f"replay state, cursor {cursor}"] = float((state.cpu() - wanted).abs().max())
    call = kda_call(3, 4, replay=False)
    before = on_cpu(call)
    expected, wanted = kda_packed_reference(**{n: x for n, x in before.items() if n != "out"})
    out, state = kda_packed_decode(**call)
    torch.testing.assert_close(out.cpu().double(), expected, atol=1e-3, rtol=1e-2)
    torch.testing.assert_close(state.cpu().double(), wanted, atol=3e-3, rtol=1e-2)
    errors["packed out"] = float((out.cpu() - expected).abs().max())
    return errors


def cold_row(timer: Timer, name: str, run: Any, moved: int, rate: float, goal: float) -> Row:
    kernel, steady = timer.kernel(run), timer.cold(run)
    floor = moved / rate * 1e6
    return {
        "work": name,
        "floor_us": round(floor, 2),
        "kernel_us": kernel.as_dict(),
        "steady_us": steady.as_dict(),
        "over_floor": round(kernel.median / floor, 3),
        "steady_over_floor": round(steady.median / floor, 3),
        "goal": goal,
    }


def warm_row(name: str, run: Any, goal_us: float) -> Row:
    return {"work": name, "warm_us": warm_time(run).as_dict(), "goal_us": goal_us}


def kernels(timer: Timer, rate: float) -> list[Row]:
    rows = []
    for tokens in (2048, 8192):
        for name, (layers, heads, head_dim, rotary_dim, goal) in FUSED.items():
            call = fused_kv_call(tokens, layers, heads, head_dim, rotary_dim)
            title = f"fused KV, {tokens} tokens, {name}"
            moved = fused_kv_bytes(call)
            run = functools.partial(fused_kv_materialize, **call)
            rows.append(cold_row(timer, title, run, moved, rate, goal))
    call = fused_kv_call(256, 5, 8, 128, 128)
    rows.append(warm_row("fused KV, 256 tokens, 5 layers", lambda: fused_kv_materialize(**call), 5))
    for name, (batch, heads, ring, dtype, flush, goal) in REPLAY.items():
        call = kda_call(batch, heads, ring, dtype)
        # The mean of a cycle's appends, in which 0 to L - 2 entries are committed.
        committed = ring - 1 if flush else ring // 2
        call["write_pos"].fill_(committed)
        moved = kda_bytes(call, committed, flush)
        run = functools.partial(kda_replayssm_decode, **call)
        rows.append(cold_row(timer, f"replay, {name}", run, moved, rate, goal))
    for batch, goal_us in ((1, 6), (8, 9)):
        call = kda_call(batch, 32)
        call["write_pos"].fill_(8)
        run = functools.partial(kda_replayssm_decode, **call)
        rows.append(warm_row(f"replay, append B {batch}", run, goal_us))
    for batch in (64, 256):
        call = kda_call(batch, 32, replay=False)
        run = functools.partial(kda_packed_decode, **call)
        rows.append(cold_row(timer, f"packed, B {batch}", run, kda_bytes(call), rate, 1.15))
    return rows


def replay_cycle(timer: Timer) -> Row:
    """`((L - 1) * t_append + t_flush) / L` with the cursor driven through the ring, B 64."""
    call = kda_call(64, 32)
    times = []
    for cursor in range(16):
        call["write_pos"].fill_(cursor)
        times.append(timer.kernel(lambda: kda_replayssm_decode(**call), replays=9).median)
    packed = kda_call(64, 32, replay=False)
    beside = timer.kernel(lambda: kda_packed_decode(**packed)).median
    return {
        "by_cursor_us": [round(time, 2) for time in times],
        "amortised_us": round(sum(times) / 16, 2),
        "packed_us": round(beside, 2),
    }


def hosts() -> Row:
    fused = fused_kv_call(4, 5, 8, 128, 128)
    bare = {name: x for name, x in fused.items() if not name.endswith("_out")}
    replay = kda_call(1, 4)
    packed = kda_call(1, 4, replay=False)
    bare_replay = {**replay, "force_flush": None, "lower_bound": None}
    calls = {
        "fused KV, outputs given (goal 12)": lambda: fused_kv_materialize(**fused),
        "fused KV, outputs allocated": lambda: fused_kv_materialize(**bare),
        "replay (goal 15)": lambda: kda_replayssm_decode(**replay),
        "packed": lambda: kda_packed_decode(**packed),
        "fused KV, unchecked": lambda: fused_kv_materialize.unchecked(**fused),
        "replay, unchecked": lambda: kda_replayssm_decode.unchecked(**bare_replay),
    }
    return {name: host_time(call).as_dict() for name, call in calls.items()}


def materializer(layers: int, heads: int, head_dim: int, hidden: int) -> FusedKVMaterializer:
    kv_size = heads * head_dim
    angles = torch.randn(40960, head_dim // 2, device="cuda")
    rotary = SimpleNamespace(cos_sin_cache=torch.cat((angles.cos(), angles.sin()), dim=-1))
    attentions = [
        SimpleNamespace(
            num_kv_heads=heads,
            head_dim=head_dim,
            q_size=0,
            kv_size=kv_size,
            rotary_emb=rotary,
            qkv_proj=SimpleNamespace(
                weight=torch.randn(2 * kv_size, hidden, device="cuda", dtype=torch.bfloat16) * 0.02
            ),
            k_norm=SimpleNamespace(
                weight=torch.ones(head_dim, device="cuda", dtype=torch.bfloat16),
                variance_epsilon=1e-6,
            ),
        )
        for _ in range(layers)
    ]
    wrapped = [SimpleNamespace(self_attn=attention) for attention in attentions]
    return FusedKVMaterializer(wrapped, rotary, heads, head_dim, "cuda", max_position_hint=40960)


def materialize(tokens: int = 8192, layers: int = 8, heads: int = 8, head_dim: int = 128) -> Row:
    whole = materializer(layers, heads, head_dim, 4096)
    hidden = torch.randn(tokens, 4096, device="cuda", dtype=torch.bfloat16)
    positions = torch.arange(tokens, device="cuda")
    projected = torch.empty(tokens, whole.kv_weight.shape[1], device="cuda", dtype=torch.bfloat16)

    def ignore(layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Throw the results away."""

    graphs = (
        captured(lambda: torch.mm(hidden, whole.kv_weight, out=projected)),
        captured(lambda: whole.materialize(hidden, positions, ignore)),
    )
    product, all_of_it = [], []
    for _ in range(15):
        (a,), (b, c), (d,) = (graph_samples(graphs[i], n) for i, n in ((0, 1), (1, 2), (0, 1)))
        product.append((a + d) / 2)
        all_of_it.append((b + c) / 2)
    sides = Spread.of(product[2:]), Spread.of(all_of_it[2:])
    return {
        "product_us": sides[0].as_dict(),
        "materialize_us": sides[1].as_dict(),
        "over_product": round(sides[1].median / sides[0].median, 3),
        "goal": 1.08,
    }


def table(record: Row) -> str:
    lines = [f"{record['device']}, torch {record['torch']}, copy {record['copy_tb_s']} TB/s"]
    lines.append(f"a kernel that does nothing: {record['empty_kernel_us']['median']} us")
    for row in record["kernels"]:
        if "warm_us" in row:
            lines.append(
                f"{row['work']:56} {row['warm_us']['median']:8.2f} us (<= {row['goal_us']})"
            )
            continue
        kernel = row["kernel_us"]
        span = f"[{kernel['low']:.1f}, {kernel['high']:.1f}]"
        lines.append(
            f"{row['work']:56} {kernel['median']:8.1f} us {span}"
            f" {row['over_floor']:5.2f}x (<= {row['goal']}) steady {row['steady_over_floor']:.2f}x"
        )
    lines.append(f"replay cycle, B 64: {record['cycle']}")
    lines += [f"host {name:40} {time['median']:6.2f} us" for name, time in record["host"].items()]
    return "\n".join([*lines, f"materialize: {record['materialize']}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    folder = parser.parse_args().out
    errors = numerics()
    rate = copy_rate()
    timer = Timer()
    record: Row = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_tb_s": round(rate / 1e12, 3),
        "errors": errors,
        "empty_kernel_us": timer.kernel(lambda: timer.sink.zero_()).as_dict(),
        "kernels": kernels(timer, rate),
        "cycle": replay_cycle(timer),
        "host": hosts(),
        "materialize": materialize(),
    }
    (folder / "gpu.json").write_text(json.dumps(record, indent=1))
    print(table(record))


if __name__ == "__main__":
    main()
