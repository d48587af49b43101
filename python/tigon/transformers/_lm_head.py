"""The loss of a language model's head, computed inside the head's own call.

Sharded training (FSDP2, DeepSpeed ZeRO-3) and offloading bring a module's weights together in the hooks around its call and
take them away afterwards; so do they for its gradients. Only during that call may the weight be read. The loss is therefore
computed there, with the head's forward exchanged for the time of the call; without hooks it is computed directly.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn

from tigon import ops
from tigon.ops import CrossEntropyOutput
from tigon.transformers._bare import is_bare


def linear_head(head: nn.Module) -> nn.Linear | None:
    """The plain linear layer that makes the logits, or None where there is no such layer (LoRA on it, quantised, …)."""
    inner = _active_copy(head)
    if not isinstance(inner, nn.Linear) or type(inner).forward is not nn.Linear.forward:
        return None
    if "forward" in vars(inner) and not hasattr(inner, "_hf_hook"):
        return None  # somebody else changed what this layer computes
    return inner if _is_whole_when_called(inner) else None


def head_loss(
    head: nn.Module, weight: torch.Tensor | None, hidden: torch.Tensor, target: torch.Tensor, **options: Any
) -> torch.Tensor | CrossEntropyOutput:
    """linear_cross_entropy of the head (which linear_head found) for hidden [..., hidden], target [...]; of ``weight``
    instead of the head's where there is one."""
    inner = cast(nn.Linear, linear_head(head))

    def loss(hidden: torch.Tensor) -> Any:
        return ops.linear_cross_entropy(
            hidden, inner.weight if weight is None else weight, target, inner.bias, **options
        )

    def inside(hidden: torch.Tensor) -> Any:
        return _call_as(inner, loss, hidden)

    return cast(torch.Tensor, inside(hidden) if inner is head else _call_as(head, inside, hidden))


def _active_copy(head: Any) -> Any:
    """PEFT's modules_to_save keeps the original and a trainable copy per adapter; ``head`` itself where there are none."""
    copies = getattr(head, "modules_to_save", None)
    if copies is None or not hasattr(head, "original_module"):
        return head
    active = [] if head.disable_adapters else [name for name in head.active_adapters if name in copies]
    if len(active) > 1:
        return head
    return copies[active[0]] if active else head.original_module


def _is_whole_when_called(layer: nn.Linear) -> bool:
    """Whether the weight is an ordinary tensor during the layer's call. One split by tensor parallelism never is, nor one
    that torchao has quantised, which it puts into the layer as a tensor of another class."""
    if not hasattr(layer.weight, "__tensor_flatten__"):
        return True
    from torch.distributed.fsdp import FSDPModule

    return hasattr(layer.weight, "device_mesh") and isinstance(layer, FSDPModule)


def _call_as(module: nn.Module, function: Callable[..., Any], *args: Any) -> Any:
    """Calls ``module`` with all its hooks, computing ``function`` instead of its forward."""
    if is_bare(module):
        return function(*args)  # the exchange below would break a compiled graph, and be seen by other threads
    with _forward_exchanged(module, function):
        return module(*args)


@contextmanager
def _forward_exchanged(module: nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    # Accelerate hooks a module by wrapping its forward, and keeps the inner one as _old_forward.
    slot = "_old_forward" if hasattr(module, "_hf_hook") else "forward"
    own = vars(module).get(slot)
    setattr(module, slot, function)
    try:
        yield
    finally:
        if own is None:
            delattr(module, slot)
        else:
            setattr(module, slot, own)
