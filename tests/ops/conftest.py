"""Valid calls of every op of the project, at small sizes with pairwise distinct dims."""

import pytest

from tensorpact.demo.cases import (
    SMALL_FUSED_KV,
    SMALL_KDA,
    fused_kv_call,
    kda_packed_call,
    kda_replayssm_call,
    materialize_call,
)

CALLS = {
    "fused_kv_materialize": lambda seed=0: fused_kv_call(SMALL_FUSED_KV, seed=seed),
    "FusedKVMaterializer.materialize": lambda seed=0: materialize_call(SMALL_FUSED_KV, seed=seed),
    "kda_packed_decode": lambda seed=0: kda_packed_call(SMALL_KDA, seed=seed),
    "kda_replayssm_decode": lambda seed=0: kda_replayssm_call(SMALL_KDA, seed=seed),
}


@pytest.fixture(params=sorted(CALLS))
def op_name(request):
    """Run a test for every op."""
    return request.param


@pytest.fixture
def valid_call(op_name):
    """Make a valid call of the op from a seed."""
    return CALLS[op_name]
