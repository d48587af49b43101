"""Makes an op with gradients out of its two kernels: direct in plain eager code, through torch.library elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._library import Kernel, register
from tigon.ops._route import is_plain_call, is_recorded


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The parts of an op. Kernels allocate their outputs and take the compiled op as ``run`` (see _library.py)."""

    name: str
    forward: Kernel
    schema: str
    backward: Kernel
    backward_schema: str
    tensors: int
    """How many of the first inputs are tensors (or None)."""
    results: int
    """How many of forward's outputs the caller sees; the others are saved."""
    save: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], None]
    """(ctx, inputs, outputs): what backward needs."""
    gradients: Callable[[Any, tuple[Any, ...], Kernel], Gradients]
    """(ctx, upstream gradients of the results, backward kernel or its operator) -> a gradient per input."""


def differentiable(recipe: Recipe) -> Callable[..., Any]:
    """The op as a function of forward's inputs; returns its results, as a tuple where there are several."""
    name, forward, backward, results = recipe.name, recipe.forward, recipe.backward, recipe.results
    save, gradients, tensors = recipe.save, recipe.gradients, recipe.tensors

    class Eager(FirstOrderFunction):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = forward(*inputs)
            save(ctx, inputs, output)
            return output[0] if results == 1 else output[:results]

        @staticmethod
        @first_order_only(name)
        def backward(ctx: Any, upstream: Gradients) -> Gradients:
            return gradients(ctx, upstream, backward)

    apply = Eager.call(name)

    forward_operator = register(name, recipe.schema, forward)
    backward_operator = register(f"{name}_backward", recipe.backward_schema, backward)

    def watched_gradients(ctx: Any, *upstream: Any) -> Gradients:
        given = gradients(ctx, upstream[:results], backward_operator)
        # What was not asked for comes back from an operator as an empty tensor.
        return tuple(g if needed else None for g, needed in zip(given, ctx.needs_input_grad, strict=True))

    torch.library.register_autograd(f"tigon::{name}", watched_gradients, setup_context=save)

    def call(*inputs: Any) -> Any:
        if not is_plain_call(name, inputs[:tensors]):
            output = forward_operator(*inputs)
        elif is_recorded(inputs[:tensors]):
            return apply(*inputs)
        else:
            output = forward(*inputs)
        return output[0] if results == 1 else output[:results]

    return call
