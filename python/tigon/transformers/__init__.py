"""Modules and Hugging Face patches, by the names that Liger-Kernel's users know.

Switching is a search and replace: liger_kernel -> tigon, LigerKernel -> Tigon, Liger -> Tigon, liger_ -> tigon_.
"""

from typing import TYPE_CHECKING, Any

from tigon.ops import CrossEntropyOutput
from tigon.transformers._layout import UnknownLayoutError
from tigon.transformers.cross_entropy import TigonCrossEntropyLoss
from tigon.transformers.functional import (
    tigon_cross_entropy,
    tigon_fused_add_rms_norm,
    tigon_fused_linear_cross_entropy,
    tigon_geglu,
    tigon_layer_norm,
    tigon_rms_norm,
    tigon_rope,
    tigon_swiglu,
)
from tigon.transformers.fused_add_rms_norm import TigonFusedAddRMSNorm
from tigon.transformers.fused_linear_cross_entropy import TigonFusedLinearCrossEntropyLoss
from tigon.transformers.geglu import TigonGEGLUMLP
from tigon.transformers.layer_norm import TigonLayerNorm
from tigon.transformers.monkey_patch import (
    apply_tigon,
    apply_tigon_to_gemma,
    apply_tigon_to_gemma2,
    apply_tigon_to_gemma3,
    apply_tigon_to_gemma3_text,
    apply_tigon_to_glm4,
    apply_tigon_to_granite,
    apply_tigon_to_llama,
    apply_tigon_to_mistral,
    apply_tigon_to_mixtral,
    apply_tigon_to_olmo2,
    apply_tigon_to_phi3,
    apply_tigon_to_qwen2,
    apply_tigon_to_qwen3,
    apply_tigon_to_type,
    revert_tigon,
)
from tigon.transformers.rms_norm import TigonRMSNorm
from tigon.transformers.rope import tigon_rotary_pos_emb
from tigon.transformers.swiglu import TigonSwiGLUMLP

if TYPE_CHECKING:
    from tigon.transformers.auto_model import AutoTigonForCausalLM

__all__ = [
    "AutoTigonForCausalLM",
    "CrossEntropyOutput",
    "TigonCrossEntropyLoss",
    "TigonFusedAddRMSNorm",
    "TigonFusedLinearCrossEntropyLoss",
    "TigonGEGLUMLP",
    "TigonLayerNorm",
    "TigonRMSNorm",
    "TigonSwiGLUMLP",
    "UnknownLayoutError",
    "apply_tigon",
    "apply_tigon_to_gemma",
    "apply_tigon_to_gemma2",
    "apply_tigon_to_gemma3",
    "apply_tigon_to_gemma3_text",
    "apply_tigon_to_glm4",
    "apply_tigon_to_granite",
    "apply_tigon_to_llama",
    "apply_tigon_to_mistral",
    "apply_tigon_to_mixtral",
    "apply_tigon_to_olmo2",
    "apply_tigon_to_phi3",
    "apply_tigon_to_qwen2",
    "apply_tigon_to_qwen3",
    "apply_tigon_to_type",
    "revert_tigon",
    "tigon_cross_entropy",
    "tigon_fused_add_rms_norm",
    "tigon_fused_linear_cross_entropy",
    "tigon_geglu",
    "tigon_layer_norm",
    "tigon_rms_norm",
    "tigon_rope",
    "tigon_rotary_pos_emb",
    "tigon_swiglu",
]


def __getattr__(name: str) -> Any:
    if name != "AutoTigonForCausalLM":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Late: the modules and ops above work without Hugging Face Transformers.
    from tigon.transformers.auto_model import AutoTigonForCausalLM

    return AutoTigonForCausalLM
