"""Patches a family: all its models through their classes, or one model through its instances."""

import types
import warnings
from collections.abc import Callable
from typing import Any

from torch import nn

from tigon.transformers import _layout, _patches
from tigon.transformers._causal_lm import fused_forward
from tigon.transformers._families import Family
from tigon.transformers._layers import MLP_METHOD, norm_forward
from tigon.transformers._layout import Layout
from tigon.transformers._loss import tigon_causal_lm_loss
from tigon.transformers._rope import rotation, with_rotation


def apply(
    family: Family,
    *,
    rope: bool,
    cross_entropy: bool,
    fused_linear_cross_entropy: bool,
    rms_norm: bool,
    mlp: bool,
    model: nn.Module | None,
) -> None:
    """Replaces what was asked for. Checks everything first, so that a refusal leaves nothing half done."""
    if cross_entropy and fused_linear_cross_entropy:
        raise ValueError(
            "cross_entropy and fused_linear_cross_entropy cannot both be True: the first works on logits that the second "
            "does not make. Pass fused_linear_cross_entropy=False to use cross_entropy."
        )
    layout = _layout.find(family)
    parts: list[tuple[bool, Callable[[Layout], None], Callable[[Layout, nn.Module | None], None]]] = [
        (rope, _layout.check_rope, _patch_rope),
        (rms_norm, _layout.check_norm, _patch_norm),
        (mlp, _layout.check_mlp, _patch_mlp),
        (cross_entropy, _layout.check_causal_lm, _patch_loss),
        (fused_linear_cross_entropy, _layout.check_causal_lm, _patch_causal_lm),
    ]
    if model is not None and not any(isinstance(module, layout.attention) for module in model.modules()):
        raise ValueError(
            f"the model is a {type(model).__name__} without any {layout.attention.__name__}: expected a model of the family "
            f"{family.model_type}, or one that wraps it. apply_tigon(model) chooses by the model's own type."
        )
    asked = [(check, patch) for wanted, check, patch in parts if wanted]
    for check, _ in asked:
        check(layout)
    for _, patch in asked:
        patch(layout, model)


def _patch_rope(layout: Layout, model: nn.Module | None) -> None:
    rotate = rotation(layout.family)
    if model is None:
        _patches.replace(layout.module, "apply_rotary_pos_emb", rotate)
        return
    forward = with_rotation(_patches.original(layout.attention, "forward"), rotate)
    _replace_method(layout.attention, model, "forward", forward)


def _patch_norm(layout: Layout, model: nn.Module | None) -> None:
    _replace_method(layout.norm, model, "forward", norm_forward(layout.family.norm))


def _patch_mlp(layout: Layout, model: nn.Module | None) -> None:
    name, method = MLP_METHOD[layout.family.mlp_layout]
    _replace_method(layout.mlp, model, name, method)


def _patch_causal_lm(layout: Layout, model: nn.Module | None) -> None:
    forward = fused_forward(_patches.original(layout.causal_lm, "forward"), layout)
    _replace_method(layout.causal_lm, model, "forward", forward)


def _patch_loss(layout: Layout, model: nn.Module | None) -> None:
    # What PreTrainedModel.loss_function returns where it exists; it is called without self.
    if model is None:
        _patches.replace(layout.causal_lm, "_loss_function", staticmethod(tigon_causal_lm_loss))
        return
    for module in _instances(layout.causal_lm, model):
        _patches.replace(module, "_loss_function", tigon_causal_lm_loss)


def _replace_method(owner: type[nn.Module], model: nn.Module | None, name: str, method: Any) -> None:
    """On the class, or on every instance of it within ``model`` whose method is the class's own."""
    method.__name__ = name  # pickle stores a bound method by its name, and so finds the class's own
    if model is None:
        _patches.replace(owner, name, method)
        return
    others = set()
    for module in _instances(owner, model):
        if _is_somebody_elses(module, owner, name):
            others.add(type(module).__name__)
            continue
        # Accelerate hooks a module by wrapping its forward, and keeps the inner one as _old_forward.
        slot = "_old_forward" if name == "forward" and hasattr(module, "_hf_hook") else name
        _patches.replace(module, slot, types.MethodType(method, module))
    for kind in sorted(others):
        warnings.warn(
            f"{kind} has a {name} of its own, which is left as it is. Patch a model before its {name} is changed, or all "
            f"models of the family (without a model) to replace the {owner.__name__}.{name} that a subclass may call.",
            stacklevel=2,
        )


def _is_somebody_elses(module: nn.Module, owner: type[nn.Module], name: str) -> bool:
    """Whether a subclass, or somebody who wrapped this instance's method, computes more than we know of."""
    if getattr(type(module), name) is not getattr(owner, name):
        return True
    if name not in vars(module) or _patches.is_replaced(module, name) or hasattr(module, "_hf_hook"):
        return False
    # Accelerate leaves the class's own behind when it takes its hook away.
    function = getattr(vars(module)[name], "__func__", None)
    return function not in (getattr(owner, name), _patches.original(owner, name))


def _instances(owner: type[nn.Module], model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, owner)]
