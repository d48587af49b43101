"""What the autograd functions of the ops share: clear refusals of what is not differentiable twice or forward."""

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

Gradients = tuple[torch.Tensor | None, ...]


class _RefuseSecondDerivative(torch.autograd.Function):
    """Hands gradients on, and explains itself when somebody differentiates them."""

    @staticmethod
    def forward(ctx: Any, op: str, _anchor: torch.Tensor, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.op = op
        return tuple(g.view_as(g) for g in gradients)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Gradients:
        raise NotImplementedError(
            f"tigon's {ctx.op} has no second derivative. For a gradient penalty or a Hessian use PyTorch's own op there."
        )


def first_order_only(op: str) -> Callable[[Callable[..., Gradients]], Callable[..., Gradients]]:
    """Lets a backward run under create_graph=True, but its gradients refuse to be differentiated again."""

    def decorate(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
        @functools.wraps(backward)
        def once(ctx: Any, *upstream: torch.Tensor) -> Gradients:
            if not torch.is_grad_enabled():
                return backward(ctx, *upstream)
            with torch.no_grad():
                gradients = backward(ctx, *upstream)
            anchor = torch.empty(0, requires_grad=True)
            given = iter(_RefuseSecondDerivative.apply(op, anchor, *(g for g in gradients if g is not None)))
            return tuple(None if g is None else next(given) for g in gradients)

        return once

    return decorate


class FirstOrderFunction(torch.autograd.Function):
    """An autograd function without forward-mode derivatives, which says so."""

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            "tigon's ops have no forward-mode derivatives (torch.autograd.forward_ad, torch.func.jvp). Use reverse mode "
            "(backward, torch.autograd.grad), or PyTorch's own op there."
        )

    @classmethod
    def call(cls) -> Callable[..., Any]:
        """``apply`` without what it does for torch.func transforms, which never get here (_route.py)."""
        return cast(Callable[..., Any], super(torch.autograd.Function, cls).apply)  # type: ignore[misc]
