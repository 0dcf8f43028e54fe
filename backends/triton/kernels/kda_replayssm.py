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
    CHUNK: tl.constexpr,
    AHEAD: tl.constexpr,
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

    So a step that appends streams S once and never forms `decayed`; a flush forms it, tile by tile,
    in the same pass. Strides come in multiples of `UNIT` elements
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
    cursor = tl.load(write_pos + batch)
    channel = tl.arange(0, OUTER * INNER)
    in_key = channel < K
    query_head = head // GROUP
    qkv = mixed_qkv + batch * (qkv_row * UNIT)
    q = tl.load(qkv + query_head * K + channel, mask=in_key, other=0.0).to(tl.float32)
    k = tl.load(qkv + (H + query_head) * K + channel, mask=in_key, other=0.0).to(tl.float32)
    x = tl.load(a + (batch * HV + head) * K + channel, mask=in_key, other=0.0).to(tl.float32)
    bias = tl.load(dt_bias + head * K + channel, mask=in_key, other=0.0).to(tl.float32)
    rate = tl.load(A_log + head).to(tl.float32)
    b_value = tl.load(b + batch * b_row + head)
    if slot < 0:
        for tile in tl.static_range(TILES):
            blank = tl.zeros([ROWS], dtype=out.dtype.element_ty)
            tl.store(out_row + row + tile * ROWS, blank, mask=row + tile * ROWS < V)
        return

    # The first rows of the state travel while the ring is worked on.
    wide_head = head.to(tl.int64)
    keys = tl.arange(0, OUTER)[None, :, None] * INNER + tl.arange(0, INNER)[None, None, :]
    block = state + slot * (state_slot * UNIT) + wide_head * (state_head * UNIT)
    _prefetch(block, first_row, state_row * UNIT, K, V, AHEAD, OUTER * INNER, WIDE_DOT)
    stream = block
    block += keys
    step = (row.to(tl.int64) * (state_row * UNIT))[:, None, None]
    tile_step = state_row * (UNIT * ROWS)
    in_tile = (keys < K) & (row < V)[:, None, None]
    upcoming = tl.load(block + step, mask=in_tile, other=0.0)

    flush = cursor == L - 1
    if FORCED:
        flush = flush | (tl.load(force_flush + batch) != 0)
    # Latest entry first: then the decays since an entry are a running sum from the token's own gate
    # on, and the sum of all is the checkpoint's. Entries past the committed ones may hold anything
    # and are not read.
    age = tl.arange(0, ENTRIES)
    entry = (cursor - 1 - age).to(tl.int64)
    ring_g = g_cache + slot * (g_slot * UNIT) + wide_head * (g_head * UNIT)
    ring_k = k_cache + slot * (k_slot * UNIT) + query_head.to(tl.int64) * (k_head * UNIT)
    ring_d = d_cache + slot * (d_slot * UNIT) + wide_head * (d_head * UNIT)
    values = qkv + 2 * H * K + head * V
    ring_row = (entry * (d_entry * UNIT))[:, None]
    next_d, next_v = _ring_rows(ring_d + ring_row, values, age < cursor, row, row < V)
    chunk_age = tl.arange(0, CHUNK)
    old_g, old_k = _ring_keys(
        ring_g, ring_k, g_entry * UNIT, k_entry * UNIT, chunk_age, cursor, channel, K
    )
    beta = sigmoid(b_value.to(tl.float32)).to(b_value.dtype).to(tl.float32)
    g = log_decay(x + bias, rate, lower_bound, BOUNDED)
    q, k, kq = query_and_key(q, k, scale, UNIT_LENGTH)

    if flush:
        ring_gates, ring_keys = _ring_keys(
            ring_g, ring_k, g_entry * UNIT, k_entry * UNIT, age, cursor, channel, K
        )
        all_w, flush_total = _weights(ring_gates, ring_keys, g, tl.zeros_like(g), age)
        w_q = tl.sum(all_w * q[None, :], axis=1)
        w_k = tl.sum(all_w * k[None, :], axis=1)
        decay = tl.exp(flush_total)
        decayed_q = fold_keys(decay * q, OUTER, INNER)
        decayed_k = fold_keys(decay * k, OUTER, INNER)
        for tile in range(TILES):
            if tile > 0:
                in_row = row < V
                mask = (keys < K) & in_row[:, None, None]
                upcoming = tl.load(block + step, mask=mask, other=0.0)
                next_d, next_v = _ring_rows(ring_d + ring_row, values, age < cursor, row, in_row)
            _prefetch(
                stream, first_row + tile * ROWS + AHEAD, state_row * UNIT, K, V, ROWS,
                OUTER * INNER, WIDE_DOT,
            )  # fmt: skip
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
                recent = tl.dot(tl.trans(wide_d), all_w, input_precision="tf32x3")
            else:
                high = all_w.to(d.dtype)
                low = (all_w - high.to(tl.float32)).to(d.dtype)
                recent = tl.dot(tl.trans(d), high, tl.dot(tl.trans(d), low))
            updated = current * fold_keys(decay, OUTER, INNER)
            updated += tl.reshape(recent, [ROWS, OUTER, INNER])
            updated += delta[:, None, None] * fold_keys(k, OUTER, INNER)
            in_block = (keys < K) & (row < V)[:, None, None]
            tl.store(block + step, updated.to(state.dtype.element_ty), mask=in_block)
            block += tile_step
            row += ROWS
    else:
        appended = cursor.to(tl.int64)
        new_d = ring_d + appended * (d_entry * UNIT)
        # Only the sums of the weights are needed: a long ring is gone through in chunks, which
        # keeps registers free, as far as it is filled.
        chunks = tl.arange(0, ENTRIES // CHUNK)[:, None]
        sums_q = tl.zeros([ENTRIES // CHUNK, CHUNK], dtype=tl.float32)
        sums_k = tl.zeros([ENTRIES // CHUNK, CHUNK], dtype=tl.float32)
        total = tl.zeros_like(g)
        for chunk in range(cursor // CHUNK + 1):
            chunk_g = old_g
            chunk_k = old_k
            old_g, old_k = _ring_keys(
                ring_g, ring_k, g_entry * UNIT, k_entry * UNIT, chunk_age + CHUNK, cursor,
                channel, K,
            )  # fmt: skip
            w, total = _weights(chunk_g, chunk_k, g, total, chunk_age)
            sums_q = tl.where(chunks == chunk, tl.sum(w * q[None, :], axis=1)[None, :], sums_q)
            sums_k = tl.where(chunks == chunk, tl.sum(w * k[None, :], axis=1)[None, :], sums_k)
            chunk_age += CHUNK
        w_q = tl.reshape(sums_q, [ENTRIES])
        w_k = tl.reshape(sums_k, [ENTRIES])
        decay = tl.exp(total)
        decayed_q = fold_keys(decay * q, OUTER, INNER)
        decayed_k = fold_keys(decay * k, OUTER, INNER)
        # One tile ahead, since a load is not moved up over the stores before it.
        for tile in range(TILES):
            _prefetch(
                stream, first_row + tile * ROWS + AHEAD, state_row * UNIT, K, V, ROWS,
                OUTER * INNER, WIDE_DOT,
            )  # fmt: skip
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
        if first_row == 0:
            tl.store(ring_g + appended * (g_entry * UNIT) + channel, g, mask=in_key)
            if head % GROUP == 0:
                new_k = k.to(k_cache.dtype.element_ty)
                tl.store(ring_k + appended * (k_entry * UNIT) + channel, new_k, mask=in_key)


@triton.jit
def _ring_rows(ring_d, values, committed, row, in_row):
    """Load the committed deltas `[ENTRIES, ROWS]` and the token's values `[ROWS]` of a tile."""
    mask = committed[:, None] & in_row[None, :]
    d = tl.load(ring_d + row[None, :], mask=mask, other=0.0)
    return d, tl.load(values + row, mask=in_row, other=0.0)


@triton.jit
def _ring_keys(ring_g, ring_k, g_entry, k_entry, age, cursor, channel, K: tl.constexpr):
    """Gates and keys `[ages, K]` of entries counted back from the latest, which has age 0.

    A gate belongs to the entry after: the row of age 0 is left for the token's own, and there is
    one more, of age `cursor`, which only the checkpoint decays by.
    """
    entry = (cursor - 1 - age).to(tl.int64)[:, None]
    in_key = (channel < K)[None, :]
    in_gates = ((age > 0) & (age <= cursor))[:, None] & in_key
    g = tl.load(ring_g + (entry + 1) * g_entry + channel[None, :], mask=in_gates, other=0.0)
    in_ring = (age < cursor)[:, None] & in_key
    k = tl.load(ring_k + entry * k_entry + channel[None, :], mask=in_ring, other=0.0)
    return g, k


@triton.jit
def _weights(old_g, old_k, g, total, age):
    """Keys times their decay until now `[ages, K]`, and the decay `[K]` (its log) of all ages."""
    gates = tl.where((age == 0)[:, None], g[None, :], old_g)
    since = tl.cumsum(gates, axis=0) + total[None, :]
    return old_k.to(tl.float32) * tl.exp(since), total + tl.sum(gates, axis=0)


@triton.jit
def _prefetch(
    block, first, state_row, K, V,
    ROWS: tl.constexpr, KEYS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Fetch `ROWS` rows of a head's state, from `first` on, into L2; rows past the end are none."""
    if ROWS > 0 and not INTERPRETED:
        ITEMS: tl.constexpr = 1024 // block.dtype.element_ty.primitive_bitwidth  # in 128 bytes
        LINES: tl.constexpr = max(KEYS // ITEMS, 1)
        row = first + tl.arange(0, ROWS)
        row = tl.where(row < V, row, 0).to(tl.int64)
        line = tl.minimum(tl.arange(0, LINES) * ITEMS, K - 1)
        address = (block + row[:, None] * state_row + line[None, :]).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [address], tl.int32, False, 1
        )
