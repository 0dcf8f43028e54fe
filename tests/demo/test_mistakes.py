"""Every documented error has a mistake that raises it, and a legal call beside it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorpact as tp
from tensorpact.commands.finding import own_ops
from tensorpact.contracts.checker.examination import examine
from tensorpact.demo import trials
from tensorpact.demo.cases import (
    MAKERS,
    SMALL_FUSED_KV,
    SMALL_KDA,
    Arguments,
    FusedKVSizes,
    KdaSizes,
    own_arguments,
)
from tensorpact.demo.comparing import same_snapshot, snapshot
from tensorpact.demo.mistakes import MISTAKES, Mistake, op_named
from tensorpact.demo.trials import try_mistake

MESSAGES: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "messages.json").read_text(encoding="utf-8")
)
SIZES: dict[str, FusedKVSizes | KdaSizes] = {
    "fused_kv_materialize": SMALL_FUSED_KV,
    "FusedKVMaterializer.materialize": SMALL_FUSED_KV,
    "kda_packed_decode": SMALL_KDA,
    "kda_replayssm_decode": SMALL_KDA,
}

FUSED_KV_TEMPLATES = {
    "invalid-stacked-fused-kv-projection-shape-got-tuple": "Invalid stacked fused KV projection "
    "shape: got {tuple(kv.shape)}, expected 3D [total_ctx, n_layers, kv_size*2].",
    "invalid-fused-kv-projection-shape-got-tuple-kv-s": "Invalid fused KV projection shape: "
    "got {tuple(kv.shape)}, expected trailing dim {kv_size * 2}.",
    "invalid-fused-kv-rotary-head-dim-pair-rotary-dim": "Invalid fused KV rotary/head dim pair: "
    "rotary_dim={rotary_dim}, head_dim={head_dim}.",
    "invalid-stacked-k-norm-weight-shape-for-fused-kv": "Invalid stacked k_norm_weight shape for "
    "fused KV materialization: got {tuple(k_norm_weight.shape)}, expected {(n_layers, head_dim)}.",
    "invalid-stacked-eps-shape-for-fused-kv-materiali": "Invalid stacked eps shape for fused KV "
    "materialization: got {tuple(eps.shape)}, expected {(n_layers,)}.",
}
MATERIALIZER_TEMPLATES = {
    "positions-must-match-ctx-hidden-token-count-for-fu": "positions must match ctx_hidden token "
    "count for fused KV materialization: positions={positions.numel()}, total_ctx={total_ctx}.",
}
REPLAY_TEMPLATES = {
    "kda-dt-bias-must-be-a-contiguous-1d-or-2d-tensor": "KDA `dt_bias` must be a contiguous 1D or "
    "2D tensor.",
    "write-pos-must-be-a-1d-int32-tensor": "`write_pos` must be a 1D int32 tensor.",
    "write-pos-must-have-shape-batch": "`write_pos` must have shape {(batch,)}.",
    "force-flush-must-be-a-length-b-int32-tensor-or-n": "`force_flush` must be a length-B int32 "
    "tensor or None.",
    "replayssm-cache-length-must-be-at-least-1": "ReplaySSM cache length must be at least 1.",
    "d-cache-must-have-shape-slots-hv-l-v": "`d_cache` must have shape [slots, HV, L, V].",
    "k-cache-must-have-shape-slots-h-l-k": "`k_cache` must have shape [slots, H, L, K].",
    "g-cache-must-have-shape-slots-hv-l-k": "`g_cache` must have shape [slots, HV, L, K].",
    "g-cache-must-have-dtype-torch-float32": "`g_cache` must have dtype torch.float32.",
}

# Without q and k there is no whole number of query heads either.
INSEPARABLE = {"kda-packed-width": ("kda-query-width",)}

each_mistake = pytest.mark.parametrize(
    "mistake", MISTAKES, ids=[f"{mistake.op}-{mistake.slug}" for mistake in MISTAKES]
)


@pytest.fixture(scope="module")
def calls() -> dict[str, Arguments]:
    """A valid call of every op; no test may write into it."""
    return {op: make(SIZES[op]) for op, make in MAKERS.items()}


def test_mistakes__every_slug_of_every_contract_has_one() -> None:
    documented = {(name, row.slug) for name, op in own_ops().items() for row in op.contract.errors}
    made = [(mistake.op, mistake.slug) for mistake in MISTAKES]
    assert set(made) == documented
    assert len(made) == len(documented)


def test_mistakes__are_in_the_order_of_the_contracts() -> None:
    for name, op in own_ops().items():
        made = [mistake.slug for mistake in MISTAKES if mistake.op == name]
        assert made == [row.slug for row in op.contract.errors]


@pytest.mark.parametrize(
    ("op", "templates"),
    [
        ("fused_kv_materialize", FUSED_KV_TEMPLATES),
        ("FusedKVMaterializer.materialize", MATERIALIZER_TEMPLATES),
        ("kda_replayssm_decode", REPLAY_TEMPLATES),
    ],
)
def test_templates__are_the_documented_texts(op: str, templates: dict[str, str]) -> None:
    rows = {row.slug: row.template.text for row in op_named(op).contract.errors}
    assert {slug: rows.get(slug) for slug in templates} == templates


@each_mistake
def test_mistake__raises_exactly_its_row(mistake: Mistake, calls: dict[str, Arguments]) -> None:
    with pytest.raises(tp.ContractError) as caught:
        op_named(mistake.op)(**mistake.broken(calls[mistake.op]))
    assert caught.value.slug == mistake.slug
    assert str(caught.value) == MESSAGES[mistake.op][mistake.slug]
    assert len(caught.value.violations) == 1


@each_mistake
def test_mistake__breaks_nothing_else(mistake: Mistake, calls: dict[str, Arguments]) -> None:
    with tp.mode("debug"), pytest.raises(tp.ContractError) as caught:
        op_named(mistake.op)(**mistake.broken(calls[mistake.op]))
    slugs = [violation.slug for violation in caught.value.violations]
    assert slugs == [mistake.slug, *INSEPARABLE.get(mistake.slug, ())]


@each_mistake
def test_mistake__writes_nothing(mistake: Mistake, calls: dict[str, Arguments]) -> None:
    call = calls[mistake.op]
    broken = mistake.broken(call)
    before, broken_before = snapshot(call), snapshot(broken)
    with pytest.raises(tp.ContractError):
        op_named(mistake.op)(**broken)
    assert same_snapshot(before, snapshot(call))
    assert same_snapshot(broken_before, snapshot(broken))


@each_mistake
def test_mistake__stands_beside_a_legal_call(mistake: Mistake, calls: dict[str, Arguments]) -> None:
    with tp.mode("debug"):
        op_named(mistake.op)(**mistake.legal(own_arguments(calls[mistake.op])))


@each_mistake
def test_mistake__has_a_cause_and_a_fix(mistake: Mistake) -> None:
    assert mistake.row.cause.endswith(".")
    assert mistake.row.fix.endswith(".")


@pytest.mark.parametrize("op", list(MAKERS))
def test_calls__have_pairwise_distinct_dims(op: str, calls: dict[str, Arguments]) -> None:
    contract = op_named(op).contract
    defaults = {p.name: p.default for p in contract.parameters if p.has_default}
    dims = examine(contract, {**defaults, **calls[op]}).dims
    assert set(dims) == set(contract.dims)
    assert len(set(dims.values())) == len(dims), dims


@pytest.mark.parametrize("op", list(MAKERS))
def test_calls__have_tensors_with_pairwise_distinct_axes(
    op: str, calls: dict[str, Arguments]
) -> None:
    for name, value in calls[op].items():
        if isinstance(value, torch.Tensor):
            assert len(set(value.shape)) == value.dim(), (name, value.shape)


def test_try_mistake__holds_for_a_mistake(calls: dict[str, Arguments]) -> None:
    result = try_mistake(MISTAKES[0], calls[MISTAKES[0].op])
    assert [check.ok for check in result.checks] == [True, True, True, True]


def test_try_mistake__notices_that_nothing_is_raised(calls: dict[str, Arguments]) -> None:
    harmless = replace(MISTAKES[0], change=lambda call: {})
    result = try_mistake(harmless, own_arguments(calls[harmless.op]))
    assert result.message == "no error was raised"
    assert not any(check.ok for check in result.checks[:3])


def test_try_mistake__notices_another_error(calls: dict[str, Arguments]) -> None:
    other = replace(MISTAKES[0], change=MISTAKES[1].change)
    result = try_mistake(other, calls[other.op])
    assert [check.ok for check in result.checks] == [False, False, True, True]
    assert MISTAKES[1].slug in result.checks[0].detail


def test_try_mistake__notices_a_write_before_the_error(
    calls: dict[str, Arguments], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake = MISTAKES[0]
    op = op_named(mistake.op)

    def writes_first(**arguments: Any) -> Any:
        arguments["k_out"].fill_(1.0)
        return op(**arguments)

    monkeypatch.setattr(trials, "op_named", lambda name: writes_first)
    result = try_mistake(mistake, own_arguments(calls[mistake.op]))
    assert [check.ok for check in result.checks] == [True, True, False, True]


def test_try_mistake__notices_a_legal_call_that_fails(calls: dict[str, Arguments]) -> None:
    wrong = replace(MISTAKES[0], nearest=MISTAKES[0].change)
    result = try_mistake(wrong, calls[wrong.op])
    assert [check.ok for check in result.checks] == [True, True, True, False]
