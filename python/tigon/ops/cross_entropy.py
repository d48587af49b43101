"""Cross entropy of given logits."""

from typing import Any

import torch

from tigon import _native
from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._differentiable import Recipe, differentiable
from tigon.ops._loss import (
    LOSS_OPTIONS_SCHEMA,
    REPORTED_SCHEMA,
    CrossEntropyOutput,
    as_result,
    check_target,
    class_weight,
    empty_outputs,
    loss_options,
    mark_outputs,
)
from tigon.ops._ownership import ONE_VARIABLE, holders
from tigon.ops._route import is_plain_call
from tigon.ops._scale import scale_
from tigon.ops._tensors import empty_rows, empty_statistic


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    in_place: bool = False,
) -> torch.Tensor | CrossEntropyOutput:
    """The loss of logits ``input`` [..., V] for ``target`` [...] (i32 or i64): a f32 scalar, or [...] without reduction.

    The classes are the last dimension. With x' = softcap·tanh(x/softcap), per token
    (1-s)·w_y·(lse - x'_y) + (s/V)·Σ_j w_j·(lse - x'_j) + lse_square_scale·lse²; "mean" divides by Σ w_y over the targets
    that are not ignore_index (the last term by their number) and is 0 where all are ignored. A target outside [0, V) is a
    ValueError on the CPU; on a GPU, which is not waited for, it makes the loss NaN.

    A mean in f32 or bf16 comes with its gradient: forward writes it in the same pass and keeps it instead of the logits,
    and backward only has to multiply it where the upstream gradient is not 1. Otherwise, and under torch.compile, backward
    reads the logits again.

    Asked for more than the loss, returns a CrossEntropyOutput of four. ``in_place`` lets backward write the gradient over
    the logits, which saves their size in memory and allows one backward only; the logits must be the contiguous result of
    another op that does not itself need them for its gradient.
    """
    if in_place and any(t.is_leaf and t.requires_grad for t in (input, input._base) if t is not None):
        raise ValueError("in_place would overwrite a leaf tensor with its own gradient: pass in_place=False")
    if in_place and not input.is_contiguous():
        raise ValueError("in_place needs contiguous logits: pass input.contiguous(), or in_place=False")
    check_target("cross_entropy", target, input)
    reported = (return_z_loss, return_token_accuracy, return_predicted_tokens)
    options = loss_options(ignore_index, label_smoothing, lse_square_scale, softcap, reduction)
    inputs = (input, target, class_weight(weight, input), in_place, *options, *reported)
    # Worth it where the upstream gradient is 1, which a sum rarely gets: it is there to be divided by something. In f16 a
    # loss scale has to come before rounding.
    early = (
        reduction == "mean"
        and input.requires_grad
        and input.dtype != torch.float16
        and not in_place
        and torch.is_grad_enabled()
        and is_plain_call("cross_entropy", inputs[:3])
    )
    return as_result(_with_gradient(*inputs)[:4] if early else _cross_entropy(*inputs), reported)


def _compute(run: Any, inputs: tuple[Any, ...], lse: torch.Tensor | None, dlogits: torch.Tensor | None) -> Gradients:
    logits, target, weight, _, *options, reduction, z_loss, token_accuracy, predicted_tokens = inputs
    outputs = empty_outputs(logits, target, reduction, (z_loss, token_accuracy, predicted_tokens))
    run(logits, target, weight, *options, reduction, *outputs, lse, dlogits)
    return outputs


class _WithGradient(FirstOrderFunction):
    """Forward forms the gradient while it has the logits at hand, and keeps it in their place; backward hands it out.

    Only for plain calls: an operator cannot give away what it has saved, so its backward would read this gradient and write
    another, and three passes would become four.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        dlogits = empty_rows(inputs[0])
        outputs = _compute(_native.cross_entropy_forward, inputs, None, dlogits)
        mark_outputs(ctx, outputs)
        ctx.save_for_backward(dlogits)
        # As a result autograd knows the gradient for a function of the logits, which first_order_only asks of what is saved.
        return *outputs, dlogits

    @staticmethod
    @first_order_only("cross_entropy")
    def backward(ctx: Any, upstream: Gradients) -> Gradients:
        dloss = upstream[0]
        nothing = (None,) * (len(ctx.needs_input_grad) - 1)
        if dloss is None:
            return None, *nothing
        (dlogits,) = ctx.saved_tensors
        ctx.maybe_clear_saved_tensors()  # unless the graph is retained
        dlogits = dlogits.detach() if holders(dlogits) == ONE_VARIABLE else dlogits.clone()
        scale_((dlogits,), dloss)
        return dlogits, *nothing


_with_gradient = _WithGradient.call("cross_entropy")


def _forward(*inputs: Any, run: Any = _native.cross_entropy_forward) -> Gradients:
    lse = empty_statistic(inputs[0])
    return *_compute(run, inputs, lse, None), lse


def _backward(
    dloss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    lse: torch.Tensor,
    *options: Any,
    run: Any = _native.cross_entropy_backward,
) -> Gradients:
    dlogits = empty_rows(logits)
    run(dloss, logits, target, weight, lse, *options, dlogits)
    return (dlogits,)


def _overwrite(dloss: torch.Tensor, logits: torch.Tensor, *rest: Any) -> torch.Tensor:
    _native.cross_entropy_backward(dloss, logits, *rest, logits)
    torch.autograd.graph.increment_version(logits)  # whoever else saved these logits must not use them any more
    return logits.detach()


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    logits, target, weight, ctx.in_place, *rest = inputs
    ctx.options, ctx.reported = rest[:5], rest[5:]
    ctx.overwritten = False
    mark_outputs(ctx, output[:4])
    ctx.save_for_backward(logits, target, weight, output[4])


def _gradients(backward: Any, ctx: Any, upstream: tuple[Any, ...]) -> Gradients:
    nothing = (None,) * (3 + len(ctx.options) + len(ctx.reported))
    if ctx.overwritten:
        raise RuntimeError(
            "cross_entropy(in_place=True) has overwritten its logits with their gradient in the first backward, so there "
            "can be no second one. Pass in_place=False to call backward more than once."
        )
    if upstream[0] is None or not ctx.needs_input_grad[0]:
        return None, *nothing
    if ctx.in_place and backward is _backward:
        saved = ctx.saved_tensors
        ctx.overwritten = True
        return _overwrite(upstream[0], *saved, *ctx.options), *nothing
    return *backward(upstream[0], *ctx.saved_tensors, *ctx.options), *nothing


_cross_entropy = differentiable(
    Recipe(
        name="cross_entropy",
        forward=_forward,
        schema=f"(Tensor logits, Tensor target, Tensor? weight, bool in_place, {LOSS_OPTIONS_SCHEMA}, {REPORTED_SCHEMA})"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        backward=_backward,
        backward_schema=f"(Tensor dloss, Tensor logits, Tensor target, Tensor? weight, Tensor lse, {LOSS_OPTIONS_SCHEMA})"
        " -> Tensor",
        tensors=3,
        results=4,
        save=_save,
        gradients=_gradients,
    )
)
