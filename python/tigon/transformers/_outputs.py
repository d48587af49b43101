"""What a patched model returns beside Hugging Face's own fields."""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast, MoeCausalLMOutputWithPast


@dataclass
class TigonCausalLMOutputWithPast(CausalLMOutputWithPast):
    """token_accuracy: a scalar; predicted_tokens: the shape of the labels. Each where asked for, else None."""

    token_accuracy: torch.Tensor | None = None
    predicted_tokens: torch.Tensor | None = None


@dataclass
class TigonMoeCausalLMOutputWithPast(MoeCausalLMOutputWithPast):
    """token_accuracy: a scalar; predicted_tokens: the shape of the labels. Each where asked for, else None."""

    token_accuracy: torch.Tensor | None = None
    predicted_tokens: torch.Tensor | None = None
