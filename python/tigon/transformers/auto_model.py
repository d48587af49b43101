"""AutoModelForCausalLM with Tigon's ops."""

from typing import Any

from transformers import AutoModelForCausalLM

from tigon.transformers.monkey_patch import accepted_arguments, apply_tigon


class AutoTigonForCausalLM(AutoModelForCausalLM):
    """Creates a model as AutoModelForCausalLM does and patches it, and no other.

    Takes the switches of the family's apply_tigon_to_<family> (rope, rms_norm, …) beside the usual arguments. A model whose
    family has no patches is refused.
    """

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *model_args: Any, **kwargs: Any) -> Any:
        """As AutoModelForCausalLM.from_pretrained."""
        switches = _take_switches(kwargs)
        return _patched(super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs), switches)

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any) -> Any:
        """As AutoModelForCausalLM.from_config."""
        switches = _take_switches(kwargs)
        return _patched(super().from_config(config, **kwargs), switches)


def _take_switches(kwargs: dict[str, Any]) -> dict[str, bool]:
    names = accepted_arguments("llama") | accepted_arguments("gemma")
    return {name: kwargs.pop(name) for name in names & kwargs.keys()}


def _patched(loaded: Any, switches: dict[str, bool]) -> Any:
    """``loaded`` is a model, or with output_loading_info a model and what was found in its files."""
    apply_tigon(loaded[0] if isinstance(loaded, tuple) else loaded, **switches)
    return loaded
