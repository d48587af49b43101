"""What the gated MLPs share: three projections sized by a Hugging Face config."""

from typing import Any

from torch import nn


class GatedMLP(nn.Module):
    """gate_proj, up_proj: hidden_size -> intermediate_size; down_proj back. Without biases, as in Liger."""

    def __init__(self, config: Any, intermediate_size: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.hidden_size: int = config.hidden_size
        self.intermediate_size: int = config.intermediate_size if intermediate_size is None else intermediate_size
        self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.up_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=False)


def configured_activation(config: Any) -> str | None:
    """The name of a config's activation; families differ in what they call it."""
    return getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
