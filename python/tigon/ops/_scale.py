"""Multiplies gradients by the upstream gradient of a scalar loss, without looking at it on the host."""

from collections.abc import Iterable

import torch

from tigon import _native


def scale_(tensors: Iterable[torch.Tensor | None], factor: torch.Tensor) -> None:
    """t *= factor (a scalar tensor of f32, or f64 for f64) in place, rounded once, for every tensor that is there.

    A factor of 1, which is what a loss usually gets, leaves them unread.
    """
    for t in tensors:
        if t is not None:
            _native.scale(t, factor)


def scaled(t: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """The same beside t, for code that is compiled, where the steps become one."""
    return (t.to(factor.dtype) * factor).to(t.dtype)
