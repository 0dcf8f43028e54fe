"""Shared memory: told exactly, by address, in debug mode."""

import pytest
import torch

import tensorpact as tp
from tensorpact.contracts.checker.memory import share_memory
from tensorpact.demo.cases import SMALL_FUSED_KV, SMALL_KDA, fused_kv_call, kda_replayssm_call
from tensorpact.ops import fused_kv_materialize, kda_replayssm_decode


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (lambda p: p[0], lambda p: p[1], False),
        (lambda p: p[:, :3], lambda p: p[:, 3:], False),
        (lambda p: p[:, :4], lambda p: p[:, 3:], True),
        (lambda p: p[:, ::2], lambda p: p[:, 1::2], False),
        (lambda p: p[:, ::2], lambda p: p[:, ::3], True),
        (lambda p: p, lambda p: p[2, 4:], True),
        (lambda p: p[2:], lambda p: p, True),
        (lambda p: p[0].view(torch.int16)[1::2], lambda p: p[0].view(torch.int16)[::2], False),
        (lambda p: p[0].view(torch.int16)[1::2], lambda p: p[0], True),
        (lambda p: p[:0], lambda p: p, False),
        (lambda p: p.to("meta"), lambda p: p, False),
    ],
)
def test_share_memory__is_exact(one, other, shared):
    pool = torch.zeros(5, 7)
    assert share_memory(one(pool), other(pool)) is shared
    assert share_memory(other(pool), one(pool)) is shared


def test_share_memory__separate_tensors_share_none():
    assert not share_memory(torch.zeros(3), torch.zeros(3))


def test_debug__overlapping_outputs_are_refused_before_anything_is_written():
    call = fused_kv_call(SMALL_FUSED_KV)
    tokens = SMALL_FUSED_KV.tokens
    workspace = torch.zeros_like(call["k_out"]).repeat(1, 3, 1, 1)
    apart = {"k_out": workspace[:, :tokens], "v_out": workspace[:, tokens : 2 * tokens]}
    meeting = {"k_out": workspace[:, :tokens], "v_out": workspace[:, tokens - 1 : 2 * tokens - 1]}
    with tp.mode("debug"):
        fused_kv_materialize(**{**call, **apart})
        workspace.zero_()
        with pytest.raises(tp.ContractError) as caught:
            fused_kv_materialize(**{**call, **meeting})
    assert str(caught.value) == (
        "`k_out` of fused KV materialization must not share memory: expected no memory shared with "
        "`v_out`, got a view that overlaps `v_out`."
    )
    assert caught.value.slug == "fused-kv-outputs-overlap"
    assert not workspace.any()


def test_debug__an_output_on_an_input_is_refused():
    call = kda_replayssm_call(SMALL_KDA)
    rows, width = call["mixed_qkv"].shape
    size = call["out"].numel()
    pool = torch.zeros(max(rows * width, size), dtype=call["out"].dtype)
    pool[: rows * width] = call["mixed_qkv"].flatten()
    shared = {
        "mixed_qkv": pool[: rows * width].view(rows, width),
        "out": pool[:size].view(call["out"].shape),
    }
    with tp.mode("debug"):
        kda_replayssm_decode(**call)
        with pytest.raises(tp.ContractError, match="`out` must not share memory"):
            kda_replayssm_decode(**{**call, **shared})
