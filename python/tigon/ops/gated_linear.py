"""A gated activation and the linear layer after it, which together keep less for backward than one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tigon import _native
from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._ownership import ONE_VARIABLE, holders
from tigon.ops._product import multiply, multiply_across, multiply_back
from tigon.ops._route import is_plain_call
from tigon.ops._tensors import autocast_dtype, empty_rows, require_shape, rows
from tigon.ops.gated import geglu, gelu_number, swiglu

_SMALLEST_TILE_BYTES = 16 << 20  # below, launches would take longer than the products


@dataclass(frozen=True)
class _Gate:
    """act(a)·b: the op, and its kernels as (a, b, c) and (dc, a, b, da, db, c)."""

    op: Callable[..., torch.Tensor]
    forward: Callable[..., None]
    backward: Callable[..., None]


def _geglu(approximate: str) -> _Gate:
    gelu = gelu_number(approximate)
    return _Gate(
        lambda a, b: geglu(a, b, approximate),
        lambda *tensors: _native.geglu_forward(*tensors, gelu),
        lambda *tensors: _native.geglu_backward(*tensors, gelu),
    )


_SWIGLU = _Gate(swiglu, _native.swiglu_forward, _native.swiglu_backward)
_GEGLU = {approximate: _geglu(approximate) for approximate in ("tanh", "none")}


def swiglu_linear(a: torch.Tensor, b: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
    """linear(silu(a)·b, weight) that keeps a and b for backward, and computes their product there again.

    a (the gate), b: [..., features] of one type; or b is None and a has both side by side, [..., 2·features]. weight:
    [hidden, features]. Returns [..., hidden]. In backward the gradients of a and b are written over a and b where nothing
    but this op holds them any more. Under autocast types are those of torch.nn.functional.linear.
    """
    return _gated_linear("swiglu_linear", _SWIGLU, a, b, weight)


def geglu_linear(
    a: torch.Tensor, b: torch.Tensor | None, weight: torch.Tensor, approximate: str = "tanh"
) -> torch.Tensor:
    """linear(gelu(a)·b, weight) in the same way; ``approximate`` is that of tigon.ops.geglu."""
    gelu_number(approximate)
    return _gated_linear("geglu_linear", _GEGLU[approximate], a, b, weight)


def _gated_linear(
    name: str, gate: _Gate, a: torch.Tensor, b: torch.Tensor | None, weight: torch.Tensor
) -> torch.Tensor:
    dtype = _type_of_linear(weight)
    records = torch.is_grad_enabled() and (a.requires_grad or (b is not None and b.requires_grad))
    if not (records and dtype == a.dtype and is_plain_call(name, (a, b, weight))):
        return F.linear(gate.op(*_halves(a, b)), weight)
    if b is not None:
        require_shape(name, "b", b, a.shape, "as a")
    if weight.dtype != dtype:
        weight = weight.to(dtype)
    # Made here: a recomputation is stopped by an exception inside the call, and what is freed while that passes through
    # torch's C++ can lose it (seen while memory history was recorded).
    results = [a.new_empty((*a.shape[:-1], weight.shape[0]))]
    y: torch.Tensor = _apply(gate, results, a, b, weight)
    a, b = (a, b) if b is not None else _halves(a.detach(), None)
    c = empty_rows(a)
    gate.forward(a, b, c)
    multiply(rows(c), weight.detach(), rows(y.detach()))
    return y


def _type_of_linear(weight: torch.Tensor) -> torch.dtype:
    return autocast_dtype(weight) or weight.dtype


def _halves(a: torch.Tensor, b: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    if b is not None:
        return a, b
    a, b = a.chunk(2, dim=-1)
    return a, b


class _GatedLinear(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any,
        gate: _Gate,
        results: list[torch.Tensor],
        a: torch.Tensor,
        b: torch.Tensor | None,
        weight: torch.Tensor,
    ) -> torch.Tensor:
        """The result without values, which the caller fills in: checkpointing stops a recomputation when the last tensor is
        saved, which is at the end of this function, and so need not compute the product again."""
        ctx.gate = gate
        ctx.save_for_backward(a, b, weight)
        return results[0]

    @staticmethod
    @first_order_only("gated linear")
    def backward(ctx: Any, upstream: tuple[torch.Tensor]) -> Gradients:
        a, b, weight = ctx.saved_tensors
        ctx.maybe_clear_saved_tensors()  # unless the graph is retained
        da = a.detach() if holders(a) == ONE_VARIABLE and a.is_contiguous() else empty_rows(a)
        db = None
        if b is not None:
            db = b.detach() if holders(b) == ONE_VARIABLE and b.is_contiguous() else empty_rows(b)
        need_a, need_b, need_weight = ctx.needs_input_grad[2:]
        dweight = torch.empty_like(weight, memory_format=torch.contiguous_format) if need_weight else None
        _compute_gradients(ctx.gate, upstream[0], a, b, weight, da, db, dweight)
        return None, None, da if need_a else None, db if need_b else None, dweight


_apply = _GatedLinear.call("gated_linear")


def _compute_gradients(
    gate: _Gate,
    dy: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor | None,
    weight: torch.Tensor,
    da: torch.Tensor,
    db: torch.Tensor | None,
    dweight: torch.Tensor | None,
) -> None:
    """Writes da, db and dweight, a tile of features at a time: each is whole in itself, and dc never is."""
    dy = rows(dy)
    a, b = _halves(a, b)
    da, db = _halves(da, db)
    features = weight.shape[1]
    width = _tile_width(dy, weight)
    for start in range(0, features, width):
        tile = start, min(width, features - start)
        dc = dy.new_empty((dy.shape[0], tile[1]))
        multiply_back(dy, _columns(weight, tile), dc)  # of dy's type also where backward runs under autocast
        c = None if dweight is None else dc  # which is of no more use then
        gate.backward(dc, *(_columns(t, tile) for t in (a, b, da, db)), c)
        if dweight is not None:
            multiply_across(dy, dc, _columns(dweight, tile))


def _columns(t: torch.Tensor, tile: tuple[int, int]) -> torch.Tensor:
    start, width = tile
    return t if width == t.shape[-1] else t.narrow(-1, start, width)


def _tile_width(dy: torch.Tensor, weight: torch.Tensor) -> int:
    """Features for which dc takes about as much memory as dy."""
    hidden, features = weight.shape
    most = dy.shape[0] * features * dy.element_size() // _SMALLEST_TILE_BYTES
    if most < 2:
        return max(1, features)
    tiles = max(1, min(round(features / max(1, hidden)), most))
    return -(-features // (tiles * 64)) * 64  # rows of a tile start aligned
