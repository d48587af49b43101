"""What a model says and how well it foretells, against Transformers."""

import copy
import math
import re
import subprocess

import families
import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

PROMPT = "It is a truth universally"


def speaking(name, folder, dtype=torch.float32):
    """A model of the family whose tokens are bytes."""
    config = copy.deepcopy(families.CONFIGS[name])
    config.vocab_size = 256
    families.CONFIGS["speaking"] = config
    try:
        return families.make("speaking", folder, dtype).eval()
    finally:
        del families.CONFIGS["speaking"]


def greedy(model, prompt, tokens):
    ids = torch.tensor([list(prompt.encode())])
    config = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0, bos_token_id=None
    )
    with torch.no_grad():
        return bytes(
            model.generate(ids, generation_config=config, attention_mask=torch.ones_like(ids))[0, ids.shape[1] :]
        )


def sample_bytes(program, *arguments):
    result = subprocess.run([program, "sample", *map(str, arguments)], capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


@pytest.mark.parametrize("name", families.CONFIGS)
def test_greedy_text_is_that_of_generate(tigon_program, tmp_path, name):
    model = speaking(name, tmp_path / "model")
    # mistral ends within its window
    tokens = 64 - len(PROMPT) if name == "mistral" else 90
    said = sample_bytes(
        tigon_program, "--model", tmp_path / "model", "--prompt", PROMPT, "--temperature", 0, "--tokens", tokens, "--ignore-end",
    )  # fmt: skip
    assert said == PROMPT.encode() + greedy(model, PROMPT, tokens) + b"\n"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_read_as_they_are_stored(tigon_program, tmp_path, dtype):
    speaking("llama3", tmp_path / "model", dtype)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    said = sample_bytes(
        tigon_program, "--model", tmp_path / "model", "--precision", "fp32", "--prompt", PROMPT, "--temperature", 0, "--tokens", 40,
        "--ignore-end",
    )  # fmt: skip
    assert said == PROMPT.encode() + greedy(model, PROMPT, 40) + b"\n"


def test_the_end_is_that_of_generation_config(tigon_program, tmp_path):
    model = speaking("llama3", tmp_path / "model")
    words = greedy(model, PROMPT, 40)
    end = words[12]
    GenerationConfig(eos_token_id=[300, end]).save_pretrained(tmp_path / "model")
    said = sample_bytes(
        tigon_program, "--model", tmp_path / "model", "--prompt", PROMPT, "--temperature", 0, "--tokens", 40
    )  # fmt: skip
    assert said == PROMPT.encode() + words[: words.index(end)] + b"\n"


def test_perplexity_is_that_of_the_loss(tigon, tmp_path):
    model = speaking("qwen3", tmp_path / "model")
    text = bytes(range(32, 127)) * 3
    (tmp_path / "text").write_bytes(text)
    said = tigon("eval", "--model", tmp_path / "model", "--data", tmp_path / "text", "--seq", 50).stdout
    # Rows of 50 tokens, each foretelling the 50 that follow its own.
    total = 0.0
    with torch.no_grad():
        for begin in range(0, len(text) - 1, 50):
            row = torch.tensor(list(text[begin : begin + 51]))
            logits = model(row[None, :-1]).logits[0]
            total += torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum").item()
    mean = total / (len(text) - 1)
    loss, perplexity = re.search(r"loss ([\d.]+), perplexity ([\d.]+)", said).groups()
    assert float(loss) == pytest.approx(mean, abs=6e-5)
    assert float(perplexity) == pytest.approx(math.exp(mean), rel=1e-3)
    assert f"{len(text) - 1} tokens" in said
