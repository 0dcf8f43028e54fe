"""Every documented mistake as data: how a valid call becomes the broken one."""

from __future__ import annotations

from tensorpact.demo import fused_kv_mistakes, kda_mistakes
from tensorpact.demo.mistake import Mistake, op_named

__all__ = ["MISTAKES", "Mistake", "op_named"]


def _in_documented_order(mistakes: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
    slugs = [row.slug for row in op_named(mistakes[0].op).contract.errors]
    return tuple(sorted(mistakes, key=lambda mistake: slugs.index(mistake.slug)))


MISTAKES: tuple[Mistake, ...] = (
    *_in_documented_order(fused_kv_mistakes.KERNEL),
    *_in_documented_order(fused_kv_mistakes.MATERIALIZER),
    *_in_documented_order(kda_mistakes.PACKED),
    *_in_documented_order(kda_mistakes.REPLAY),
)
"""One mistake for every documented error of every op, in the order of the contracts."""
