"""RMS normalisation over the last dimension."""

from typing import Any

import torch

from tigon import _native
from tigon.ops._autograd import Gradients
from tigon.ops._differentiable import Recipe, differentiable
from tigon.ops._norm import casting_number
from tigon.ops._tensors import as_parameter, empty_rows, empty_statistic


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
) -> torch.Tensor:
    """y = (x·rstd)·(offset + weight) with rstd = 1/sqrt(mean(x²) + eps) over the last dimension.

    x: [..., hidden]; weight: [hidden], or None for 1 - offset. Returns [..., hidden] of x's type.
    casting_mode: "llama" rounds x·rstd to x's type before the weight, "gemma" and "none" round once, at the end.
    """
    y: torch.Tensor = _rms_norm(x, as_parameter(weight, x), eps, offset, casting_number(casting_mode))
    return y


def _forward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float,
    casting: int,
    run: Any = _native.rmsnorm_forward,
) -> tuple[torch.Tensor, torch.Tensor]:
    y, rstd = empty_rows(x), empty_statistic(x)
    run(x, weight, y, rstd, eps, offset, casting)
    return y, rstd


def _backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
    offset: float,
    casting: int,
    need_dx: bool,
    need_dweight: bool,
    run: Any = _native.rmsnorm_backward,
) -> Gradients:
    dx = empty_rows(x) if need_dx else None
    dweight = torch.empty_like(weight) if need_dweight and weight is not None else None
    run(dy, x, weight, rstd, dx, dweight, offset, casting)
    return dx, dweight


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, weight, _, ctx.offset, ctx.casting = inputs
    ctx.save_for_backward(x, weight, output[1])


def _gradients(backward: Any, ctx: Any, upstream: tuple[Any, ...]) -> Gradients:
    x, weight, rstd = ctx.saved_tensors
    need_dx, need_dweight = ctx.needs_input_grad[:2]
    dx, dweight = backward(upstream[0], x, weight, rstd, ctx.offset, ctx.casting, need_dx, need_dweight)
    return dx, dweight, None, None, None


_rms_norm = differentiable(
    Recipe(
        name="rms_norm",
        forward=_forward,
        schema="(Tensor x, Tensor? weight, float eps, float offset, int casting) -> (Tensor, Tensor)",
        backward=_backward,
        backward_schema="(Tensor dy, Tensor x, Tensor? weight, Tensor rstd, float offset, int casting, bool need_dx, "
        "bool need_dweight) -> (Tensor, Tensor)",
        tensors=2,
        results=1,
        save=_save,
        gradients=_gradients,
    )
)
