"""Makes an op with gradients out of its two kernels: direct in plain eager code, through torch.library elsewhere."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._library import Kernel, register
from tigon.ops._route import RECORDED, WATCHED, route


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
    gradients: Callable[[Kernel, Any, tuple[Any, ...]], Gradients]
    """(backward kernel or its operator, ctx, upstream gradients of the results) -> a gradient per input."""


def differentiable(recipe: Recipe) -> Callable[..., Any]:
    """The op as a function of forward's inputs; returns its results, as a tuple where there are several."""
    name, forward, results = recipe.name, recipe.forward, recipe.results
    save, gradients, tensors = recipe.save, recipe.gradients, recipe.tensors

    class Eager(FirstOrderFunction):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = forward(*inputs)
            save(ctx, inputs, output)
            return output[0] if results == 1 else output[:results]

        backward = staticmethod(first_order_only(name)(functools.partial(gradients, recipe.backward)))

    apply = Eager.call(name)

    forward_operator = register(name, recipe.schema, forward)
    backward_operator = register(f"{name}_backward", recipe.backward_schema, recipe.backward)

    def watched_gradients(ctx: Any, *upstream: Any) -> Gradients:
        given = gradients(backward_operator, ctx, upstream[:results])
        # What was not asked for comes back from an operator as an empty tensor.
        return tuple(g if needed else None for g, needed in zip(given, ctx.needs_input_grad, strict=True))

    torch.library.register_autograd(f"tigon::{name}", watched_gradients, setup_context=save)

    def call(*inputs: Any) -> Any:
        way = route(name, inputs[:tensors])
        if way == RECORDED:
            return apply(*inputs)
        output = forward_operator(*inputs) if way == WATCHED else forward(*inputs)
        return output[0] if results == 1 else output[:results]

    return call
