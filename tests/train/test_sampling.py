"""What a model says and how well it foretells, against Transformers."""

import copy
import json
import math
import re
import subprocess
from pathlib import Path

import families
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

AUSTEN = Path(__file__).resolve().parents[2] / "data" / "austen.txt"
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


def go_on(model, ids, tokens):
    """The prompt's ids with those that generate puts behind them."""
    ids = torch.tensor([ids])
    config = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0, bos_token_id=None
    )
    with torch.no_grad():
        return model.generate(ids, generation_config=config, attention_mask=torch.ones_like(ids))[0].tolist()


def greedy(model, prompt, tokens):
    return bytes(go_on(model, list(prompt.encode()), tokens)[len(prompt) :])


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


def byte_level():
    """As Llama 3's: bytes as characters, and a token that each text begins with."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(AUSTEN)], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def with_spaces_as_marks():
    """As Llama 2's: spaces are a character of their own, and what is not in the vocabulary falls back to bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    tokenizer.train_from_iterator(
        AUSTEN.read_text()[:200000].split("\n"),
        trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False),
    )
    # In the published files bytes are plain tokens.
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = whole["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


@pytest.mark.parametrize("make", [byte_level, with_spaces_as_marks])
def test_text_goes_through_the_models_own_tokenizer(tigon_program, tmp_path, make):
    tokenizer = make()
    config = copy.deepcopy(families.CONFIGS["llama3"])
    config.vocab_size = tokenizer.get_vocab_size() + 5  # padded, as models are
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    prompts = ["It is a truth", "Señor 日本 🙂 says", " and then"]
    (tmp_path / "prompts").write_text("\n".join(prompts))
    said = sample_bytes(
        tigon_program, "--model", tmp_path / "model", "--prompts", tmp_path / "prompts", "--temperature", 0, "--tokens", 30,
        "--ignore-end",
    ).decode()  # fmt: skip
    for prompt, line in zip(prompts, said.splitlines(), strict=True):
        ids = tokenizer.encode(prompt).ids
        made = go_on(model, ids, 30)
        whole, before = tokenizer.decode(made), tokenizer.decode(ids)
        assert whole.startswith(before)
        assert json.loads(line) == {"prompt": prompt, "text": whole[len(before) :]}


CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_a_dialogue_is_what_the_template_makes_of_it(tigon_program, tmp_path):
    plain = byte_level()
    plain.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    plain.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<|im_end|>")
    tokenizer.chat_template = CHATML
    config = copy.deepcopy(families.CONFIGS["llama3"])
    config.vocab_size, config.max_position_embeddings = len(tokenizer), 512
    torch.manual_seed(4)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    questions = ["Who are you?", "And who am I?"]
    said, expected = [{"role": "system", "content": "Be brief."}], ""
    for question in questions:
        said.append({"role": "user", "content": question})
        ids = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
        made = go_on(model, ids, 12)[len(ids) :]
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        made = made[: made.index(end)] if end in made else made
        said.append({"role": "assistant", "content": tokenizer.decode(made, skip_special_tokens=True).lstrip(" \n")})
        expected += said[-1]["content"] + "\n"
    talk = [
        tigon_program,
        "sample",
        "--model",
        tmp_path / "model",
        "--chat",
        "--tokens",
        "12",
        "--temperature",
        "0",
        "--ignore-end",
    ]
    result = subprocess.run([*talk, "--system", "Be brief."], input="\n".join(questions).encode(), capture_output=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode() == expected
    # The same by the template's name, begun anew in between; and what does not fit is said.
    (tmp_path / "model" / "chat_template.jinja").unlink(missing_ok=True)
    result = subprocess.run([*talk, "--system", "Be brief."], input=b"Hello", capture_output=True)
    assert result.returncode == 2
    assert b"--template" in result.stderr
    again = subprocess.run(
        [*talk, "--template", "chatml", "--system", "Be brief."],
        input=b"Who are you?\n/new\nWho are you?\n",
        capture_output=True,
    )
    first = said[2]["content"] + "\n"
    assert again.stdout.decode() == first + first
    full = subprocess.run([*talk, "--template", "chatml", "--context", "32"], input=b"Hello " * 40, capture_output=True)
    assert full.returncode == 2
    assert b"--context" in full.stderr
