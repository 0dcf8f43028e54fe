"""The text of generated guards: short, readable, compared whole."""

from __future__ import annotations

from typing import Annotated, Any

from jaxtyping import Float, Int32
from torch import Tensor

from tensorpact.contracts.checker.code import Writer
from tensorpact.contracts.checker.guard import guard_source
from tensorpact.contracts.language.contract import contract
from tensorpact.contracts.language.facets import LastDimContiguous


@contract(where=["HV % H == 0"], anchors=["state"], zero={"batch": "returns nothing"})
def decode(
    qkv: Annotated[Float[Tensor, "batch 2*H*K+HV*V"], LastDimContiguous()],
    a: Float[Tensor, "batch HV*K"] | Float[Tensor, "batch HV K"],
    state: Float[Tensor, "HV V K"],
    pos: Int32[Tensor, "batch"] | None = None,
    *,
    scale: float = 1.0,
) -> Float[Tensor, "batch HV V"]: ...


def test_guard_source__is_what_a_person_would_write() -> None:
    assert (
        decode.source()
        == """\
def decode(qkv, a, state, pos=None, *, scale=1.0):
    if _switch.maybe_debug and _in_debug_mode():
        return _debug_call(qkv, a, state, pos, scale)
    try:
        if not (
            (type(qkv) is Tensor or is_a(qkv, Tensor))
            and (type(a) is Tensor or is_a(a, Tensor))
            and (type(state) is Tensor or is_a(state, Tensor))
            and (pos is None or type(pos) is Tensor or is_a(pos, Tensor))
            and (type(scale) is float or is_real_number(scale))
        ):
            raise _refused
        state_shape = state.shape
        if state.dtype not in Float_dtypes:
            raise _refused
        HV, V, K = state_shape
        qkv_shape = qkv.shape
        if len(qkv_shape) != 2 or qkv.dtype not in Float_dtypes:
            raise _refused
        batch = qkv_shape[0]
        H = (qkv_shape[1] - HV * V) // (2 * K)
        if H < 1 or 2 * K * H + HV * V != qkv_shape[1] or HV < 1 or V < 1 or K < 1:
            raise _refused
        a_shape = a.shape
        if a.dtype not in Float_dtypes:
            raise _refused
        if not (a_shape == (batch, HV * K) or a_shape == (batch, HV, K)):
            raise _refused
        if pos is not None:
            if pos.dtype is not int32 or pos.shape != (batch,):
                raise _refused
        if not (
            qkv.is_cpu
            and a.is_cpu
            and state.is_cpu
        ):
            _device = qkv.device
            if a.device != _device or state.device != _device:
                raise _refused
        if pos is not None:
            if pos.device != qkv.device:
                raise _refused
        if not qkv.is_contiguous():
            qkv_shape, qkv_strides = qkv.shape, qkv.stride()
            if qkv_strides[-1] != 1 and qkv_shape[-1] > 1:
                raise _refused
        if not (HV % H == 0):
            raise _refused
    except Exception:
        _invalid(qkv, a, state, pos, scale)
    return _body(qkv, a, state, pos, scale=scale)
"""
    )


@contract(early_return="n == 0", zero={"n": "returns nothing"})
async def gather(
    *xs: Float[Tensor, "n ?m"], index: Int32[Tensor, "n"]
) -> tuple[Float[Tensor, "n"], Int32[Tensor, "k"]]: ...


def test_guard_source__of_results_an_early_return_and_a_list() -> None:
    assert (
        guard_source(gather, check_result=True)
        == """\
async def gather(*xs, index):
    if _switch.maybe_debug and _in_debug_mode():
        return await _debug_call_async(xs, index)
    try:
        if not (type(index) is Tensor or is_a(index, Tensor)):
            raise _refused
        index_shape = index.shape
        if index.dtype is not int32:
            raise _refused
        n, = index_shape
        if not (n == 0):
            for xs_item in xs:
                if not (type(xs_item) is Tensor or is_a(xs_item, Tensor)):
                    raise _refused
                xs_item_shape = xs_item.shape
                if len(xs_item_shape) != 2 or xs_item.dtype not in Float_dtypes:
                    raise _refused
                xs_item_shape = xs_item.shape
                if xs_item_shape[0] != n:
                    raise _refused
                if xs_item.device != index.device:
                    raise _refused
    except Exception:
        _invalid(xs, index)
    _result = await _body(*xs, index=index)
    try:
        if not (n == 0):
            if not ((type(_result) is tuple or is_a(_result, tuple)) and len(_result) == 2):
                raise _refused
            _result_0 = _result[0]
            _result_1 = _result[1]
            if not (type(_result_1) is Tensor or is_a(_result_1, Tensor)):
                raise _refused
            _result_1_shape = _result_1.shape
            if _result_1.dtype is not int32:
                raise _refused
            k, = _result_1_shape
            if not (type(_result_0) is Tensor or is_a(_result_0, Tensor)):
                raise _refused
            if _result_0.dtype not in Float_dtypes or _result_0.shape != (n,):
                raise _refused
            if not (
                index.is_cpu
                and _result_0.is_cpu
                and _result_1.is_cpu
            ):
                _device = index.device
                if _result_0.device != _device or _result_1.device != _device:
                    raise _refused
    except Exception:
        _invalid_result(_result, xs, index)
    return _result
"""
    )


def test_guard_source__of_nothing_to_check() -> None:
    @contract()
    def op(x: Any = None) -> None: ...

    assert (
        op.source()
        == """\
def op(x=None):
    if _switch.maybe_debug and _in_debug_mode():
        return _debug_call(x)
    try:
        pass
    except Exception:
        _invalid(x)
    return _body(x)
"""
    )


def test_writer__leaves_out_empty_blocks_and_joins_equal_ones() -> None:
    writer = Writer()
    with writer.block("if a:"):
        writer.write("b()")
    with writer.block("if a:"):
        pass
    with writer.block("if a:"):
        writer.write("c()")
    with writer.block("for d in e:"):
        pass
    with writer.block("else:"):
        pass
    assert writer.text() == "if a:\n    b()\n    c()\nelse:\n    pass\n"
