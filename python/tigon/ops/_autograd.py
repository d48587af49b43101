"""What the autograd functions of the ops share: clear refusals of what is not differentiable twice or forward."""

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

_is_grad_enabled = torch.is_grad_enabled

Gradients = tuple[torch.Tensor | None, ...]


class _RefuseSecondDerivative(torch.autograd.Function):
    """Hands gradients on as functions of what they were computed from, and explains itself when differentiated."""

    @staticmethod
    def forward(ctx: Any, op: str, gradients: Gradients, *_: torch.Tensor) -> Gradients:
        ctx.op = op
        return gradients

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Gradients:
        raise NotImplementedError(
            f"tigon's {ctx.op} has no second derivative. For a gradient penalty or a Hessian use PyTorch's own op there."
        )


def first_order_only(op: str) -> Callable[[Callable[..., Gradients]], Callable[..., Gradients]]:
    """Makes a backward of a function of (ctx, upstream gradients as a tuple), which may run under create_graph=True, but
    whose gradients refuse to be differentiated again."""

    def decorate(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
        @functools.wraps(backward)
        def once(ctx: Any, *upstream: torch.Tensor) -> Gradients:
            if not _is_grad_enabled():
                return backward(ctx, upstream)
            variables = [t for t in (*upstream, *ctx.saved_tensors) if t is not None and t.requires_grad]
            with torch.no_grad():
                gradients = backward(ctx, upstream)
            if not variables:
                return gradients
            return cast(Gradients, _RefuseSecondDerivative.apply(op, gradients, *variables))

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
    def call(cls, name: str) -> Callable[..., Any]:
        """``apply`` without what it does for torch.func transforms, which never get here (_route.py). ``name`` is the op's,
        for what grad_fn shows."""
        cls.__name__ = cls.__qualname__ = f"tigon_{name}"
        node: Any = cls._backward_cls
        node.__name__ = node.__qualname__ = f"tigon_{name}Backward"
        node.apply = cls.backward  # torch's own would ask each time whether there is a vjp instead
        return cast(Callable[..., Any], super(torch.autograd.Function, cls).apply)  # type: ignore[misc]
