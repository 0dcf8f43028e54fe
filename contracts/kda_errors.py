"""The documented errors that the KDA decode ops share, in their order."""

from __future__ import annotations

from tensorpact.contracts.language.rows import ErrorRow, raises

_SHAPES = {
    "mixed_qkv": "[batch, 2*H*K + HV*V]",
    "a": "[batch, HV*K]",
    "b": "[batch, HV]",
    "A_log": "[HV]",
    "dt_bias": "[HV*K]",
}


def rank_rows(inputs: tuple[str, ...]) -> tuple[ErrorRow, ...]:
    """Ranks and last-axis layout of the inputs that both ops take, and the common device."""
    rows = [
        raises(
            f"kda-{name.lower().replace('_', '-')}-rank-layout",
            f"KDA `{name}` must be {_SHAPES[name]} with a contiguous last axis: got {{actual}}."
            if name in _SHAPES
            else f"KDA `{name}` must be a 1D tensor: got {{actual}}.",
            unless=f"{name}: rank layout" if name in _SHAPES else f"{name}: rank",
            cause=f"`{name}` has other axes than the op reads, or is a view whose rows are not "
            "dense.",
            fix=f"pass `{name}` as {_SHAPES.get(name, '[batch]')}, with `.contiguous()` where it "
            "is a strided view.",
        )
        for name in inputs
    ]
    return (
        *rows,
        raises(
            "kda-out-contiguous",
            "KDA `out` must be contiguous: got {actual}.",
            unless="out: layout",
            cause="`out` is a strided or expanded view.",
            fix="allocate `out` with torch.empty.",
        ),
        device_row(
            "kda-one-device",
            ("a", "b", "A_log", "dt_bias", "initial_state", "out", "ssm_state_indices"),
        ),
    )


def device_row(slug: str, tensors: tuple[str, ...]) -> ErrorRow:
    """Tensors that have to lie where `mixed_qkv` lies."""
    return raises(
        slug,
        "KDA tensors must be on one device: `{argument}` is on {actual}, expected {expected}.",
        unless=[f"{name}: device" for name in tensors],
        cause="one tensor was left on another device.",
        fix="move it to the device of `mixed_qkv`.",
    )


def size_rows(gate: str, bias: str) -> tuple[ErrorRow, ...]:
    """Batch sizes, the state, the widths that follow from it, and the packed width."""
    return (
        raises(
            "kda-batch-sizes",
            "KDA inputs must agree on the batch size: `{argument}` has {actual}, "
            "`mixed_qkv` has {batch} rows.",
            unless=[f"{n}: dims[0]" for n in ("a", "b", "ssm_state_indices", "out")],
            cause="the rows of one tensor were sliced and those of another were not.",
            fix="slice every per-row tensor with the same rows.",
        ),
        raises(
            "kda-state-rank-layout",
            "KDA `initial_state` must be [slots, HV, V, K] with a contiguous last axis: "
            "got {actual}.",
            unless="initial_state: rank layout",
            cause="the state of one slot, or a transposed view, was passed.",
            fix="pass the whole pool (or one page of it) with K as the last axis.",
        ),
        raises(
            "kda-a-width",
            f"KDA `a` must have shape {gate}: got {{tuple(a.shape)}} with HV={{HV}}, K={{K}}.",
            unless="a: dims[1:]",
            cause="the gate holds one value per value head and key channel, heads outermost.",
            fix="project `a` to HV*K values a row; do not swap the head and channel axes.",
        ),
        raises(
            "kda-b-width",
            "KDA `b` must have shape {(batch, HV)}: got {tuple(b.shape)}.",
            unless="b: dims[1]",
            cause="`b` holds one value per row and value head.",
            fix="project `b` to HV values a row.",
        ),
        raises(
            "kda-a-log-width",
            "KDA `A_log` must have shape {(HV,)}: got {tuple(A_log.shape)}.",
            unless="A_log: dims",
            cause="`A_log` holds one value per value head.",
            fix="pass the value heads of this rank only.",
        ),
        raises(
            "kda-dt-bias-width",
            f"KDA `dt_bias` must have shape {bias}: got {{tuple(dt_bias.shape)}} with HV={{HV}}, "
            "K={K}.",
            unless="dt_bias: dims",
            cause="the bias holds one value per value head and key channel, heads outermost.",
            fix="pass the value heads of this rank only; do not swap the axes.",
        ),
        raises(
            "kda-out-shape",
            "KDA `out` must have shape {(batch, 1, HV, V)}: got {tuple(out.shape)}.",
            unless="out: rank dims",
            cause="`out` was allocated for other rows or heads.",
            fix="allocate `out` as [batch, 1, HV, V].",
        ),
        raises(
            "kda-packed-width",
            "KDA `mixed_qkv` is too narrow: got {mixed_qkv.shape[1]} values a row, of which "
            "V*HV = {HV * V} are values, so nothing is left for q and k.",
            unless="mixed_qkv.shape[1] > HV * V",
            cause="`mixed_qkv` lacks q and k, or belongs to fewer heads than the state.",
            fix="concatenate q, k and v of the heads of this rank.",
        ),
        raises(
            "kda-query-width",
            "KDA `mixed_qkv` has {mixed_qkv.shape[1] - HV * V} values a row for q and k, which is "
            "no positive multiple of 2*K = {2 * K}.",
            unless="mixed_qkv: dims[1]",
            cause="q and k have H heads of K channels each; this width gives no whole H.",
            fix="check K against the state's last axis, and the order q | k | v.",
        ),
        raises(
            "kda-head-groups",
            "KDA needs HV to be a multiple of H: got HV={HV}, H={H}.",
            unless="HV % H == 0",
            cause="every query head serves the same number of value heads.",
            fix="check how heads are split over ranks.",
        ),
    )


def stricter_rows(dtypes: tuple[str, ...]) -> tuple[ErrorRow, ...]:
    """Return what the first implementations of these ops did not look at."""
    return (
        raises(
            "kda-index-dtype",
            "KDA `ssm_state_indices` must be an int32 tensor: got {ssm_state_indices.dtype}.",
            unless="ssm_state_indices: dtype",
            cause="kernels read the indices as 32-bit integers; others would be misread.",
            fix="convert the indices with `.to(torch.int32)`.",
        ),
        raises(
            "kda-dtype",
            "KDA `{argument}` must have {expected}: got {actual}.",
            unless=[f"{name}: dtype" for name in dtypes],
            cause="an integer tensor where the op computes with reals.",
            fix="allocate or convert the tensor with a floating-point dtype.",
        ),
        raises(
            "kda-index-layout",
            "KDA `{argument}` must have a contiguous last axis: got {actual}.",
            unless="*: layout",
            cause="a strided view of a larger tensor, read as if its elements lay side by side.",
            fix="call `.contiguous()` on inputs; pass pages of a pool whose last axis is dense.",
        ),
        raises(
            "kda-outputs-overlap",
            "KDA `{argument}` must not share memory: expected {expected}, got {actual}.",
            unless=["*: alias", "*: mutated"],
            cause="something that is written shares memory with something else that is used.",
            fix="pass separate tensors.",
        ),
        raises(
            "kda-empty-dim",
            "KDA needs {expected}: got {actual}.",
            unless="*: extent",
            cause="a tensor without slots, heads or channels.",
            fix="check the slice that made it.",
        ),
    )
