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

    So a step that appends streams S once and never forms `decayed`; a flush does, tile by tile, in
    the same pass. Strides come in multiples of `UNIT` elements (b's excepted).
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
    keys = tl.arange(0, OUTER)[:, None, None] * INNER + tl.arange(0, INNER)[None, None, :]
    block = state + slot * (state_slot * UNIT) + wide_head * (state_head * UNIT) + keys
    step = (row.to(tl.int64) * (state_row * UNIT))[None, :, None]
    tile_step = state_row * (UNIT * ROWS)
    in_tile = (keys < K) & (row < V)[None, :, None]
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

    # Entry j needs the gates after it, so the tile is loaded one entry ahead and ends with the
    # token's own gate; entries past the committed ones may hold anything and are not read.
    entry = tl.arange(0, ENTRIES)
    ring_g = g_cache + slot * (g_slot * UNIT) + wide_head * (g_head * UNIT) + channel
    ring_k = k_cache + slot * (k_slot * UNIT) + query_head.to(tl.int64) * (k_head * UNIT) + channel
    ring_d = d_cache + slot * (d_slot * UNIT) + wide_head * (d_head * UNIT)
    next_g = ring_g[None, :] + ((entry + 1).to(tl.int64) * (g_entry * UNIT))[:, None]
    in_ring = (entry < cursor)[:, None] & in_key[None, :]
    not_last = (entry + 1 < cursor)[:, None] & in_key[None, :]
    gates = tl.load(next_g, mask=not_last, other=0.0)
    first_gate = tl.load(ring_g, mask=channel < tl.where(cursor > 0, K, 0), other=0.0)
    old_k = ring_k[None, :] + (entry.to(tl.int64) * (k_entry * UNIT))[:, None]
    w = tl.load(old_k, mask=in_ring, other=0.0).to(tl.float32)

    b_value = tl.load(b + batch * b_row + head)
    beta = sigmoid(b_value.to(tl.float32)).to(b_value.dtype).to(tl.float32)
    g = log_decay(x + bias, rate, lower_bound, BOUNDED)
    q, k, kq = query_and_key(q, k, scale, UNIT_LENGTH)

    gates = tl.where((entry == cursor - 1)[:, None], g[None, :], gates)
    w *= tl.exp(tl.cumsum(gates, axis=0, reverse=True))
    w_q = tl.sum(w * q[None, :], axis=1)[:, None]
    w_k = tl.sum(w * k[None, :], axis=1)[:, None]
    total = tl.where(cursor > 0, first_gate + tl.sum(gates, axis=0), g)
    decay = tl.exp(total)
    decayed_q = fold_keys(decay * q, OUTER, INNER)
    decayed_k = fold_keys(decay * k, OUTER, INNER)

    if (not flush) & (first_row == 0):
        place = cursor.to(tl.int64)
        tl.store(ring_g + place * (g_entry * UNIT), g, mask=in_key)
        if head % GROUP == 0:
            new_k = k.to(k_cache.dtype.element_ty)
            tl.store(ring_k + place * (k_entry * UNIT), new_k, mask=in_key)

    entry_d = (entry.to(tl.int64) * (d_entry * UNIT))[:, None]
    for tile in tl.static_range(TILES):
        current = upcoming.to(tl.float32)
        in_current = in_tile
        place = block + step
        if tile + 1 < TILES:
            block += tile_step
            in_tile = (keys < K) & (row + (tile + 1) * ROWS < V)[None, :, None]
            upcoming = tl.load(block + step, mask=in_tile, other=0.0)
        value_row = row + tile * ROWS
        in_value = value_row < V
        v = tl.load(qkv + 2 * H * K + head * V + value_row, mask=in_value, other=0.0)
        in_d = (entry < cursor)[:, None] & in_value[None, :]
        d = tl.load(ring_d + entry_d + value_row[None, :], mask=in_d, other=0.0)
        wide_d = d.to(tl.float32)
        predicted = sum_keys(current * decayed_k) + tl.sum(wide_d * w_k, axis=0)
        delta = beta * (v.to(tl.float32) - predicted)
        result = sum_keys(current * decayed_q) + tl.sum(wide_d * w_q, axis=0) + delta * kq
        tl.store(out_row + value_row, result.to(out.dtype.element_ty), mask=in_value)
        if flush:
            # The ring's part is a product of rank L. Half-precision deltas are exact as they are;
            # the weights go in as two half-precision terms, which keeps nearly all of float32.
            if WIDE_DOT or d.dtype == tl.float32:
                recent = tl.dot(tl.trans(wide_d), w, input_precision="tf32x3")
            else:
                high = w.to(d.dtype)
                low = (w - high.to(tl.float32)).to(d.dtype)
                recent = tl.dot(tl.trans(d), low)
                recent = tl.dot(tl.trans(d), high, recent)
            recent = tl.permute(tl.reshape(recent, [ROWS, OUTER, INNER]), [1, 0, 2])
            updated = current * fold_keys(decay, OUTER, INNER) + recent
            updated += delta[None, :, None] * fold_keys(k, OUTER, INNER)
            tl.store(place, updated.to(state.dtype.element_ty), mask=in_current)
        else:
            new_d = ring_d + cursor.to(tl.int64) * (d_entry * UNIT) + value_row
            tl.store(new_d, delta.to(d_cache.dtype.element_ty), mask=in_value)
