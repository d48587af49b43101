"""The matrix products of linear layers, written where the caller wants them.

Large ones in 16 bits on a GPU are the library's own, whose algorithms are chosen for a chip under load
(bench/results/h200-python.md), and so are those of odd sizes, which it pads (bench/results/h200-odd-rows.md).
Elsewhere they are torch's, whose settings for f32 products hold then. All tensors are matrices; rows may lie apart.
"""

import torch

from tigon import _native

_LARGE_BYTES = 256 << 20  # what the library takes beside a product, 32 MiB, is little then
_WORTH_PADDING = 1 << 29  # multiplications: then padding costs less than rows of odd sizes


def may_be_ours(x: torch.Tensor, out: int) -> bool:
    """Whether a product of x, [..., in], with a weight of ``out`` rows is of a type for the library, and large or odd."""
    if not x.is_cuda or x.dtype not in (torch.bfloat16, torch.float16):
        return False
    tokens, width = x.shape[:-1].numel(), x.shape[-1]
    if (width % 8 or out % 8) and tokens * width * out >= _WORTH_PADDING:
        return True
    return tokens * max(width, out) * x.element_size() >= _LARGE_BYTES


def _is_ours(weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> bool:
    return may_be_ours(x, y.shape[1]) and all(t.dtype == x.dtype and t.stride(1) == 1 for t in (weight, x, y))


def multiply(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> None:
    """y = x·weightᵀ. x: [tokens, in], weight: [out, in], y: [tokens, out]."""
    if _is_ours(weight, x, y):
        _native.linear_forward(x, weight, y)
    else:
        torch.mm(x, weight.t(), out=y)


def multiply_back(dy: torch.Tensor, weight: torch.Tensor, dx: torch.Tensor) -> None:
    """dx = dy·weight: what multiply's x gets."""
    if _is_ours(weight, dx, dy):
        _native.linear_backward(dy, None, weight, dx, None)
    else:
        torch.mm(dy, weight, out=dx)


def multiply_across(dy: torch.Tensor, x: torch.Tensor, dweight: torch.Tensor) -> None:
    """dweight = dyᵀ·x: what multiply's weight gets."""
    if _is_ours(dweight, x, dy):
        _native.linear_backward(dy, x, None, None, dweight)
    else:
        torch.mm(dy.t(), x, out=dweight)
