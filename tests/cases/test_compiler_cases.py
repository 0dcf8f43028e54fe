"""Case 25 from the field: decorated ops under `torch.compile` give the eager result."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

import tensorpact as tp
from tensorpact import ops
from tensorpact.demo.cases import (
    SMALL_FUSED_KV,
    SMALL_KDA,
    fused_kv_call,
    kda_packed_call,
    kda_replayssm_call,
    materialize_call,
    own_arguments,
)

SETTINGS = {
    "default": {},
    "fullgraph": {"fullgraph": True},
    "dynamic": {"dynamic": True},
    "fullgraph-dynamic": {"fullgraph": True, "dynamic": True},
}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
OPS: dict[str, tuple[Any, Any]] = {
    "fused_kv": (
        ops.fused_kv_materialize,
        lambda rows: fused_kv_call(replace(SMALL_FUSED_KV, tokens=rows)),
    ),
    "kda_packed": (
        ops.kda_packed_decode,
        lambda rows: kda_packed_call(replace(SMALL_KDA, batch=rows)),
    ),
    "kda_replayssm": (
        ops.kda_replayssm_decode,
        lambda rows: kda_replayssm_call(replace(SMALL_KDA, batch=rows)),
    ),
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def same(found: Tensor, expected: Tensor) -> bool:
    return torch.equal(found.nan_to_num(nan=-77.0), expected.nan_to_num(nan=-77.0))


@each_setting
@pytest.mark.parametrize("name", OPS)
def test_case_25__valid_calls_of_the_ops_return_the_eager_result(name, settings):
    op, make = OPS[name]
    compiled = torch.compile(op, backend="aot_eager", **settings)
    for rows in (5, 8):
        eager, traced = own_arguments(make(rows)), own_arguments(make(rows))
        expected, found = op(**eager), compiled(**traced)
        assert all(map(same, found, expected))
        for argument, value in eager.items():  # what is written in place as well
            if isinstance(value, Tensor):
                assert same(traced[argument], value), argument


@pytest.mark.parametrize("fullgraph", [False, True], ids=["default", "fullgraph"])
def test_case_25__a_method_that_calls_an_op(fullgraph):
    eager, traced = materialize_call(SMALL_FUSED_KV), materialize_call(SMALL_FUSED_KV)
    eager["self"].materialize(eager["ctx_hidden"], eager["positions"], eager["write_layer_kv"])

    @torch.compile(backend="aot_eager", fullgraph=fullgraph)
    def compiled(hidden: Tensor, positions: Tensor) -> None:
        traced["self"].materialize(hidden, positions, traced["write_layer_kv"])

    compiled(traced["ctx_hidden"], traced["positions"])
    expected, found = eager["write_layer_kv"], traced["write_layer_kv"]
    assert found.layers == expected.layers == [0, 1, 2]
    assert all(map(same, found.keys + found.values, expected.keys + expected.values))


@tp.op(where=["heads % groups == 0"], let={"width": "heads*dim"}, zero={"batch": "an empty result"})
def gathered(
    pool: Annotated[Float[Tensor, "size width"], tp.LastDimContiguous()],
    slots: Int32[Tensor, "batch"],
    weight: Float[Tensor, "batch groups"] | None,
    heads: int,
    dim: int = 4,
) -> Float[Tensor, "batch heads dim"]:
    rows = pool[slots.long()].unflatten(1, (heads, dim))
    return rows if weight is None else rows * weight.mean(1)[:, None, None]


@each_setting
def test_case_25__unions_definitions_relations_and_results(settings):
    def caller(pool: Tensor, slots: Tensor, weight: Tensor | None) -> Tensor:
        return gathered(pool, slots, weight, 6) + 1

    compiled = torch.compile(caller, backend="aot_eager", **settings)
    pool = torch.randn(9, 30)[:, :24]
    for rows in (5, 8, 2):
        slots = torch.arange(rows, dtype=torch.int32)
        for weight in (torch.randn(rows, 3), None):
            assert same(compiled(pool, slots, weight), caller(pool, slots, weight))
