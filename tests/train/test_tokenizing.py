"""What `tigon help data` and docs/training.md show, run as it stands: a text becomes tokens that a model trains on."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "data" / "austen.txt"


@pytest.fixture
def folder(tmp_path):
    """A model's folder with a shape and a tokenizer, and a text beside it."""
    text = TEXT.read_text()[:20000]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<end>"])
    tokenizer.train_from_iterator([text], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(tmp_path / "Llama-3.2-1B")
    shape = {
        "model_type": "llama", "vocab_size": 400, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_length": 20, "temperature": 0.6,
    }  # fmt: skip
    (tmp_path / "Llama-3.2-1B" / "config.json").write_text(json.dumps(shape))
    (tmp_path / "text.txt").write_text(text)
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in text.split("\n")))
    return tmp_path


def train(tigon, folder, **kwargs):
    model = folder / "Llama-3.2-1B"
    return tigon("train", "--model", model, "--data", folder / "tokens.bin", "--seq", 32, "--batch", 2, "--epochs", 0.1,
                 "--output", folder / "out", **kwargs)  # fmt: skip


def run(program, folder):
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)


def test_as_help_shows_it(tigon, folder):
    program = re.search(r"^  import .*?tofile\(file\)$", tigon("help", "data").stdout, re.M | re.S)[0]
    run(textwrap.dedent(program), folder)
    text = train(tigon, folder).stdout
    assert "token file" in text
    assert "random weights" in text
    assert re.search(r"steps are 0\.1\d* epochs", text)
    assert (folder / "out" / "tokenizer.json").exists()


def test_the_output_is_whole(tigon, folder):
    """What --output writes is all that Transformers, and so lm-eval, needs; and tigon sample says the same."""
    (folder / "Llama-3.2-1B" / "generation_config.json").write_text(
        json.dumps({"eos_token_id": 0, "temperature": 0.6, "do_sample": True})
    )
    program = re.search(r"^  import .*?tofile\(file\)$", tigon("help", "data").stdout, re.M | re.S)[0]
    run(textwrap.dedent(program), folder)
    train(tigon, folder)
    out = folder / "out"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert GenerationConfig.from_pretrained(out).temperature == 0.6
    assert model.generation_config.eos_token_id == 0
    ids = tokenizer("It is a truth", return_tensors="pt")
    made = model.generate(**ids, do_sample=False, max_new_tokens=20, pad_token_id=0)
    text = tokenizer.decode(made[0], skip_special_tokens=True)
    flags = ["--prompt", "It is a truth", "--temperature", 0, "--tokens", 20]
    assert tigon("sample", "--model", out, *flags).stdout == text + "\n"
    # A folder without its tokenizer, as a checkpoint is one.
    (out / "tokenizer.json").unlink()
    refused = tigon("sample", "--model", out, *flags, check=False)
    assert refused.returncode == 2
    assert "--tokenizer" in refused.stderr
    assert tigon("sample", "--model", out, "--tokenizer", folder / "Llama-3.2-1B", *flags).stdout == text + "\n"


@pytest.mark.parametrize("source", ["text.txt", "texts.jsonl"])
def test_as_the_documentation_shows_it(tigon, folder, source):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "training.md").read_text(), re.S)
    definition, text, lines = blocks
    run(definition + text + (lines if source == "texts.jsonl" else ""), folder)
    assert "token file" in train(tigon, folder).stdout


def test_text_becomes_tokens_on_the_way_once(tigon, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = folder / "Llama-3.2-1B"
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    flags = ["train", "--seq", 32, "--batch", 2, "--steps", 2, "--no-gemm-ceiling", "--data"]
    for name in ["text.txt", "texts.jsonl"]:
        first = tigon(*flags, folder / name, "--model", model, "--log", tmp_path / "first")
        assert "tokens of" in first.stdout
        # What tigon tokenize makes of it.
        tigon("tokenize", folder / name, "--tokenizer", model, "--output", tmp_path / "tokens")
        tigon(*flags, tmp_path / "tokens", "--model", model, "--log", tmp_path / "other")
        loss = [json.loads(line)["loss"] for line in (tmp_path / "first").read_text().splitlines()[:2]]
        assert loss == [json.loads(line)["loss"] for line in (tmp_path / "other").read_text().splitlines()[:2]]
        again = tigon(*flags, folder / name, "--model", model)
        assert "of an earlier run" in again.stdout
        for log in ["first", "other"]:
            (tmp_path / log).unlink()
    # Another text of the same name is another one; so is another tokenizer, here one from elsewhere.
    with (folder / "text.txt").open("a") as file:
        file.write("And more.")
    assert "of an earlier run" not in tigon(*flags, folder / "text.txt", "--model", model).stdout
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (model / "tokenizer.json").rename(elsewhere / "tokenizer.json")
    refused = tigon(*flags, folder / "text.txt", "--model", model, check=False)
    assert refused.returncode == 2
    assert "--tokenizer" in refused.stderr
    found = tigon(
        *flags, folder / "text.txt", "--model", model, "--tokenizer", elsewhere, "--documents", "apart"
    ).stdout
    assert "tokens of" in found
    assert (
        "tokens of"
        in tigon(
            "tokenize",
            folder / "text.txt",
            "--tokenizer",
            elsewhere,
            "--output",
            tmp_path / "t2",
            "--end-of-text",
            "none",
        ).stdout
    )
    # A tokenizer of another model.
    shape = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**shape, "vocab_size": tokenizer.get_vocab_size() - 1}))
    refused = tigon(*flags, folder / "text.txt", "--model", model, "--tokenizer", elsewhere, check=False)
    assert refused.returncode == 2
    assert "it has more tokens" in refused.stderr


def test_perplexity_of_a_text_by_its_tokens(tigon, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = folder / "Llama-3.2-1B"
    tigon(
        "train",
        "--model",
        model,
        "--data",
        folder / "text.txt",
        "--seq",
        32,
        "--steps",
        1,
        "--no-gemm-ceiling",
        "--output",
        folder / "out",
    )
    said = tigon("eval", "--model", folder / "out", "--data", folder / "text.txt", "--seq", 32).stdout
    tigon("tokenize", folder / "text.txt", "--tokenizer", model, "--output", tmp_path / "tokens")
    same = tigon("eval", "--model", folder / "out", "--data", tmp_path / "tokens", "--seq", 32).stdout
    loss = re.compile(r"loss ([\d.]+), perplexity ([\d.]+)")
    assert loss.search(said).groups() == loss.search(same).groups()


def test_chats_are_learnt_on_the_way(tigon, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    chat = {
        "messages": [{"role": "user", "content": "Who is there?"}, {"role": "assistant", "content": "A friend, " * 9}]
    }
    (folder / "chats.jsonl").write_text((json.dumps(chat) + "\n") * 20 + "no chat\n")
    flags = [
        "--data",
        folder / "chats.jsonl",
        "--model",
        folder / "Llama-3.2-1B",
        "--seq",
        16,
        "--steps",
        1,
        "--no-gemm-ceiling",
    ]
    refused = tigon("train", *flags, check=False)
    assert refused.returncode == 1
    assert "--template" in refused.stderr
    answers = tigon("train", *flags, "--template", "chatml", "--output", folder / "out").stdout
    assert f"dropped 1 line: the line is not JSON ({folder / 'chats.jsonl'}:21)" in answers
    assert " count" in answers
    whole = tigon("train", *flags, "--template", "chatml", "--loss-on", "all").stdout
    assert "of an earlier run" not in whole
    assert " count" not in whole
    # Another template in the folder is another text; and nothing but whole files is in the cache.
    assert "of an earlier run" in tigon("train", *flags, "--template", "chatml").stdout
    (folder / "Llama-3.2-1B" / "chat_template.jinja").write_text("{{ messages }}")
    assert "of an earlier run" not in tigon("train", *flags, "--template", "chatml").stdout
    assert all(path.suffix == ".tokens" for path in (tmp_path / "cache" / "tigon").iterdir())
    # What is evaluated is what would be learnt.
    flags = ["eval", "--model", folder / "out", *flags[:2], "--seq", 16, "--template", "chatml", "--loss-on"]
    counted = [int(re.search(r"; (\d+) tokens in rows", tigon(*flags, on).stdout)[1]) for on in ("completion", "all")]
    learnt = [int(re.search(r"; (\d+) of them are learnt", said)[1]) for said in (answers, whole)]
    assert counted == [learnt[0], learnt[1] - 1]  # nothing foretells the first token of all


def test_a_tokenizer_from_elsewhere_goes_with_the_model(tigon, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, words = folder / "Llama-3.2-1B", tmp_path / "words"
    words.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).rename(words / name)
    flags = ["--data", folder / "text.txt", "--tokenizer", words, "--seq", 32, "--steps", 1, "--no-gemm-ceiling"]
    said = tigon(
        "train", "--model", model, *flags, "--output", folder / "out", "--sample-every", 1, "--prompt", "It is"
    ).stdout
    assert "says: It is" in said
    assert (folder / "out" / "tokenizer.json").read_bytes() == (words / "tokenizer.json").read_bytes()
    assert AutoTokenizer.from_pretrained(folder / "out").eos_token == "<end>"
    refused = tigon("train", "--model", model, *flags[:2], "--tokenizer", tmp_path, check=False)
    assert refused.returncode == 2
    assert "no tokenizer.json" in refused.stderr
