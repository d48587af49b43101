"""Cross entropy of a linear layer's output without its logits."""

import math
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from tigon import _native
from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._chunk import Chunk, as_chunk
from tigon.ops._library import register
from tigon.ops._loss import (
    LOSS_OPTIONS_SCHEMA,
    NO_REDUCTION,
    REPORTED_SCHEMA,
    CrossEntropyOutput,
    Reported,
    as_result,
    check_target,
    class_weight,
    empty_outputs,
    loss_options,
    mark_outputs,
)
from tigon.ops._route import RECORDED, WATCHED, route
from tigon.ops._scale import scale_, scaled
from tigon.ops._tensors import as_parameter, autocast_dtype, empty_rows, statistic_dtype


def linear_cross_entropy(
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None = None,
    ce_weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    accum_dtype: torch.dtype | None = None,
    use_token_scaling: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    chunk: Chunk | int | str | None = None,
) -> torch.Tensor | CrossEntropyOutput:
    """cross_entropy(input·weightᵀ + bias, target) holding only a chunk of the logits at a time.

    input: [..., hidden]; weight: [V, hidden]; target: [...]; bias, ce_weight (weights of the classes): [V] or None. The
    loss is that of tigon.ops.cross_entropy, and so are the results. Gradients are computed in forward for the inputs that
    require them (in backward with reduction "none", and in f16), ignored tokens cost nothing, and under autocast types are
    those of torch.nn.functional.linear.

    accum_dtype: torch.float32 keeps the gradients of weight and bias in f32 until they are complete; without it a 16-bit
    gradient of weight is about as exact as one product would make it. use_token_scaling: multiplies each token's loss by
    the probability of its target, as a constant; costs another product. chunk: None, "lean", tokens at a time, or a
    tigon.ops.Chunk.
    """
    check_target("linear_cross_entropy", target, input)
    x, weight, bias = _cast_like_linear(input, weight, bias)
    weight, bias = _present(as_parameter(weight, x)), as_parameter(bias, x)
    options = loss_options(ignore_index, label_smoothing, lse_square_scale, softcap, reduction)
    reported = (return_z_loss, return_token_accuracy, return_predicted_tokens)
    rule = as_chunk(chunk)
    token_scale = (
        _target_probability(x, weight, target, bias, ignore_index, softcap, rule) if use_token_scaling else None
    )
    settings = (*options, rule.tokens, rule.budget_bytes, rule.lean, _keeps_f32(accum_dtype, x))
    recording = torch.is_grad_enabled()
    needs = tuple(recording and t is not None and t.requires_grad for t in (x, weight, bias))
    tensors = (x, weight, bias, target, class_weight(ce_weight, x), token_scale)
    outputs = _call(tensors, settings, reported, needs)
    return as_result(outputs[:4], reported)


def _present(t: torch.Tensor | None) -> torch.Tensor:
    assert t is not None
    return t


def _cast_like_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    def cast(t: torch.Tensor) -> torch.Tensor:
        dtype = autocast_dtype(t)
        return t if dtype is None else t.to(dtype)

    return cast(x), cast(weight), None if bias is None else cast(bias)


def _keeps_f32(accum_dtype: torch.dtype | None, x: torch.Tensor) -> bool:
    if accum_dtype not in (None, torch.float32, x.dtype):
        raise ValueError(f"accum_dtype is {accum_dtype}: expected None, torch.float32 or the type of input, {x.dtype}")
    return accum_dtype == torch.float32 and x.dtype != torch.float64


def _target_probability(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    ignore_index: int,
    softcap: float | None,
    chunk: Chunk,
) -> torch.Tensor:
    with torch.no_grad():
        loss = linear_cross_entropy(
            x, weight, target, bias, ignore_index=ignore_index, softcap=softcap, reduction="none", chunk=chunk
        )
        assert isinstance(loss, torch.Tensor)
        return torch.exp(-loss)


def _call(
    tensors: tuple[torch.Tensor | None, ...], settings: tuple[Any, ...], reported: Reported, needs: tuple[bool, ...]
) -> Gradients:
    way = route("linear_cross_entropy", tensors)
    if way == RECORDED:
        outputs: Gradients = _apply(*tensors, settings, reported, needs)
        return outputs
    forward = _forward_operator if way == WATCHED else _forward
    return forward(*tensors, *settings, *reported, *needs)


def _empty_gradients(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, f32_sums: bool, needs: tuple[bool, ...]
) -> Gradients:
    def empty(parameter: torch.Tensor) -> torch.Tensor:
        if f32_sums and parameter.dtype != statistic_dtype(x):
            return torch.empty(parameter.shape, dtype=statistic_dtype(x), device=x.device)
        return empty_rows(parameter)

    return (
        empty_rows(x) if needs[0] else None,
        empty(weight) if needs[1] else None,
        empty(bias) if needs[2] and bias is not None else None,
    )


def _waits_for_upstream(x: torch.Tensor, reduction: int) -> bool:
    """Whether gradients are left to backward: they need a factor per token, or, in f16, a loss scale before rounding."""
    return reduction == NO_REDUCTION or x.dtype == torch.float16


def _forward(*arguments: Any, run: Any = _native.fused_linear_cross_entropy_forward) -> Gradients:
    """(x, weight, bias, target, class_weight, token_scale; 9 settings; 3 reported; 3 needs) -> 4 outputs, 3 gradients."""
    tensors, settings, reported, needs = arguments[:6], arguments[6:15], arguments[15:18], arguments[18:]
    x, weight, bias, target, *_ = tensors
    options, chunk, f32_sums = settings[:5], settings[5:8], settings[8]
    outputs = empty_outputs(x, target, options[4], reported)
    if _waits_for_upstream(x, options[4]):
        needs = (False, False, False)
    gradients = _empty_gradients(x, weight, bias, f32_sums, needs)
    run(*tensors, None, *options, *chunk, *outputs, *gradients)
    return *outputs, *gradients


def _backward(
    dloss: torch.Tensor, *arguments: Any, run: Any = _native.fused_linear_cross_entropy_backward
) -> Gradients:
    """(dloss; the tensors, settings and needs of forward) -> 3 gradients, in their final types."""
    tensors, settings, needs = arguments[:6], arguments[6:15], arguments[15:]
    options, chunk, f32_sums = settings[:5], settings[5:8], settings[8]
    x, weight, bias, *_ = tensors
    gradients = _empty_gradients(x, weight, bias, f32_sums, needs)
    run(*tensors, dloss, *options, *chunk, None, None, None, None, *gradients)
    return _in_final_types(gradients, weight.dtype, None if bias is None else bias.dtype)


def _in_final_types(gradients: Gradients, weight_dtype: torch.dtype, bias_dtype: torch.dtype | None) -> Gradients:
    dx, dweight, dbias = gradients
    return dx, None if dweight is None else dweight.to(weight_dtype), None if dbias is None else dbias.to(bias_dtype)


class _LinearCrossEntropy(FirstOrderFunction):
    """Backward hands out the gradients that forward has computed, which then belong to the caller; a second backward
    through the same graph computes them again."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        tensors, (settings, reported, needs) = inputs[:6], inputs[6:]
        *outputs, dx, dweight, dbias = _forward(*tensors, *settings, *reported, *needs)
        ctx.settings = settings
        ctx.final_types = tensors[1].dtype, None if tensors[2] is None else tensors[2].dtype
        ctx.gradients = None if _waits_for_upstream(tensors[0], settings[4]) else (dx, dweight, dbias)
        mark_outputs(ctx, outputs)
        ctx.save_for_backward(*tensors)
        return tuple(outputs)

    @staticmethod
    @first_order_only("linear_cross_entropy")
    def backward(ctx: Any, upstream: Gradients) -> Gradients:
        dloss = upstream[0]
        if dloss is None:
            return (None,) * 9
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            gradients = _backward(dloss, *ctx.saved_tensors, *ctx.settings, *ctx.needs_input_grad[:3])
        else:
            scale_(gradients, dloss)
            gradients = _in_final_types(gradients, *ctx.final_types)
        return (*gradients, *(None,) * 6)


_apply = _LinearCrossEntropy.call("linear_cross_entropy")
_SETTINGS_SCHEMA = f"{LOSS_OPTIONS_SCHEMA}, int chunk_tokens, int chunk_bytes, bool lean, bool f32_sums"
_TENSORS_SCHEMA = "Tensor x, Tensor weight, Tensor? bias, Tensor target, Tensor? class_weight, Tensor? token_scale"
_NEEDS_SCHEMA = "bool need_dx, bool need_dweight, bool need_dbias"
_forward_operator = register(
    "linear_cross_entropy",
    f"({_TENSORS_SCHEMA}, {_SETTINGS_SCHEMA}, {REPORTED_SCHEMA}, {_NEEDS_SCHEMA})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _forward,
)
_backward_operator = register(
    "linear_cross_entropy_backward",
    f"(Tensor dloss, {_TENSORS_SCHEMA}, {_SETTINGS_SCHEMA}, {_NEEDS_SCHEMA}) -> (Tensor, Tensor, Tensor)",
    _backward,
)


def _save_watched(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    tensors, ctx.settings = inputs[:6], inputs[6:15]
    ctx.inputs, ctx.final_types = len(inputs), (tensors[1].dtype, None if tensors[2] is None else tensors[2].dtype)
    ctx.waits = _waits_for_upstream(tensors[0], ctx.settings[4])
    mark_outputs(ctx, output)
    ctx.save_for_backward(*(tensors if ctx.waits else output[4:]))


def _watched_gradients(ctx: Any, dloss: torch.Tensor | None, *_: Any) -> Gradients:
    nothing: Gradients = (None,) * ctx.inputs
    if dloss is None:
        return nothing
    needs = ctx.needs_input_grad[:3]
    given: Gradients
    if ctx.waits:
        given = _backward_operator(dloss, *ctx.saved_tensors, *ctx.settings, *needs)
    else:
        kept = (t if needed else None for t, needed in zip(ctx.saved_tensors, needs, strict=True))
        given = _in_final_types(tuple(None if t is None else scaled(t, dloss) for t in kept), *ctx.final_types)
    return (*(g if needed else None for g, needed in zip(given, needs, strict=True)), *nothing[3:])


torch.library.register_autograd("tigon::linear_cross_entropy", _watched_gradients, setup_context=_save_watched)


# For FlopCounterMode: the product that gives logits, and one for each of the gradients of x and weight that come out (those
# that do not are empty).
@register_flop_formula(torch.ops.tigon.linear_cross_entropy)
def _flops(x: torch.Size, weight: torch.Size, *_: Any, out_shape: Any) -> int:
    return _product_flops(x, weight, out_shape[4:6])


@register_flop_formula(torch.ops.tigon.linear_cross_entropy_backward)
def _backward_flops(_: torch.Size, x: torch.Size, weight: torch.Size, *__: Any, out_shape: Any) -> int:
    return _product_flops(x, weight, out_shape[:2])


def _product_flops(x: torch.Size, weight: torch.Size, gradients: tuple[torch.Size, ...]) -> int:
    products = 1 + sum(math.prod(shape) > 0 for shape in gradients)
    return 2 * products * math.prod(x) * weight[0]
