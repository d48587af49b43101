"""The embedding of a model whose head is the same parameter.

Its gradient has two parts: all of it from the head, and a row per token from the embedding. Autograd would make both whole
and add them up, at the very end of backward, where nothing else is as large. Here the rows are added to the head's part.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tigon import _native
from tigon.ops._autograd import FirstOrderFunction, Gradients, first_order_only
from tigon.ops._ownership import holders
from tigon.ops._route import is_plain_call
from tigon.transformers._bare import is_bare


def tied_table(model: Any, head: nn.Linear | None) -> nn.Embedding | None:
    """The embedding whose table is ``head``'s weight, or None where it is not, or where more than a lookup and a product may
    depend on the two: hooks, sharding, gradients that are not wanted."""
    table = model.get_input_embeddings()
    if head is None or head is not model.lm_head or type(table) is not nn.Embedding or head.weight is not table.weight:
        return None
    weight = table.weight
    plain = table.max_norm is None and not (table.scale_grad_by_freq or table.sparse)
    if not (plain and weight.requires_grad and torch.is_grad_enabled() and is_bare(table, _is_idle) and is_bare(head)):
        return None
    return table if is_plain_call("tied embedding", (weight,)) else None


def _is_idle(hook: Any) -> bool:
    """Gradient checkpointing in Transformers: the embedding's result shall require a gradient, as here it does anyway."""
    name, origin = getattr(hook, "__name__", ""), getattr(hook, "__module__", None) or ""
    return name == "make_inputs_require_grads" and origin.startswith("transformers.")


def tied_embedding(
    weight: torch.Tensor, ids: torch.Tensor, padding_idx: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """weight[ids], and weight once more for the head. ids: any shape; those that are ``padding_idx`` give no gradient."""
    alone = _alone(weight.device.type)
    x, head = _apply(weight, ids, padding_idx, lambda counts: counts == alone)
    return x, head


class _TiedEmbedding(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any,
        weight: torch.Tensor,
        ids: torch.Tensor,
        padding_idx: int | None,
        is_ours: Callable[[tuple[int, ...]], bool | None],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``is_ours`` says from what holders() finds whether the head's gradient may be changed."""
        ctx.set_materialize_grads(False)
        ctx.is_ours, ctx.padding_idx, ctx.empty, ctx.shape = is_ours, padding_idx, weight.new_empty(0), weight.shape
        ctx.save_for_backward(ids)
        return torch.embedding(weight, ids), weight.view_as(weight)

    @staticmethod
    @first_order_only("tied embedding")
    def backward(ctx: Any, upstream: tuple[torch.Tensor | None, ...]) -> Gradients:
        ours = upstream[1] is not None and ctx.is_ours(holders(upstream[1]))  # before there are variables that hold it
        dx, dhead = upstream
        if dx is None:
            return dhead, None, None, None
        dweight = ctx.empty.new_empty(ctx.shape) if dhead is None else dhead if ours else dhead.clone()
        (ids,) = ctx.saved_tensors
        if ctx.padding_idx is not None:
            dx = dx.masked_fill((ids == ctx.padding_idx).unsqueeze(-1), 0)
        _native.embedding_backward(ids.reshape(-1), dx.reshape(-1, ctx.shape[-1]), dweight, int(dhead is not None))
        return dweight, None, None, None


_apply = _TiedEmbedding.call("tied_embedding")


class _NewGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.shape = x.shape
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
        return upstream.new_zeros(ctx.shape)


@functools.cache
def _alone(device_type: str) -> tuple[int, ...] | None:
    """What holders() finds in backward where nobody else holds the gradient: tried out. None where torch does not say."""
    found: list[tuple[int, ...]] = []
    # The trial saves a tensor of its own, which a checkpoint around the first call would miss when it computes again.
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        weight = torch.zeros(1, 1, device=device_type, requires_grad=True)
        x, head = _apply(weight, torch.zeros(1, dtype=torch.int64, device=device_type), None, found.append)
        torch.autograd.backward([x.sum(), _NewGradient.apply(head)])
    return found[0] or None
