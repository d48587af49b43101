"""The residual addition and the RMS normalisation after it, in one pass."""

from typing import Any

import torch

from tigon import _native
from tigon.ops._autograd import Gradients
from tigon.ops._differentiable import Recipe, differentiable
from tigon.ops._norm import casting_number
from tigon.ops._tensors import as_parameter, empty_rows, empty_statistic, require_shape


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
) -> tuple[torch.Tensor, torch.Tensor]:
    """residual_out = x + residual, y = rms_norm(residual_out); returns (y, residual_out).

    x, residual: [..., hidden], of one type; weight: [hidden] or None. Results have x's type.
    """
    require_shape("fused_add_rms_norm", "residual", residual, x.shape, "as x")
    y, residual_out = _fused_add_rms_norm(
        x, residual, as_parameter(weight, x), eps, offset, casting_number(casting_mode)
    )
    return y, residual_out


def _forward(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float,
    casting: int,
    run: Any = _native.add_rmsnorm_forward,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y, residual_out, rstd = empty_rows(x), empty_rows(x), empty_statistic(x)
    run(x, residual, weight, residual_out, y, rstd, eps, offset, casting)
    return y, residual_out, rstd


def _backward(
    dy: torch.Tensor,
    dresidual_out: torch.Tensor | None,
    residual_out: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
    offset: float,
    casting: int,
    need_dweight: bool,
    run: Any = _native.add_rmsnorm_backward,
) -> Gradients:
    dx = empty_rows(residual_out)
    dweight = torch.empty_like(weight) if need_dweight and weight is not None else None
    run(dy, dresidual_out, residual_out, weight, rstd, dx, dweight, offset, casting)
    return dx, dweight


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, _, weight, _, ctx.offset, ctx.casting = inputs
    _, residual_out, rstd = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(residual_out, weight, rstd)


def _gradients(backward: Any, ctx: Any, upstream: tuple[Any, ...]) -> Gradients:
    dy, dresidual_out = upstream
    if dy is None:  # only the sum was used
        return dresidual_out, dresidual_out, None, None, None, None
    residual_out, weight, rstd = ctx.saved_tensors
    need_dweight = ctx.needs_input_grad[2]
    dx, dweight = backward(dy, dresidual_out, residual_out, weight, rstd, ctx.offset, ctx.casting, need_dweight)
    return dx, dx, dweight, None, None, None


_fused_add_rms_norm = differentiable(
    Recipe(
        name="fused_add_rms_norm",
        forward=_forward,
        schema="(Tensor x, Tensor residual, Tensor? weight, float eps, float offset, int casting)"
        " -> (Tensor, Tensor, Tensor)",
        backward=_backward,
        backward_schema="(Tensor dy, Tensor? dresidual_out, Tensor residual_out, Tensor? weight, Tensor rstd, "
        "float offset, int casting, bool need_dweight) -> (Tensor, Tensor)",
        tensors=3,
        results=2,
        save=_save,
        gradients=_gradients,
    )
)
