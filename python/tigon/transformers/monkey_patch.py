"""Patching Hugging Face models: apply_tigon_to_<family>, apply_tigon by a model's type, and revert_tigon.

With ``model=None`` all models of the family are patched, those that exist and those to come; with a model only that one. A
PEFT model, or any module that contains the model, may be given instead.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from tigon.transformers import _patches
from tigon.transformers._apply import apply
from tigon.transformers._families import FAMILIES, FAMILY_OF, Family


def _apply_function(family: Family) -> Callable[..., None]:
    """apply_tigon_to_<family>, with the arguments of Liger's in their order."""

    def swiglu_family(
        rope: bool = True,
        cross_entropy: bool = False,
        fused_linear_cross_entropy: bool = True,
        rms_norm: bool = True,
        swiglu: bool = True,
        model: nn.Module | None = None,
    ) -> None:
        apply(
            family,
            rope=rope,
            cross_entropy=cross_entropy,
            fused_linear_cross_entropy=fused_linear_cross_entropy,
            rms_norm=rms_norm,
            mlp=swiglu,
            model=model,
        )

    def geglu_family(
        rope: bool = True,
        cross_entropy: bool = False,
        fused_linear_cross_entropy: bool = True,
        rms_norm: bool = True,
        geglu: bool = True,
        model: nn.Module | None = None,
    ) -> None:
        swiglu_family(rope, cross_entropy, fused_linear_cross_entropy, rms_norm, geglu, model)

    function = geglu_family if family.gate == "geglu" else swiglu_family
    function.__name__ = function.__qualname__ = f"apply_tigon_to_{family.model_type}"
    function.__doc__ = f"""Patches the models of the family {family.model_type} with Tigon's ops; revert_tigon undoes it.

        rope, rms_norm, {family.gate}: the layers. cross_entropy: the loss of given logits. fused_linear_cross_entropy: the
        training loss without logits (not together with cross_entropy). model: only this model, else all of the family.
        """
    return function


_APPLY: dict[str, Callable[..., None]] = {family.model_type: _apply_function(family) for family in FAMILIES}

apply_tigon_to_llama = _APPLY["llama"]
apply_tigon_to_mistral = _APPLY["mistral"]
apply_tigon_to_mixtral = _APPLY["mixtral"]
apply_tigon_to_qwen2 = _APPLY["qwen2"]
apply_tigon_to_qwen3 = _APPLY["qwen3"]
apply_tigon_to_gemma = _APPLY["gemma"]
apply_tigon_to_gemma2 = _APPLY["gemma2"]
apply_tigon_to_gemma3_text = _APPLY["gemma3_text"]
apply_tigon_to_gemma3 = apply_tigon_to_gemma3_text
apply_tigon_to_phi3 = _APPLY["phi3"]
apply_tigon_to_olmo2 = _APPLY["olmo2"]
apply_tigon_to_granite = _APPLY["granite"]
apply_tigon_to_glm4 = _APPLY["glm4"]


def accepted_arguments(model_type: str) -> frozenset[str]:
    """The names of the switches of a family; none for a family that Tigon does not know."""
    function = _APPLY.get(model_type)
    return frozenset() if function is None else frozenset(inspect.signature(function).parameters) - {"model"}


def apply_tigon_to_type(model_type: str, **switches: bool) -> None:
    """Patches all models of a type, as config.model_type names it."""
    _function_for(model_type)(**switches)


def apply_tigon(model: nn.Module, **switches: bool) -> None:
    """Patches one model by its ``config.model_type``; ``switches`` are those of its apply_tigon_to_<family>."""
    _function_for(_model_type(model))(model=model, **switches)


def revert_tigon(model: nn.Module | None = None) -> None:
    """Puts back what the apply functions replaced: on one model's instances, or everywhere. May be called at any time.

    A deep copy of a patched model is reverted by itself, with ``model``.
    """
    if model is None:
        _patches.restore_all()
    else:
        _patches.restore_model(model)


def _model_type(model: nn.Module) -> str:
    config: Any = getattr(model, "config", None)
    model_type: str | None = getattr(config, "model_type", None) or (
        config.get("model_type") if isinstance(config, dict) else None
    )
    if model_type is None:
        raise ValueError(
            f"{type(model).__name__} has no config.model_type to choose by: call apply_tigon_to_<family>(model=model)"
        )
    return model_type


def _function_for(model_type: str) -> Callable[..., None]:
    if model_type not in _APPLY:
        raise ValueError(
            f"model_type is {model_type!r}, for which Tigon has no patches: expected one of {', '.join(sorted(FAMILY_OF))}. "
            "The modules of tigon.transformers and tigon.ops can be used in any model."
        )
    return _APPLY[model_type]
