"""The KDA decode ops against their float64 references, token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from tensorpact.demo.cases import (
    Arguments,
    KdaSizes,
    kda_packed_call,
    kda_replayssm_call,
    next_token,
    own_copy,
)
from tensorpact.demo.comparing import Closeness, Sameness
from tensorpact.demo.reference import kda_packed_reference, kda_replayssm_reference
from tensorpact.demo.results import Check
from tensorpact.ops import kda_packed_decode, kda_replayssm_decode

OUT_TOLERANCES = {
    torch.float32: (1e-4, 1e-3),
    torch.bfloat16: (1e-3, 1e-2),
    torch.float16: (1e-3, 1e-2),
}
STATE_TOLERANCE = (3e-3, 1e-2)
GATE_TOLERANCE = (1e-5, 1e-4)

_SAMPLE = 6
"""How many rows the (slow) reference computes."""
_PACKED_STEPS = 4
_PER_ROW = ("mixed_qkv", "a", "b", "write_pos", "force_flush")
_RINGS = ("d_cache", "k_cache", "g_cache")
_POOLS = ("initial_state", *_RINGS)


def run_packed(sizes: KdaSizes, device: str) -> tuple[Arguments, tuple[Check, ...]]:
    """Decode a few tokens with `kda_packed_decode`; also returns the last call."""
    call = kda_packed_call(sizes, device=device)
    out = Closeness("out against float64", *OUT_TOLERANCES[sizes.dtype])
    state = Closeness("state against float64", *STATE_TOLERANCE)
    untouched = Sameness("other slots are untouched")
    padding = Sameness("padding rows give zeros")
    rows = _sample(call)
    for step in range(_PACKED_STEPS):
        call = next_token(call, sizes, seed=step)
        few = _of_rows(call, rows)
        before = own_copy(call["initial_state"])
        kda_packed_decode(**call)
        expected_out, expected_state = kda_packed_reference(**few)
        out.add(call["out"][rows], expected_out)
        slots = call["ssm_state_indices"].long()
        after = call["initial_state"]
        state.add(after[slots[rows]], expected_state)
        used = slots[slots >= 0]
        untouched.add(_restored(after, before, (used,)), before)
        _add_padding(padding, call)
    return call, (out.check(), state.check(), untouched.check(), padding.check())


class _Ring:
    """What is compared over a cycle of the ring."""

    def __init__(self, sizes: KdaSizes) -> None:
        tolerance = OUT_TOLERANCES[sizes.dtype]
        self.out = Closeness("out against float64", *tolerance)
        self.state = Closeness("state on flush against float64", *STATE_TOLERANCE)
        self.appended = {
            "d_cache": Closeness("deltas appended", *tolerance),
            "k_cache": Closeness("keys appended", *tolerance),
            "g_cache": Closeness("gates appended", *GATE_TOLERANCE),
        }
        self.untouched = Sameness("all else is untouched")
        self.padding = Sameness("padding rows give zeros")

    def checks(self) -> tuple[Check, ...]:
        """Return all verdicts."""
        close = (self.out, self.state, *self.appended.values())
        same = (self.untouched, self.padding)
        return (*(part.check() for part in close), *(part.check() for part in same))


def run_replay(sizes: KdaSizes, device: str) -> tuple[Arguments, tuple[Check, ...]]:
    """Decode a whole cycle of the ring with `kda_replayssm_decode`; also returns the last call.

    The rows start at different cursors, so that each step has rows that append and, from some
    step on, rows that flush; one row is also made to flush early.
    """
    call = kda_replayssm_call(sizes, device=device)
    compared = _Ring(sizes)
    rows = _sample(call)
    for step in range(sizes.L):
        call = next_token(call, sizes, seed=step)
        force_flush = torch.zeros_like(call["force_flush"])
        force_flush[0] = step == sizes.L // 2
        call["force_flush"] = force_flush
        flushes = (call["write_pos"] == sizes.L - 1) | (force_flush != 0)
        _step(call, flushes, rows, compared)
        call["write_pos"] = torch.where(flushes, 0, call["write_pos"] + 1).to(torch.int32)
    return call, compared.checks()


def _step(call: Arguments, flushes: Tensor, rows: Tensor, compared: _Ring) -> None:
    few = _of_rows(call, rows)
    before = {name: own_copy(call[name]) for name in _POOLS}
    kda_replayssm_decode(**call)
    expected = kda_replayssm_reference(**few)
    slots, cursors = call["ssm_state_indices"].long(), call["write_pos"].long()

    compared.out.add(call["out"][rows], expected.out)
    flushed = flushes[rows].cpu()
    state = call["initial_state"][slots[rows]].cpu()
    compared.state.add(state[flushed], expected.initial_state[flushed])
    kept = torch.nonzero(~flushed)[:, 0]
    entries = cursors[rows].cpu()[kept]
    for name, closeness in compared.appended.items():
        actual, wanted = call[name][slots[rows]].cpu(), getattr(expected, name)
        closeness.add(actual[kept, :, entries], wanted[kept, :, entries])

    real = slots >= 0
    written = {"initial_state": (slots[real & flushes],)}
    appending = real & ~flushes
    entry = (slots[appending], slice(None), cursors[appending])
    for name in _POOLS:
        places = written.get(name, entry)
        compared.untouched.add(_restored(call[name], before[name], places), before[name])
    _add_padding(compared.padding, call)


def _sample(call: Arguments) -> Tensor:
    """Return some rows that have a slot."""
    real: Tensor = torch.nonzero(call["ssm_state_indices"] >= 0)[:, 0]
    return real[torch.linspace(0, len(real) - 1, min(len(real), _SAMPLE)).round().long()]


def _of_rows(call: Arguments, rows: Tensor) -> Arguments:
    """Copy a call cut down to some rows and their slots, for the reference."""
    slots = call["ssm_state_indices"][rows].long()
    found: Arguments = {}
    for name, value in call.items():
        if name in _POOLS:
            value = value[slots]
        elif name in _PER_ROW and value is not None:
            value = value[rows]
        elif name == "ssm_state_indices":
            value = torch.arange(len(rows))
        if name != "out":
            found[name] = value.cpu() if isinstance(value, Tensor) else value
    return found


def _restored(after: Tensor, before: Tensor, places: tuple[Tensor | slice, ...]) -> Tensor:
    """Undo what was written at some places: what then differs should not have been written."""
    copy = own_copy(after)
    copy[places] = before[places]
    return copy


def _add_padding(padding: Sameness, call: Arguments) -> None:
    rows = call["out"][call["ssm_state_indices"] < 0]
    padding.add(rows, torch.zeros_like(rows))
