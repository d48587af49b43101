"""Small random models of every family that can be patched, and batches for them."""

import torch
import transformers

VOCAB = 96

_COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# What makes a family special is switched on where a config can switch it.
CONFIGS = {
    "llama": (transformers.LlamaConfig, {"mlp_bias": True}),
    "mistral": (transformers.MistralConfig, {"sliding_window": 8}),
    "mixtral": (transformers.MixtralConfig, {"num_local_experts": 4, "output_router_logits": True}),
    "qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": True}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 16}),
    "gemma": (transformers.GemmaConfig, {"head_dim": 16}),
    "gemma2": (transformers.Gemma2Config, {"head_dim": 16, "final_logit_softcapping": 0.5, "sliding_window": 8}),
    "gemma3_text": (
        transformers.Gemma3TextConfig,
        {"head_dim": 16, "final_logit_softcapping": 0.5, "sliding_window": 8},
    ),
    "phi3": (transformers.Phi3Config, {"partial_rotary_factor": 0.5}),
    "olmo2": (transformers.Olmo2Config, {}),
    "granite": (transformers.GraniteConfig, {"logits_scaling": 3.0, "residual_multiplier": 0.5, "mlp_bias": True}),
    "glm4": (transformers.Glm4Config, {"head_dim": 16, "partial_rotary_factor": 0.5}),
}


def tiny_config(family, **changes):
    kind, special = CONFIGS[family]
    return kind(**{**_COMMON, **special, **changes})


def tiny_model(family, device="cpu", dtype=torch.float32, **changes):
    """In training mode; weights of norms and biases are random too, where Hugging Face starts them at one or zero."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(tiny_config(family, **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            else:
                parameter.mul_(4)  # logits that differ from one another
    return model.to(device, dtype).train()


def batch(device="cpu", rows=2, length=12, seed=1):
    """Token numbers and labels, of which some are to be ignored."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCAB, (rows, length), generator=generator)
    labels = ids.clone()
    labels[0, :4] = -100
    labels[-1, -2:] = -100
    return {"input_ids": ids.to(device), "labels": labels.to(device)}


def loss_and_gradients(model, **inputs):
    model.zero_grad()
    output = model(**inputs)
    output.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return output, gradients


def assert_same(model, patched, **changes):
    """In loss and gradients, for one batch (with ``changes`` to it)."""
    inputs = {**batch(), **changes}
    (want, want_gradients), (got, got_gradients) = (loss_and_gradients(m, **inputs) for m in (model, patched))
    torch.testing.assert_close(got.loss, want.loss, rtol=2e-6, atol=1e-6)
    assert got_gradients.keys() == want_gradients.keys()
    for name, gradient in want_gradients.items():
        torch.testing.assert_close(got_gradients[name], gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())
