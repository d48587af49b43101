"""A Llama small enough for a laptop, and text for it; put your own model and data set in their place."""

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


class Counting(Dataset):
    """Rows that count upwards from somewhere: [length] tokens each, the labels the same."""

    def __init__(self, rows: int = 64, length: int = 32) -> None:
        self.first = torch.randint(0, 256, (rows,), generator=torch.Generator().manual_seed(0))
        self.length = length

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        tokens = (self.first[row] + torch.arange(self.length)) % 256
        return {"input_ids": tokens, "labels": tokens}
