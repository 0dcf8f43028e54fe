"""One decode step of the gated delta rule."""

import triton
import triton.language as tl

from tensorpact.backends.triton.kernels.kda_math import (
    fold_keys,
    log_decay,
    query_and_key,
    sigmoid,
    sum_keys,
)


@triton.jit(
    do_not_specialize=[
        "scale",
        "qkv_row",
        "a_row",
        "b_row",
        "state_slot",
        "state_head",
        "state_row",
    ],
    do_not_specialize_on_alignment=["b", "A_log", "slots"],
)
def kda_packed_kernel(
    mixed_qkv,
    a,
    dt_bias,
    state,
    out,
    b,
    A_log,
    slots,
    scale,
    b_row: tl.int64,
    qkv_row: tl.int64,
    a_row: tl.int64,
    state_slot: tl.int64,
    state_head: tl.int64,
    state_row: tl.int64,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    UNIT: tl.constexpr,
    UNIT_LENGTH: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
):
    """Take `TILES` tiles of `ROWS` value channels of one value head of one row in a program.

    With S the tile of the slot's state, `[ROWS, OUTER, INNER]` over key channels k = outer * INNER
    + inner::

        out   = S (exp(g) * q) + delta * (k . q)
        delta = beta * (v - S (exp(g) * k))
        S     = S * exp(g) + delta (outer) k

    Strides come in multiples of `UNIT` elements (b's excepted).
    """
    SPLIT: tl.constexpr = (V + ROWS * TILES - 1) // (ROWS * TILES)
    program = tl.program_id(0)
    head = (program // SPLIT) % HV
    batch = (program // (SPLIT * HV)).to(tl.int64)
    first_row = (program % SPLIT) * (ROWS * TILES)
    row = first_row + tl.arange(0, ROWS)
    out_row = out + (batch * HV + head) * V
    slot = tl.load(slots + batch).to(tl.int64)
    if slot < 0:
        for tile in tl.static_range(TILES):
            blank = tl.zeros([ROWS], dtype=out.dtype.element_ty)
            tl.store(out_row + row + tile * ROWS, blank, mask=row + tile * ROWS < V)
        return

    # The state is asked for first: all else is small and can arrive while it is on its way.
    keys = tl.arange(0, OUTER)[None, :, None] * INNER + tl.arange(0, INNER)[None, None, :]
    block = state + slot * (state_slot * UNIT) + head.to(tl.int64) * (state_head * UNIT) + keys
    step = (row.to(tl.int64) * (state_row * UNIT))[:, None, None]
    tile_step = state_row * (UNIT * ROWS)
    in_tile = (keys < K) & (row < V)[:, None, None]
    upcoming = tl.load(block + step, mask=in_tile, other=0.0)

    channel = tl.arange(0, OUTER * INNER)
    in_key = channel < K
    query_head = head // (HV // H)
    qkv = mixed_qkv + batch * (qkv_row * UNIT)
    q = tl.load(qkv + query_head * K + channel, mask=in_key, other=0.0).to(tl.float32)
    k = tl.load(qkv + (H + query_head) * K + channel, mask=in_key, other=0.0).to(tl.float32)
    x = tl.load(a + batch * (a_row * UNIT) + head * K + channel, mask=in_key, other=0.0)
    bias = tl.load(dt_bias + head * K + channel, mask=in_key, other=0.0).to(tl.float32)
    rate = tl.load(A_log + head).to(tl.float32)
    beta = sigmoid(tl.load(b + batch * b_row + head).to(tl.float32))
    decay = tl.exp(log_decay(x.to(tl.float32) + bias, rate, 0.0, False))
    q, k, kq = query_and_key(q, k, scale, UNIT_LENGTH)
    decay = fold_keys(decay, OUTER, INNER)
    q = fold_keys(q, OUTER, INNER)
    k = fold_keys(k, OUTER, INNER)

    # One tile ahead, since a load is not moved up over the stores before it.
    for tile in range(TILES):
        current = upcoming
        place = block + step
        value_row = row + tile * ROWS
        in_value = value_row < V
        if TILES > 1:
            block += tile_step
            next_row = value_row + ROWS
            in_next = (next_row < V) & (tile + 1 < TILES)
            upcoming = tl.load(block + step, mask=(keys < K) & in_next[:, None, None], other=0.0)
        v = tl.load(qkv + 2 * H * K + head * V + value_row, mask=in_value, other=0.0)
        decayed = current.to(tl.float32) * decay
        delta = beta * (v.to(tl.float32) - sum_keys(decayed * k))
        result = sum_keys(decayed * q) + delta * kq
        updated = decayed + delta[:, None, None] * k
        tl.store(
            place, updated.to(state.dtype.element_ty), mask=(keys < K) & in_value[:, None, None]
        )
        tl.store(out_row + value_row, result.to(out.dtype.element_ty), mask=in_value)
