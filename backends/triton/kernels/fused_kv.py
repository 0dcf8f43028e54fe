"""RMSNorm and RoPE of K and the copy of V, all layers in one launch."""

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=[
        "rows",
        "kv_token",
        "kv_layer",
        "weight_layer",
        "cos_row",
        "k_layer",
        "k_token",
        "k_head",
        "v_layer",
        "v_token",
        "v_head",
    ],
    do_not_specialize_on_alignment=["eps", "positions"],
)
def fused_kv_kernel(
    kv,
    k_norm_weight,
    cos_sin_cache,
    k_out,
    v_out,
    eps,
    positions,
    rows,
    kv_token: tl.int64,
    kv_layer: tl.int64,
    weight_layer: tl.int64,
    cos_row: tl.int64,
    k_layer: tl.int64,
    k_token: tl.int64,
    k_head: tl.int64,
    v_layer: tl.int64,
    v_token: tl.int64,
    v_head: tl.int64,
    LAYERS: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr,
):
    """Norm, rotate and copy `ROWS` token-heads of one layer in a program.

    Row r is head `r % HEADS` of token `r // HEADS`. With x the row of K `[HEAD_DIM]`, p the token's
    position and y = x * rsqrt(mean(x * x) + eps) * weight::

        k[i]        = y[i] * cos[p, i] - y[i + HALF] * sin[p, i]          i < HALF
        k[i + HALF] = y[i + HALF] * cos[p, i] + y[i] * sin[p, i]          i < HALF
        k[i]        = y[i]                                                i >= 2 * HALF

    The two rotary halves are separate tiles, so that partners meet in one thread. Strides come in
    multiples of `UNIT` elements: the product tells the compiler how far accesses are aligned.
    The layers of the same tokens run side by side, so that cosines are read from memory once.
    """
    program = tl.program_id(0)
    layer = (program % LAYERS).to(tl.int64)
    row = (program // LAYERS) * ROWS + tl.arange(0, ROWS)
    token = (row // HEADS).to(tl.int64)
    head = (row % HEADS).to(tl.int64)
    half = tl.arange(0, HALF_BLOCK)[None, :]
    column = tl.arange(0, VALUE_BLOCK)[None, :]
    inside = (row < rows)[:, None]
    first = inside & (half < HALF)
    in_value = inside & (column < HEAD_DIM)

    # Cosines wait for positions, so these come first; V needs no arithmetic and waits for nothing.
    position = tl.load(positions + token, mask=row < rows, other=0).to(tl.int64)
    source = kv + layer * (kv_layer * UNIT)
    source = (source + token * (kv_token * UNIT) + head * HEAD_DIM)[:, None]
    x1 = tl.load(source + half, mask=first, other=0.0).to(tl.float32)
    x2 = tl.load(source + (half + HALF), mask=first, other=0.0).to(tl.float32)
    value = tl.load(source + (HEADS * HEAD_DIM + column), mask=in_value, other=0.0)
    angles = cos_sin_cache + (position * (cos_row * UNIT))[:, None]
    cos = tl.load(angles + half, mask=first, other=0.0).to(tl.float32)
    sin = tl.load(angles + (half + HALF), mask=first, other=0.0).to(tl.float32)
    weight = k_norm_weight + layer * (weight_layer * UNIT)
    w1 = tl.load(weight + half, mask=half < HALF, other=0.0).to(tl.float32)
    w2 = tl.load(weight + (half + HALF), mask=half < HALF, other=0.0).to(tl.float32)
    layer_eps = tl.load(eps + layer).to(tl.float32)

    target = v_out + layer * (v_layer * UNIT) + token * (v_token * UNIT) + head * (v_head * UNIT)
    tl.store(target[:, None] + column, value, mask=in_value)
    target = k_out + layer * (k_layer * UNIT) + token * (k_token * UNIT) + head * (k_head * UNIT)
    target = target[:, None]
    squares = tl.sum(x1 * x1 + x2 * x2, axis=1)
    if REST_BLOCK > 0:
        rest = tl.arange(0, REST_BLOCK)[None, :] + 2 * HALF
        in_rest = inside & (rest < HEAD_DIM)
        x3 = tl.load(source + rest, mask=in_rest, other=0.0).to(tl.float32)
        w3 = tl.load(weight + rest, mask=rest < HEAD_DIM, other=0.0).to(tl.float32)
        squares += tl.sum(x3 * x3, axis=1)
        scale = tl.rsqrt(squares / HEAD_DIM + layer_eps)[:, None]
        y3 = x3 * scale * w3
        tl.store(target + rest, y3.to(k_out.dtype.element_ty), mask=in_rest)
    else:
        scale = tl.rsqrt(squares / HEAD_DIM + layer_eps)[:, None]
    y1 = x1 * scale * w1
    y2 = x2 * scale * w2
    k1 = y1 * cos - y2 * sin
    k2 = y2 * cos + y1 * sin
    tl.store(target + half, k1.to(k_out.dtype.element_ty), mask=first)
    tl.store(target + (half + HALF), k2.to(k_out.dtype.element_ty), mask=first)
