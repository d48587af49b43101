"""Multiplies gradients by the upstream gradient of a scalar loss, without looking at it on the host."""

from collections.abc import Iterable

import torch

_BLOCK_ELEMENTS = 1 << 22


def scale_(tensors: Iterable[torch.Tensor | None], factor: torch.Tensor) -> None:
    """t *= factor (a scalar tensor of f32 or more) in place, for every tensor that is there; rounds once."""
    for t in tensors:
        if t is None:
            continue
        if t.dtype == factor.dtype:
            t.mul_(factor)
            continue
        for block in t.view(-1).split(_BLOCK_ELEMENTS):  # mul_ would first round the factor to t's type
            block.copy_(block.to(factor.dtype).mul_(factor))


def scaled(t: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """The same beside t, for code that is compiled, where the steps become one."""
    return (t.to(factor.dtype) * factor).to(t.dtype)
