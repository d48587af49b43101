"""A linear layer without a bias."""

from typing import Any

import torch
import torch.nn.functional as F

from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._product import may_be_ours, multiply, multiply_across, multiply_back
from tigon.ops._route import RECORDED, WATCHED, route
from tigon.ops._tensors import autocast_dtype, empty_rows, rows


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional.linear(x, weight), by faster algorithms where there are: large products in 16 bits on a GPU.

    x: [..., in]; weight: [out, in]. Returns [..., out]. Types, also under autocast, are torch's.
    """
    # Asked first: sizes that were looked at would have to be the same in every call of a compiled graph.
    large = not torch.compiler.is_compiling() and may_be_ours(x, weight.shape[0])
    if large and weight.dtype == x.dtype and autocast_dtype(x) in (None, x.dtype):
        way = route("linear", (x, weight))
        if way != WATCHED:
            y: torch.Tensor = _apply(x, weight) if way == RECORDED else _product(x, weight)
            return y
    return F.linear(x, weight)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x.new_empty((*x.shape[:-1], weight.shape[0]))
    multiply(rows(x), weight, rows(y))
    return y


class _Linear(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight)

    @staticmethod
    @first_order_only("linear")
    def backward(ctx: Any, upstream: tuple[torch.Tensor]) -> Gradients:
        x, weight = ctx.saved_tensors
        dy = rows(upstream[0])
        dx = dweight = None
        if ctx.needs_input_grad[0]:
            dx = empty_rows(x)
            multiply_back(dy, weight, rows(dx))
        if ctx.needs_input_grad[1]:
            dweight = empty_rows(weight)
            multiply_across(dy, rows(x), dweight)
        return dx, dweight


_apply = _Linear.call("linear")
