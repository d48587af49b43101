"""The gated activations of MLPs: act(a)·b."""

from typing import Any

import torch

from tigon import _native
from tigon.ops._autograd import Gradients
from tigon.ops._differentiable import Recipe, differentiable
from tigon.ops._tensors import empty_rows, require_shape

_GELU = {"tanh": 0, "none": 1}  # tigon_gelu, by the names of torch.nn.functional.gelu


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """silu(a)·b. a (the gate), b: [..., features], of one type; both may be halves of one tensor."""
    require_shape("swiglu", "b", b, a.shape, "as a")
    c: torch.Tensor = _swiglu(a, b)
    return c


def geglu(a: torch.Tensor, b: torch.Tensor, approximate: str = "tanh") -> torch.Tensor:
    """gelu(a)·b, with ``approximate`` as in torch.nn.functional.gelu. a (the gate), b: [..., features], of one type."""
    require_shape("geglu", "b", b, a.shape, "as a")
    c: torch.Tensor = _geglu(a, b, gelu_number(approximate))
    return c


def gelu_number(approximate: str) -> int:
    """The C ABI's number of a form of gelu."""
    if approximate not in _GELU:
        raise ValueError(f"approximate is {approximate!r}: expected 'tanh' or 'none'")
    return _GELU[approximate]


def _swiglu_forward(a: torch.Tensor, b: torch.Tensor, run: Any = _native.swiglu_forward) -> tuple[torch.Tensor]:
    c = empty_rows(a)
    run(a, b, c)
    return (c,)


def _swiglu_backward(
    dc: torch.Tensor, a: torch.Tensor, b: torch.Tensor, run: Any = _native.swiglu_backward
) -> Gradients:
    da, db = empty_rows(a), empty_rows(a)
    run(dc, a, b, da, db, None)  # c is not asked for again
    return da, db


def _geglu_forward(
    a: torch.Tensor, b: torch.Tensor, gelu: int, run: Any = _native.geglu_forward
) -> tuple[torch.Tensor]:
    c = empty_rows(a)
    run(a, b, c, gelu)
    return (c,)


def _geglu_backward(
    dc: torch.Tensor, a: torch.Tensor, b: torch.Tensor, gelu: int, run: Any = _native.geglu_backward
) -> Gradients:
    da, db = empty_rows(a), empty_rows(a)
    run(dc, a, b, da, db, None, gelu)
    return da, db


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.options = inputs[2:]
    ctx.save_for_backward(inputs[0], inputs[1])


def _gradients(backward: Any, ctx: Any, upstream: tuple[Any, ...]) -> Gradients:
    options = ctx.options
    return *backward(upstream[0], *ctx.saved_tensors, *options), *(None,) * len(options)


_swiglu = differentiable(
    Recipe(
        name="swiglu",
        forward=_swiglu_forward,
        schema="(Tensor a, Tensor b) -> Tensor",
        backward=_swiglu_backward,
        backward_schema="(Tensor dc, Tensor a, Tensor b) -> (Tensor, Tensor)",
        tensors=2,
        results=1,
        save=_save,
        gradients=_gradients,
    )
)
_geglu = differentiable(
    Recipe(
        name="geglu",
        forward=_geglu_forward,
        schema="(Tensor a, Tensor b, int gelu) -> Tensor",
        backward=_geglu_backward,
        backward_schema="(Tensor dc, Tensor a, Tensor b, int gelu) -> (Tensor, Tensor)",
        tensors=2,
        results=1,
        save=_save,
        gradients=_gradients,
    )
)
