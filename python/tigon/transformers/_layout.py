"""Finds a family's parts in the installed Transformers and checks that they compute what the table says.

A release of Transformers may move, rename or change a layer. Each part is therefore checked before it is replaced: norms and
rotary embeddings by running both versions on a few numbers, MLPs and the causal-LM forward by the names that they use.
"""

import functools
import importlib
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tigon import ops
from tigon.transformers import _patches
from tigon.transformers._families import Family
from tigon.transformers._rope import rotation


class UnknownLayoutError(RuntimeError):
    """The installed Transformers has a model laid out in a way that Tigon does not know."""


@dataclass(frozen=True)
class Layout:
    """A family's parts in the installed Transformers."""

    family: Family
    module: types.ModuleType
    norm: type[nn.Module]
    mlp: type[nn.Module]
    attention: type[nn.Module]
    causal_lm: type[nn.Module]


def _refuse(family: Family, found: str, expected: str, switch: str) -> UnknownLayoutError:
    import transformers

    return UnknownLayoutError(
        f"{family.model_type} in Transformers {transformers.__version__}: {found}, but Tigon expected {expected}. Pass "
        f"{switch}=False to leave this part as it is, or install a version that Tigon was tested with (5.17, 5.23): "
        "pip install 'transformers==5.17.*'"
    )


def _import(family: Family) -> types.ModuleType:
    try:
        return importlib.import_module(family.module)
    except ModuleNotFoundError as missing:
        if missing.name == "transformers":
            raise ImportError(
                f"patching {family.model_type} needs Hugging Face Transformers 5, which is not installed: "
                "pip install 'transformers>=5.17'"
            ) from missing
        raise _refuse(family, f"there is no {family.module}", "its classes there", "every switch") from missing


@functools.cache
def find(family: Family) -> Layout:
    """The family's classes; raises UnknownLayoutError where one is missing."""
    module = _import(family)
    names = [family.prefix + part for part in ("RMSNorm", family.mlp, "Attention", "ForCausalLM")]
    for name in names:
        if not hasattr(module, name):
            raise _refuse(family, f"{family.module} has no {name}", f"the classes {', '.join(names)}", "every switch")
    return Layout(family, module, *(getattr(module, name) for name in names))


@functools.cache
def check_norm(layout: Layout) -> None:
    """Runs the class and our op on the same bf16 numbers; a different order of roundings shows in the last bit."""
    family, norm = layout.family, layout.family.norm
    generator = torch.Generator().manual_seed(0)
    with torch.device("cpu"), torch.no_grad():
        module: Any = layout.norm(64, eps=1e-6).to(torch.bfloat16)
        if not hasattr(module, norm.eps):
            raise _refuse(family, f"{layout.norm.__name__} has no {norm.eps}", "its epsilon there", "rms_norm")
        module.weight.copy_(torch.randn(64, generator=generator))
        x = torch.randn(64, 64, generator=generator).to(torch.bfloat16)
        theirs = _patches.original(layout.norm, "forward")(module, x)
        ours = ops.rms_norm(x, module.weight, getattr(module, norm.eps), norm.offset, norm.casting_mode)
    if theirs.dtype != ours.dtype or (theirs == ours).float().mean() < 0.99:
        raise _refuse(family, f"{layout.norm.__name__} computes something else", f"{norm}", "rms_norm")


@functools.cache
def check_rope(layout: Layout) -> None:
    """Runs apply_rotary_pos_emb and ours on the same numbers."""
    family = layout.family
    if not hasattr(layout.module, "apply_rotary_pos_emb"):
        raise _refuse(family, f"{family.module} has no apply_rotary_pos_emb", "that function", "rope")
    theirs = _patches.original(layout.module, "apply_rotary_pos_emb")
    generator = torch.Generator().manual_seed(0)
    with torch.device("cpu"):
        shapes = (1, 2, 3, 8), (1, 1, 3, 8), (1, 3, 4)
        q, k, angle = (torch.randn(shape, generator=generator, dtype=torch.float32) for shape in shapes)
        angle = angle.repeat(1, 1, 2)
        expected = theirs(q, k, angle.cos(), angle.sin())
        got = rotation(family)(q, k, angle.cos(), angle.sin())
    if not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(expected, got, strict=True)):
        pairs = "(2i, 2i + 1)" if family.interleaved_rope else "(i, i + rotary/2)"
        raise _refuse(
            family, "apply_rotary_pos_emb computes something else", f"a rotation of the pairs {pairs}", "rope"
        )


def _names(function: Callable[..., Any]) -> set[str]:
    return set(inspect.unwrap(function).__code__.co_names)


_MLP_NAMES = {
    "separate": {"gate_proj", "up_proj", "down_proj", "act_fn"},
    "packed": {"gate_up_proj", "chunk", "down_proj", "activation_fn"},
    "experts": {"chunk", "act_fn"},
}


@functools.cache
def check_mlp(layout: Layout) -> None:
    """Compares the names that the MLP uses (of experts: their activation alone) with those of the layout in the table."""
    family = layout.family
    method = "_apply_gate" if family.mlp_layout == "experts" else "forward"
    used, known = _names(_patches.original(layout.mlp, method)), _MLP_NAMES[family.mlp_layout]
    if used != known:
        raise _refuse(family, f"{layout.mlp.__name__}.{method} uses {sorted(used)}", f"{sorted(known)}", family.gate)


LEADING_ARGUMENTS = (
    "input_ids",
    "attention_mask",
    "position_ids",
    "past_key_values",
    "inputs_embeds",
    "labels",
    "use_cache",
)

_CAUSAL_LM_NAMES = {
    *("model", "last_hidden_state", "isinstance", "int", "slice", "lm_head", "loss_function", "config", "vocab_size"),
    *("CausalLMOutputWithPast", "past_key_values", "hidden_states", "attentions"),
    "slice_logits_to_keep",  # since Transformers 5.21
}
_ROUTER_NAMES = {
    *("output_router_logits", "load_balancing_loss_func", "router_logits", "num_experts", "num_experts_per_tok"),
    *("router_aux_loss_coef", "to", "device", "MoeCausalLMOutputWithPast"),
}


@functools.cache
def check_causal_lm(layout: Layout) -> None:
    """Refuses a forward that takes other arguments, or that does more to its logits than the table says."""
    family, switch = layout.family, "fused_linear_cross_entropy"
    forward = _patches.original(layout.causal_lm, "forward")
    arguments = tuple(inspect.signature(forward).parameters)
    if arguments[1 : 1 + len(LEADING_ARGUMENTS)] != LEADING_ARGUMENTS:
        raise _refuse(family, f"forward takes {arguments[1:]}", f"{LEADING_ARGUMENTS} first", switch)
    known = set(_CAUSAL_LM_NAMES)
    if family.router_loss:
        known |= _ROUTER_NAMES
    if family.softcap is not None:
        known |= {family.softcap, "torch", "tanh"}
    if family.logits_divisor is not None:
        known |= {family.logits_divisor}
    unknown, missing = _names(forward) - known, {"model", "lm_head", "loss_function"} - _names(forward)
    if unknown or missing:
        found = (
            f"{layout.causal_lm.__name__}.forward uses {sorted(unknown)}" if unknown else f"it lacks {sorted(missing)}"
        )
        raise _refuse(family, found, f"no names but {sorted(known)}", switch)
