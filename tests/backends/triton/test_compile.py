"""Every kernel compiles for every architecture that the backend names; no GPU is needed."""

import os
from typing import Any

import pytest
import torch
from triton_calls import fused_call, kda_call, replay_call

from tensorpact.backends.triton.fused_kv import fused_kv_materialize
from tensorpact.backends.triton.kda_packed import kda_packed_decode
from tensorpact.backends.triton.kda_replayssm import kda_replayssm_decode
from tensorpact.backends.triton.launch import Plan

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"
)

CPU = torch.device("cpu")
TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
REPLAY_PLACES = {"slots": (3, 0), "write_pos": (1, 2)}
CALLS = {
    "fused": (fused_kv_materialize, lambda: fused_call(CPU, torch.bfloat16, head_dim=128)),
    "fused-partial-float32": (fused_kv_materialize, lambda: fused_call(CPU, rotary_dim=32)),
    "packed": (kda_packed_decode, lambda: kda_call(CPU, key_dim=128, value_dim=96)),
    "packed-odd": (kda_packed_decode, lambda: kda_call(CPU, key_dim=72, value_dim=20)),
    "replay-bfloat16": (
        kda_replayssm_decode,
        lambda: replay_call(
            CPU, torch.bfloat16, key_dim=128, value_dim=96, ring=16, **REPLAY_PLACES
        ),
    ),
    "replay-bfloat16-state": (
        kda_replayssm_decode,
        lambda: (
            replay_call(CPU, torch.bfloat16, torch.bfloat16, key_dim=256, ring=33, **REPLAY_PLACES)
            | {"use_qk_l2norm_in_kernel": True, "lower_bound": -5.0}
        ),
    ),
    "replay-float32": (
        kda_replayssm_decode,
        lambda: replay_call(CPU, key_dim=20, force_flush=(0, 1), **REPLAY_PLACES),
    ),
}


class RecordedError(Exception):
    """Carries what a plan was about to launch."""


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("name", CALLS)
def test_kernels__compile(name: str, capability: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def record(plan: Plan, tensors: Any, scalars: Any = ()) -> None:
        raise RecordedError(plan, tensors, scalars)

    monkeypatch.setattr(Plan, "launch", record)
    function, make_call = CALLS[name]
    with pytest.raises(RecordedError) as caught:
        function(**make_call())
    plan, tensors, scalars = caught.value.args
    kernel, geometry = plan.kernel.load(), plan.geometry
    numbers = [*scalars, *geometry.scalars]
    signature = dict.fromkeys(kernel.arg_names, "constexpr")
    types = [TYPES[tensor.dtype] for tensor in tensors]
    types += ["fp32" if isinstance(number, float) else "i64" for number in numbers]
    signature |= dict(zip(kernel.arg_names, types, strict=False))
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(plan.kernel.specialised)}
    source = ASTSource(kernel, signature, constexprs=geometry.constants, attrs=aligned)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": geometry.num_warps, **plan.kernel.options},
    )
    assert len(compiled.asm["cubin"]) > 0
    assert compiled.metadata.shared <= 99 * 1024  # the least of all these architectures
