"""Small random models of every family, as Hugging Face Transformers makes them."""

import torch
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

_COMMON = dict(
    vocab_size=96,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    initializer_range=0.08,
)

CONFIGS = {
    "llama2": LlamaConfig(**{**_COMMON, "num_key_value_heads": 4}),
    "llama3": LlamaConfig(**_COMMON, head_dim=16, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    "llama3.1": LlamaConfig(
        **_COMMON,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "llama-linear": LlamaConfig(
        **_COMMON, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    ),
    "qwen2.5-yarn": Qwen2Config(
        **_COMMON,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "llama3.2": LlamaConfig(**_COMMON, tie_word_embeddings=True),
    "mistral": MistralConfig(**_COMMON, sliding_window=64),
    "qwen2": Qwen2Config(**_COMMON),
    "qwen2.5-tied": Qwen2Config(**_COMMON, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**_COMMON, head_dim=24),
    # Without a pad token: torch gives no gradient to that token's embedding, Tigon treats it as any other.
    "gemma": GemmaConfig(**_COMMON, head_dim=24, pad_token_id=None),
    "gemma-erf": GemmaConfig(**_COMMON, head_dim=24, pad_token_id=None, hidden_act="gelu", tie_word_embeddings=False),
}


def make(name, folder, dtype=torch.float32):
    """Writes a model with weights that are nowhere special (norms and biases included) and returns it in f32."""
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model = model.to(dtype)
    model.save_pretrained(folder)
    return model.float()
