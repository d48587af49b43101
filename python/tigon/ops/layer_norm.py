"""Layer normalisation over the last dimension."""

from typing import Any

import torch

from tigon import _native
from tigon.ops._autograd import Gradients
from tigon.ops._differentiable import Recipe, differentiable
from tigon.ops._tensors import as_parameter, empty_rows, empty_statistic


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """y = (x - mean)·rstd·weight + bias over the last dimension.

    x: [..., hidden]; weight, bias: [hidden] or None. Returns [..., hidden] of x's type.
    """
    y: torch.Tensor = _layer_norm(x, as_parameter(weight, x), as_parameter(bias, x), eps)
    return y


def _forward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    run: Any = _native.layernorm_forward,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y, mean = empty_rows(x), empty_statistic(x)
    rstd = torch.empty_like(mean)
    run(x, weight, bias, y, mean, rstd, eps)
    return y, mean, rstd


def _backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    bias_like: torch.Tensor | None,
    need_dx: bool,
    need_dweight: bool,
    run: Any = _native.layernorm_backward,
) -> Gradients:
    dx = empty_rows(x) if need_dx else None
    dweight = torch.empty_like(weight) if need_dweight and weight is not None else None
    dbias = torch.empty_like(bias_like) if bias_like is not None else None
    run(dy, x, weight, mean, rstd, dx, dweight, dbias)
    return dx, dweight, dbias


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, weight, bias, _ = inputs
    _, mean, rstd = output
    ctx.save_for_backward(x, weight, mean, rstd, bias)


def _gradients(backward: Any, ctx: Any, upstream: tuple[Any, ...]) -> Gradients:
    x, weight, mean, rstd, bias = ctx.saved_tensors
    need_dx, need_dweight, need_dbias, _ = ctx.needs_input_grad
    like = bias if need_dbias else None
    return (*backward(upstream[0], x, weight, mean, rstd, like, need_dx, need_dweight), None)


_layer_norm = differentiable(
    Recipe(
        name="layer_norm",
        forward=_forward,
        schema="(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
        backward=_backward,
        backward_schema="(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd, Tensor? bias_like, "
        "bool need_dx, bool need_dweight) -> (Tensor, Tensor, Tensor)",
        tensors=3,
        results=1,
        save=_save,
        gradients=_gradients,
    )
)
