"""The loss of a causal language model as Hugging Face defines it, from logits."""

import math
from typing import Any, cast

import torch
from torch import nn

from tigon import ops


def shifted_labels(
    labels: torch.Tensor | None, shift_labels: torch.Tensor | None, ignore_index: int, like: torch.Tensor
) -> torch.Tensor:
    """For each position the token after it: [batch, seq], on the device of ``like`` [batch, seq, …].

    ``shift_labels`` are that already, or flat; else they are ``labels`` moved by one, with nothing to predict at the end.
    """
    if shift_labels is None:
        shift_labels = nn.functional.pad(cast(torch.Tensor, labels), (0, 1), value=ignore_index)[..., 1:]
    elif shift_labels.dim() == 1 and len(shift_labels) == math.prod(like.shape[:-1]):
        shift_labels = shift_labels.view(like.shape[:-1])
    if shift_labels.shape != like.shape[:-1]:
        raise ValueError(
            f"labels of shape {tuple(shift_labels.shape)} for {tuple(like.shape[:-1])} positions: expected one per position. "
            "With logits_to_keep pass the labels of the kept positions as shift_labels."
        )
    return shift_labels.to(like.device)


def mean_over_items(loss: torch.Tensor, items: torch.Tensor | int | None) -> torch.Tensor:
    """A summed loss divided by the items of the whole batch, of which this may be a part; unchanged without them.

    Where every label is masked there are none, and the loss is 0: as 0/0 it would make gradients of 0·∞, and every
    parameter NaN.
    """
    if items is None:
        return loss
    return loss / (items.to(loss.device).clamp(min=1) if isinstance(items, torch.Tensor) else max(items, 1))


def tigon_causal_lm_loss(
    logits: torch.Tensor,
    labels: torch.Tensor | None,
    vocab_size: int,
    num_items_in_batch: torch.Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """Takes the place of a model's loss_function: logits [batch, seq, vocab_size], labels [batch, seq] -> a f32 scalar.

    The logits are read as they are, without the f32 copy that Hugging Face makes.
    """
    target = shifted_labels(labels, shift_labels, ignore_index, logits)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = ops.cross_entropy(logits, target, ignore_index=ignore_index, reduction=reduction)
    return mean_over_items(cast(torch.Tensor, loss), num_items_in_batch)
