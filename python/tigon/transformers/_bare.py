"""Whether calling a layer is its own computation and nothing else, so that another op may do that instead."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as nn_module


def is_bare(layer: nn.Module, ignores: Callable[[Any], bool] = lambda hook: False) -> bool:
    """No forward that somebody put there, and no hooks, which may also bring its weight, but forward hooks that ``ignores``
    knows. The weight is a whole one: DeepSpeed ZeRO-3's are empty outside of calls that it knows of."""
    return (
        "forward" not in vars(layer)
        and not (layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)
        and all(map(ignores, layer._forward_hooks.values()))
        and not nn_module._has_any_global_hook()
        and not hasattr(getattr(layer, "weight", None), "ds_id")
    )
