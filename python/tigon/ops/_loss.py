"""What the two cross entropies share: their options, their outputs, and how those are allocated."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from tigon.ops._tensors import require_shape, statistic_dtype

_REDUCTION = {"mean": 0, "sum": 1, "none": 2}  # tigon_reduction
NO_REDUCTION = _REDUCTION["none"]


class CrossEntropyOutput(NamedTuple):
    """A loss and what was asked for beside it (else None). Only the loss has a gradient."""

    loss: torch.Tensor
    z_loss: torch.Tensor | None = None
    token_accuracy: torch.Tensor | None = None
    predicted_tokens: torch.Tensor | None = None


class LossOptions(NamedTuple):
    """In the order of TIGON_LOSS_OPTIONS in python/binding/ops.cpp."""

    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    reduction: int


LOSS_OPTIONS_SCHEMA = "int ignore_index, float label_smoothing, float z_loss, float softcap, int reduction"


Reported = tuple[bool, bool, bool]  # which outputs beside the loss are wanted: z-loss, token accuracy, predicted tokens
REPORTED_SCHEMA = "bool return_z_loss, bool return_token_accuracy, bool return_predicted_tokens"


def loss_options(
    ignore_index: int, label_smoothing: float, lse_square_scale: float, softcap: float | None, reduction: str
) -> LossOptions:
    """The options as the kernels take them."""
    if reduction not in _REDUCTION:
        raise ValueError(f"reduction is {reduction!r}: expected one of {', '.join(map(repr, _REDUCTION))}")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"softcap is {softcap}: expected a positive number, or None for no cap")
    return LossOptions(ignore_index, label_smoothing, lse_square_scale, softcap or 0.0, _REDUCTION[reduction])


def check_target(op: str, target: torch.Tensor, input: torch.Tensor) -> None:
    """One per row of ``input`` [..., hidden or V]: [...], or flat."""
    if target.dim() > 1:
        require_shape(op, "target", target, input.shape[:-1], "one per token")


def class_weight(weight: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    """Weights of the classes in the type of losses. They get no gradient."""
    if weight is None:
        return None
    if weight.requires_grad:
        raise NotImplementedError("class weights get no gradient: pass them detached")
    return weight.to(statistic_dtype(like))


def mark_outputs(ctx: Any, outputs: Sequence[torch.Tensor | None]) -> None:
    """Only the loss, which comes first, has a gradient."""
    ctx.set_materialize_grads(False)
    others = [t for t in outputs[1:] if t is not None]
    if others:
        ctx.mark_non_differentiable(*others)


def empty_outputs(
    like: torch.Tensor, target: torch.Tensor, reduction: int, reported: Reported
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Loss, z-loss, accuracy (scalars, or target's shape without reduction) and predicted tokens (target's shape)."""
    z_loss, token_accuracy, predicted_tokens = reported
    if reduction == NO_REDUCTION:
        loss = torch.empty(target.shape, dtype=statistic_dtype(like), device=like.device)
    else:
        loss = torch.empty_strided((), (), dtype=statistic_dtype(like), device=like.device)
    return (
        loss,
        torch.empty_like(loss) if z_loss else None,
        torch.empty_like(loss) if token_accuracy else None,
        torch.empty(target.shape, dtype=torch.int64, device=like.device) if predicted_tokens else None,
    )


def as_result(outputs: tuple[torch.Tensor | None, ...], reported: Reported) -> torch.Tensor | CrossEntropyOutput:
    """The loss alone, or all four places where anything beside it was asked for."""
    loss, *others = outputs
    assert loss is not None
    if not any(reported):
        return loss
    return CrossEntropyOutput(loss, *(t if wanted else None for t, wanted in zip(others, reported, strict=True)))
