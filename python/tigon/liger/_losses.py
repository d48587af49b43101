"""Tigon's losses behind the arguments of Liger's, with Liger's checks and in Liger's types.

Class weights that ask for a gradient get none there, without a word; so they do here.
"""

import torch

from tigon import ops
from tigon.ops import CrossEntropyOutput

# The loss, and z-loss, token accuracy and predicted tokens or None.
FourResults = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


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
    *,
    mode: str | None = None,
) -> FourResults:
    """As tigon.ops.cross_entropy, but loss and z-loss come in the type of the logits."""
    _check_flags(return_z_loss, return_token_accuracy, return_predicted_tokens)
    loss, z_loss, accuracy, predicted = _four(
        ops.cross_entropy(
            input,
            target,
            _class_weight(weight, input.shape[-1]),
            ignore_index,
            lse_square_scale,
            label_smoothing,
            reduction,
            softcap,
            return_z_loss,
            return_token_accuracy,
            return_predicted_tokens,
        )
    )
    return loss.to(input.dtype), None if z_loss is None else z_loss.to(input.dtype), accuracy, predicted


def fused_linear_cross_entropy(
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
    ce_impl: str | None = None,
    ce_mode: str | None = None,
    chunk_mem_const: int = 1,
    *,
    mode: str | None = None,
) -> FourResults:
    """As tigon.ops.linear_cross_entropy, but the z-loss comes in the type of the hidden states. The loss is f32 there too.

    The last three choose how Liger computes. Sums are kept in f32 where accum_dtype is f32 or wider.
    """
    _check_flags(return_z_loss, return_token_accuracy, return_predicted_tokens)
    if isinstance(chunk_mem_const, bool) or not isinstance(chunk_mem_const, int) or chunk_mem_const < 1:
        raise ValueError(f"chunk_mem_const is {chunk_mem_const!r}: expected a positive integer")
    if input.shape[-1] != weight.shape[-1]:
        raise RuntimeError(f"input is {list(input.shape)} and weight {list(weight.shape)}: expected one hidden size")
    loss, z_loss, accuracy, predicted = _four(
        ops.linear_cross_entropy(
            input,
            weight,
            target,
            bias,
            _class_weight(ce_weight, weight.shape[0]),
            ignore_index,
            lse_square_scale,
            label_smoothing,
            reduction,
            softcap,
            return_z_loss,
            torch.float32 if accum_dtype in (torch.float32, torch.float64) else None,
            use_token_scaling,
            return_token_accuracy,
            return_predicted_tokens,
        )
    )
    return loss, None if z_loss is None else z_loss.to(input.dtype), accuracy, predicted


def _check_flags(*flags: bool) -> None:
    assert all(isinstance(flag, bool) for flag in flags), (
        f"return_z_loss, return_token_accuracy and return_predicted_tokens are {flags}: expected True or False"
    )


def _class_weight(weight: torch.Tensor | None, classes: int) -> torch.Tensor | None:
    if weight is None:
        return None
    assert weight.shape[0] == classes, f"there are {weight.shape[0]} class weights: expected {classes}, one per class"
    assert weight.is_floating_point(), f"class weights are {weight.dtype}: expected a floating point type"
    return weight.detach()


def _four(result: torch.Tensor | CrossEntropyOutput) -> CrossEntropyOutput:
    return CrossEntropyOutput(result) if isinstance(result, torch.Tensor) else result
