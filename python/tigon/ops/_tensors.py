"""Types of the tensors that ops allocate or convert."""

import math

import torch

_empty_like = torch.empty_like


def statistic_dtype(x: torch.Tensor) -> torch.dtype:
    """The type of losses, means and other statistics: f32, or f64 where an op runs in f64."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def as_parameter(parameter: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """A weight or bias in a type that kernels take beside ``x``: x's own, or f32. The gradient is cast back."""
    if parameter is None or parameter.dtype == x.dtype:
        return parameter
    return parameter.to(statistic_dtype(x))


def autocast_dtype(t: torch.Tensor) -> torch.dtype | None:
    """The type that autocast gives to a matrix product of ``t``, or None where it changes nothing."""
    kind = t.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind) or t.dtype == torch.float64:
        return None  # torch does not answer for the meta device, where it casts nothing
    return torch.get_autocast_dtype(kind)


def require_shape(op: str, name: str, t: torch.Tensor, expected: torch.Size, meaning: str) -> None:
    """Kernels see leading dimensions merged into one, and would pair the rows of [2, 3, …] and [3, 2, …]."""
    if t.shape != expected:
        raise ValueError(
            f"{op}: '{name}' has the wrong shape; expected {list(expected)} ({meaning}), got {list(t.shape)}"
        )


# How tensors are made here and elsewhere in the package is what torch parses fastest: empty_like without options, then
# new_empty of one number and empty_strided. A shape for empty or new_empty takes twice as long.


def empty_rows(x: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of x's shape, type and device, whatever x's strides."""
    return _empty_like(x) if x.is_contiguous() else _empty_like(x, memory_format=torch.contiguous_format)


def empty_statistic(x: torch.Tensor) -> torch.Tensor:
    """One value per row of x, as [tokens]."""
    # Not Size.numel(), which makes a number of a size that torch.compile holds open, and so a graph per batch.
    return x.new_empty(math.prod(x.shape[:-1]), dtype=statistic_dtype(x))


def rows(t: torch.Tensor) -> torch.Tensor:
    """t as a matrix: its leading dimensions merged, or one row."""
    return t if t.dim() == 2 else t.flatten(0, -2) if t.dim() > 2 else t[None]
