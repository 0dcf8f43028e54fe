"""What users call: one entry point per op, imported when it is first asked for."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorpact.ops.fused_kv import fused_kv_materialize
    from tensorpact.ops.fused_kv_materializer import FusedKVMaterializer
    from tensorpact.ops.kda_packed import kda_packed_decode
    from tensorpact.ops.kda_replayssm import kda_replayssm_decode
    from tensorpact.ops.transformers_adapter import materializer_from_attention

_HOMES = {
    "fused_kv_materialize": "fused_kv",
    "FusedKVMaterializer": "fused_kv_materializer",
    "kda_packed_decode": "kda_packed",
    "kda_replayssm_decode": "kda_replayssm",
    "materializer_from_attention": "transformers_adapter",
}

__all__ = [
    "FusedKVMaterializer",
    "fused_kv_materialize",
    "kda_packed_decode",
    "kda_replayssm_decode",
    "materializer_from_attention",
]


def __getattr__(name: str) -> Any:
    """Import the module of an op when the op is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the ops too that are not imported yet."""
    return sorted({*globals(), *__all__})
