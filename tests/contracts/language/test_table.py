"""The printed contract."""

from __future__ import annotations

from typing import Annotated

import pytest
from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts import fused_kv, kda_packed, kda_replayssm
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import Contiguous, IndexInto, SameDtype
from tensorpact.contracts.language.rows import predicate, raises, relation
from tensorpact.contracts.language.table import contract_table


@contract(
    let={"kv_size": "heads * head_dim"},
    where=[
        "heads % 2 == 0",
        relation("d > 1", when="n > 4"),
        predicate(lambda n: True, "n is odd"),
    ],
    zero={"n": "nothing is written"},
    early_return="n == 0",
    errors=[
        raises("x-shape", "x must be {(n, d)}: got {actual}.", unless="x: rank dims[1]"),
        raises("heads", "{heads} is odd.", unless="heads % 2 == 0", when="n > 1"),
    ],
)
def small(
    x: Annotated[Float[Tensor, "n d"], Contiguous()],
    kv: Float[Tensor, "2*kv_size"],
    heads: int,
    head_dim: int = 16,
    idx: Annotated[Int32[Tensor, "n"] | None, IndexInto("d")] = None,
) -> Annotated[Float[Tensor, "n d"], SameDtype("x")]:
    """Do a small thing.

    More about it.
    """


def test_contract_table__prints_a_small_contract():
    text = contract_table(small)
    sections = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert sections[1:] == [
        "small(x, kv, heads, head_dim=16, idx=None)",
        "Do a small thing.",
        "Parameters",
        "Dims",
        "Let",
        "Relations",
        "May be 0",
        "Returns early",
        "Results",
        "Errors, in the order in which they are tried",
    ]
    for line in (
        "  x         Float[n, d]               contiguous",
        "  idx       Int32[n] | None  = None  index below d (not checked)",
        "  heads     parameter `heads`",
        "  n         axis 0 of `x`",
        "  kv_size  =  heads * head_dim",
        "  d > 1, when n > 4",
        "  n is odd (opaque: a Python function)",
        "  n  nothing is written",
        "  where n == 0; nothing else is looked at then",
        "  return  Float[n, d]  dtype of `x`",
        "  1. x-shape",
        "     x must be {(n, d)}: got {actual}.",
        "     unless x: rank dims[1]",
        "     unless heads % 2 == 0, when n > 1",
    ):
        assert " ".join(line.split()) in [" ".join(found.split()) for found in text.splitlines()]


def test_contract_table__aligns_its_columns():
    lines = contract_table(small).splitlines()
    rows = lines[lines.index("Parameters") + 1 : lines.index("Dims") - 1]
    kinds = {"x": "Float", "kv": "Float", "heads": "int", "head_dim": "int", "idx": "Int32"}
    assert {row.index(kinds[row.split()[0]]) for row in rows} == {12}


def test_str__is_the_table():
    assert str(small) == contract_table(small)


@pytest.mark.parametrize(
    "shipped",
    [
        fused_kv.fused_kv_materialize,
        fused_kv.fused_kv_materializer_materialize,
        kda_packed.kda_packed_decode,
        kda_replayssm.kda_replayssm_decode,
    ],
)
def test_contract_table__stays_within_its_width(shipped):
    text = contract_table(shipped)
    assert max(map(len, text.splitlines())) <= 100
    assert all(row.slug in text for row in shipped.errors)


def test_contract_table__leaves_out_empty_sections():
    @contract()
    def bare() -> None: ...

    assert contract_table(bare).splitlines()[1:] == ["bare()", "", "Results", "  None"]
