"""The table of the model families that can be patched: how each one's layers compute in Hugging Face Transformers.

Everything that differs between families is a column here; the code that patches them is one and the same.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Norm:
    """How the family's RMSNorm class computes; see tigon.ops.rms_norm."""

    eps: str = "variance_epsilon"
    """The attribute that holds eps."""
    offset: float = 0.0
    casting_mode: str = "llama"


@dataclass(frozen=True)
class Family:
    """Where a family's parts are and how they compute."""

    model_type: str
    package: str
    prefix: str
    """Of the class names in transformers.models.<package>.modeling_<package>."""
    norm: Norm = Norm()
    gate: str = "swiglu"
    """The name of the MLP's switch in apply_tigon_to_*: swiglu or geglu."""
    mlp: str = "MLP"
    """The MLP's class is <prefix><mlp>."""
    mlp_layout: str = "separate"
    """gate_proj and up_proj ("separate"), gate_up_proj ("packed"), or weights of all experts in one tensor ("experts")."""
    interleaved_rope: bool = False
    """Rotates the pairs (2i, 2i + 1) instead of (i, i + rotary/2)."""
    softcap: str | None = None
    """The config's attribute for the cap of the logits: cap·tanh(logits/cap)."""
    logits_divisor: str | None = None
    """The config's attribute that the logits are divided by."""
    router_loss: bool = False
    """The model adds a load balancing loss of its experts."""

    @property
    def module(self) -> str:
        """The module that defines the family's classes."""
        return f"transformers.models.{self.package}.modeling_{self.package}"


_GEMMA = Norm(eps="eps", offset=1.0, casting_mode="gemma")

FAMILIES: tuple[Family, ...] = (
    Family("llama", "llama", "Llama"),
    Family("mistral", "mistral", "Mistral"),
    Family("mixtral", "mixtral", "Mixtral", mlp="Experts", mlp_layout="experts", router_loss=True),
    Family("qwen2", "qwen2", "Qwen2"),
    Family("qwen3", "qwen3", "Qwen3"),
    Family("gemma", "gemma", "Gemma", norm=_GEMMA, gate="geglu"),
    Family("gemma2", "gemma2", "Gemma2", norm=_GEMMA, gate="geglu", softcap="final_logit_softcapping"),
    Family("gemma3_text", "gemma3", "Gemma3", norm=_GEMMA, gate="geglu", softcap="final_logit_softcapping"),
    Family("phi3", "phi3", "Phi3", mlp_layout="packed"),
    Family("olmo2", "olmo2", "Olmo2", norm=Norm(casting_mode="gemma")),
    Family("granite", "granite", "Granite", logits_divisor="logits_scaling"),
    Family("glm4", "glm4", "Glm4", mlp_layout="packed", interleaved_rope=True),
)

FAMILY_OF: dict[str, Family] = {family.model_type: family for family in FAMILIES}
