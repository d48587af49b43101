"""RMS normalisation over the last dimension."""

from typing import Any

import torch

from tigon import _native
from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._library import register
from tigon.ops._route import is_plain_call
from tigon.ops._tensors import as_parameter, empty_rows, empty_statistic

_CASTING = {"llama": 0, "gemma": 1, "none": 2}  # tigon_norm_casting


def casting_number(mode: str) -> int:
    """``llama`` rounds x·rstd to x's type before the weight, as Hugging Face's Llama does; the others round once."""
    if mode not in _CASTING:
        raise ValueError(f"casting_mode is {mode!r}: expected one of {', '.join(map(repr, _CASTING))}")
    return _CASTING[mode]


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
) -> torch.Tensor:
    """y = (x·rstd)·(offset + weight) with rstd = 1/sqrt(mean(x²) + eps) over the last dimension.

    x: [..., hidden]; weight: [hidden], of x's type or f32, or None for ones. Returns [..., hidden] of x's type.
    """
    weight = as_parameter(weight, x)
    casting = casting_number(casting_mode)
    if is_plain_call("rms_norm", x, weight):
        return _RmsNorm.apply(x, weight, eps, offset, casting)
    return _forward_operator(x, weight, eps, offset, casting)[0]


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


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, _, ctx.offset, ctx.casting = inputs
    ctx.save_for_backward(x, weight, output[1])


def _gradients(ctx: Any, dy: torch.Tensor, backward: Any) -> Gradients:
    x, weight, rstd = ctx.saved_tensors
    need_dx, need_dweight = ctx.needs_input_grad[:2]
    dx, dweight = backward(dy, x, weight, rstd, ctx.offset, ctx.casting, need_dx, need_dweight)
    return dx if need_dx else None, dweight if need_dweight else None, None, None, None


class _RmsNorm(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        output = _forward(*inputs)
        _save(ctx, inputs, output)
        return output[0]

    @staticmethod
    @first_order_only("rms_norm")
    def backward(ctx: Any, dy: torch.Tensor) -> Gradients:
        return _gradients(ctx, dy, _backward)


_forward_operator = register(
    "rms_norm",
    "(Tensor x, Tensor? weight, float eps, float offset, int casting) -> (Tensor, Tensor)",
    _forward,
)
_backward_operator = register(
    "rms_norm_backward",
    "(Tensor dy, Tensor x, Tensor? weight, Tensor rstd, float offset, int casting, bool need_dx, bool need_dweight)"
    " -> (Tensor, Tensor)",
    _backward,
)
torch.library.register_autograd(
    "tigon::rms_norm", lambda ctx, dy, _: _gradients(ctx, dy, _backward_operator), setup_context=_save
)
