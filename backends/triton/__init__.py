"""The Triton backend: one kernel per op, for CUDA devices of compute capability 8.0 and above.

Importing it needs neither a GPU nor Triton: kernels are imported at their first launch.
"""

from tensorpact.backends.triton import fused_kv, kda_packed, kda_replayssm

__all__ = ["fused_kv", "kda_packed", "kda_replayssm"]
