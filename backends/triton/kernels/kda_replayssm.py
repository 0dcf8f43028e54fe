"""One decode step of the gated delta rule, with a ring of recent tokens beside the state."""

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
        "lower_bound",
        "qkv_row",
        "b_row",
        "state_slot",
        "state_head",
        "state_row",
        "d_slot",
        "d_head",
        "d_entry",
        "k_slot",
        "k_head",
        "k_entry",
        "g_slot",
        "g_head",
        "g_entry",
    ],
    do_not_specialize_on_alignment=["b", "A_log", "slots", "write_pos", "force_flush"],
)
def kda_replayssm_kernel(
    mixed_qkv,
    a,
    dt_bias,
    state,
    d_cache,
    k_cache,
    g_cache,
    out,
    b,
    A_log,
    slots,
    write_pos,
    force_flush,
    scale,
    lower_bound,
    b_row: tl.int64,
    qkv_row: tl.int64,
    state_slot: tl.int64,
    state_head: tl.int64,
    state_row: tl.int64,
    d_slot: tl.int64,
    d_head: tl.int64,
    d_entry: tl.int64,
    k_slot: tl.int64,
    k_head: tl.int64,
    k_entry: tl.int64,
    g_slot: tl.int64,
    g_head: tl.int64,
    g_entry: tl.int64,
    H: tl.constexpr,
    HV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    L: tl.constexpr,
    UNIT: tl.constexpr,
    FORCED: tl.constexpr,
    UNIT_LENGTH: tl.constexpr,
    BOUNDED: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
    ENTRIES: tl.constexpr,
    WIDE_DOT: tl.constexpr,
):
    """Take `TILES` tiles of `ROWS` value channels of one value head of one row in a program.

    The ring's entries j < c are committed. With S the slot's checkpoint, g the token's gate and
    F_j = g_{j+1} + ... + g_{c-1} + g, the decay from just after entry j to now::

        decayed   = S * exp(F_{-1}) + sum_j d_j (outer) w_j,      w_j = k_j * exp(F_j)
        decayed q = S (exp(F_{-1}) * q) + sum_j d_j * (w_j . q)
        decayed k = S (exp(F_{-1}) * k) + sum_j d_j * (w_j . k)
        delta     = beta * (v - decayed k)
        out       = decayed q + delta * (k . q)

    So a step that appends streams S once, never forms `decayed`, and stores nothing until the end; a
    flush forms it, tile by tile, in the same pass. Strides come in multiples of `UNIT` elements
    (b's excepted).
    """
    SPLIT: tl.constexpr = (V + ROWS * TILES - 1) // (ROWS * TILES)
    GROUP: tl.constexpr = HV // H
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
    cursor = tl.load(write_pos + batch)
    wide_head = head.to(tl.int64)
    keys = tl.arange(0, OUTER)[None, :, None] * INNER + tl.arange(0, INNER)[None, None, :]
    block = state + slot * (state_slot * UNIT) + wide_head * (state_head * UNIT) + keys
    step = (row.to(tl.int64) * (state_row * UNIT))[:, None, None]
    tile_step = state_row * (UNIT * ROWS)
    in_tile = (keys < K) & (row < V)[:, None, None]
    upcoming = tl.load(block + step, mask=in_tile, other=0.0)

    flush = cursor == L - 1
    if FORCED:
        flush = flush | (tl.load(force_flush + batch) != 0)
    channel = tl.arange(0, OUTER * INNER)
    in_key = channel < K
    query_head = head // GROUP
    qkv = mixed_qkv + batch * (qkv_row * UNIT)
    q = tl.load(qkv + query_head * K + channel, mask=in_key, other=0.0).to(tl.float32)
    k = tl.load(qkv + (H + query_head) * K + channel, mask=in_key, other=0.0).to(tl.float32)
    x = tl.load(a + (batch * HV + head) * K + channel, mask=in_key, other=0.0).to(tl.float32)
    bias = tl.load(dt_bias + head * K + channel, mask=in_key, other=0.0).to(tl.float32)
    rate = tl.load(A_log + head).to(tl.float32)

    # Latest entry first: then the decays since an entry are a running sum from the token's own gate
    # on, and the sum of all is the checkpoint's. Entries past the committed ones may hold anything
    # and are not read.
    age = tl.arange(0, ENTRIES)
    entry = (cursor - 1 - age).to(tl.int64)
    ring_g = g_cache + slot * (g_slot * UNIT) + wide_head * (g_head * UNIT) + channel
    ring_k = k_cache + slot * (k_slot * UNIT) + query_head.to(tl.int64) * (k_head * UNIT) + channel
    ring_d = d_cache + slot * (d_slot * UNIT) + wide_head * (d_head * UNIT)
    old_g = ring_g[None, :] + ((entry + 1) * (g_entry * UNIT))[:, None]
    in_gates = ((age > 0) & (age <= cursor))[:, None] & in_key[None, :]
    gates = tl.load(old_g, mask=in_gates, other=0.0)
    old_k = ring_k[None, :] + (entry * (k_entry * UNIT))[:, None]
    in_ring = (age < cursor)[:, None] & in_key[None, :]
    w = tl.load(old_k, mask=in_ring, other=0.0).to(tl.float32)
    values = qkv + 2 * H * K + head * V
    ring_row = (entry * (d_entry * UNIT))[:, None]
    next_d, next_v = _ring_rows(ring_d + ring_row, values, age < cursor, row, row < V)
    b_value = tl.load(b + batch * b_row + head)
    beta = sigmoid(b_value.to(tl.float32)).to(b_value.dtype).to(tl.float32)
    g = log_decay(x + bias, rate, lower_bound, BOUNDED)
    q, k, kq = query_and_key(q, k, scale, UNIT_LENGTH)

    gates = tl.where((age == 0)[:, None], g[None, :], gates)
    w *= tl.exp(tl.cumsum(gates, axis=0))
    w_q = tl.sum(w * q[None, :], axis=1)
    w_k = tl.sum(w * k[None, :], axis=1)
    decay = tl.exp(tl.sum(gates, axis=0))
    decayed_q = fold_keys(decay * q, OUTER, INNER)
    decayed_k = fold_keys(decay * k, OUTER, INNER)

    appended = cursor.to(tl.int64)
    new_d = ring_d + appended * (d_entry * UNIT)
    if (not flush) & (first_row == 0):
        tl.store(ring_g + appended * (g_entry * UNIT), g, mask=in_key)
        if head % GROUP == 0:
            new_k = k.to(k_cache.dtype.element_ty)
            tl.store(ring_k + appended * (k_entry * UNIT), new_k, mask=in_key)

    if flush:
        for tile in range(TILES):
            if tile > 0:
                in_row = row < V
                mask = (keys < K) & in_row[:, None, None]
                upcoming = tl.load(block + step, mask=mask, other=0.0)
                next_d, next_v = _ring_rows(
                    ring_d + ring_row, values, age < cursor, row, in_row
                )
            current = upcoming.to(tl.float32)
            d = next_d
            wide_d = d.to(tl.float32)
            predicted = sum_keys(current * decayed_k) + tl.sum(wide_d * w_k[:, None], axis=0)
            delta = beta * (next_v.to(tl.float32) - predicted)
            result = sum_keys(current * decayed_q) + tl.sum(wide_d * w_q[:, None], axis=0)
            result += delta * kq
            tl.store(out_row + row, result.to(out.dtype.element_ty), mask=row < V)
            # The ring's part is a product of rank L. Half-precision deltas are exact as they are;
            # the weights go in as two half-precision terms, which keeps nearly all of float32.
            if WIDE_DOT or d.dtype == tl.float32:
                recent = tl.dot(tl.trans(wide_d), w, input_precision="tf32x3")
            else:
                high = w.to(d.dtype)
                low = (w - high.to(tl.float32)).to(d.dtype)
                recent = tl.dot(tl.trans(d), high, tl.dot(tl.trans(d), low))
            updated = current * fold_keys(decay, OUTER, INNER)
            updated += tl.reshape(recent, [ROWS, OUTER, INNER])
            updated += delta[:, None, None] * fold_keys(k, OUTER, INNER)
            in_block = (keys < K) & (row < V)[:, None, None]
            tl.store(block + step, updated.to(state.dtype.element_ty), mask=in_block)
            block += tile_step
            row += ROWS
    else:
        # One tile ahead, since a load is not moved up over the stores before it.
        for tile in range(TILES):
            current = upcoming.to(tl.float32)
            d = next_d.to(tl.float32)
            v = next_v.to(tl.float32)
            in_row = row < V
            if TILES > 1:
                block += tile_step
                in_next = (row + ROWS < V) & (tile + 1 < TILES)
                mask = (keys < K) & in_next[:, None, None]
                upcoming = tl.load(block + step, mask=mask, other=0.0)
                next_d, next_v = _ring_rows(
                    ring_d + ring_row, values, age < cursor, row + ROWS, in_next
                )
            predicted = sum_keys(current * decayed_k) + tl.sum(d * w_k[:, None], axis=0)
            delta = beta * (v - predicted)
            result = sum_keys(current * decayed_q) + tl.sum(d * w_q[:, None], axis=0)
            result += delta * kq
            tl.store(out_row + row, result.to(out.dtype.element_ty), mask=in_row)
            tl.store(new_d + row, delta.to(d_cache.dtype.element_ty), mask=in_row)
            row += ROWS


@triton.jit
def _ring_rows(ring_d, values, committed, row, in_row):
    """Committed deltas `[ENTRIES, ROWS]` and the token's values `[ROWS]` of a tile."""
    mask = committed[:, None] & in_row[None, :]
    d = tl.load(ring_d + row[None, :], mask=mask, other=0.0)
    return d, tl.load(values + row, mask=in_row, other=0.0)
