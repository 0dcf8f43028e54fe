"""What the KDA (Kimi Delta Attention) decode kernels share: gates, lengths, sums over keys."""

import triton
import triton.language as tl


@triton.jit
def softplus(x):
    """`log(1 + exp(x))`, and x itself above 20; accurate for small results too."""
    y = tl.exp(tl.minimum(x, 20.0))
    # log(1 + y) loses y's last digits where y is small; four terms of the series do not.
    series = y * (1.0 - y * (0.5 - y * (0.33333334 - y * 0.25)))
    return tl.where(x > 20.0, x, tl.where(y < 0.03, series, tl.log(1.0 + y)))


@triton.jit
def log_decay(x, A_log, lower_bound, BOUNDED: tl.constexpr):
    """Gate of `x = a + dt_bias`: `-exp(A_log) * softplus(x)`, or the bounded form.

    The bounded form is `lower_bound * sigmoid(exp(A_log) * x)`.
    """
    rate = tl.exp(A_log)
    if BOUNDED:
        g = lower_bound * sigmoid(rate * x)
    else:
        g = -rate * softplus(x)
    return g


@triton.jit
def sigmoid(x):
    """`1 / (1 + exp(-x))`."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _add_three(a, b, c, d, e, f):
    return a + d, b + e, c + f


@triton.jit
def query_and_key(q, k, scale, UNIT_LENGTH: tl.constexpr):
    """Scaled q, k and `k . q`, from the raw q and k `[K]` in float32.

    With `UNIT_LENGTH` both are divided by `sqrt(sum of squares + 1e-6)` first. The three sums share
    one reduction, since each costs a round trip through shared memory.
    """
    if UNIT_LENGTH:
        qq, kk, kq = tl.reduce((q * q, k * k, k * q), 0, _add_three)
        q_factor = tl.rsqrt(qq + 1e-6) * scale
        k_factor = tl.rsqrt(kk + 1e-6)
        q *= q_factor
        k *= k_factor
        kq *= q_factor * k_factor
    else:
        q *= scale
        kq = tl.sum(k * q, axis=0)
    return q, k, kq


@triton.jit
def fold_keys(x, OUTER: tl.constexpr, INNER: tl.constexpr):
    """Lay a vector over key channels `[OUTER * INNER]` beside a state tile: `[1, OUTER, INNER]`."""
    return tl.reshape(x, [1, OUTER, INNER])


@triton.jit
def sum_keys(x):
    """Sum of a state tile `[rows, OUTER, INNER]` over its key channels: `[rows]`.

    The outer axis lies in each thread's registers, so that only a few lanes have to exchange sums.
    """
    return tl.sum(tl.sum(x, axis=1), axis=1)
