"""The eager backend: the readable reference of every op, for any device and dtype."""

from tensorpact.backends.eager import fused_kv, kda_packed, kda_replayssm

__all__ = ["fused_kv", "kda_packed", "kda_replayssm"]
