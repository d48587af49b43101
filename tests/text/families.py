"""Tokenizers with the published settings of each family, trained here in a second: the regular expressions, the
normalizers and so on are those of the models' tokenizer.json, the vocabularies are not."""

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parents[2]
AUSTEN = (ROOT / "data" / "austen.txt").read_text()
# So that there are merges of more than English.
OTHERS = """
Zażółć gęślą jaźń. Größe, Maß, naïve façade, Æsir; Ελληνικά γράμματα, Привет мир, שלום עולם, مرحبا بالعالم.
你好，世界。今天天气很好。日本語のテキスト、ひらがなとカタカナ。한국어 문장입니다. नमस्ते दुनिया। สวัสดีชาวโลก
🙂🙂 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ é é ñ ñ Å Å
def main(argc: int) -> None:\n\tfor i in range(10):\n\t\tprint(f"{i:>5} -> {i ** 2}")  # 0x1F, 3.14159, 1e-9
    if (a[i] != b[j] && !c->d) { return x << 2 | y >> 3; }\r\n\r\n\r\n/* ---------- */ https://example.org/a?b=c&d=%20
It's we'll THEY'RE I'd can't o'clock 'Tis '''
"""
CORPUS = [AUSTEN[:400_000], OTHERS * 20]

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK = [
    "[\r\n]",
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ]+",
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "\\s+$".removesuffix("$"),
    "[一-龥ࠀ-一가-퟿]+",
]


def byte_level_bpe(special, *pre, vocab=1200, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(pre)) if len(pre) > 1 else pre[0]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def with_template(tokenizer, single, *tokens):
    ids = [(token, tokenizer.token_to_id(token)) for token in tokens]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    return tokenizer


def gpt2():
    tokenizer = byte_level_bpe(["<|endoftext|>"], pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta_like():
    return byte_level_bpe(["<s>", "</s>"], pre_tokenizers.ByteLevel(add_prefix_space=True))


def llama3():
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    tokenizer = byte_level_bpe(special, split(LLAMA3), bytes_only, ignore_merges=True)
    with_template(tokenizer, "<|begin_of_text|> $A", "<|begin_of_text|>")
    template = tokenizer.post_processor
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2():
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = byte_level_bpe([], split(QWEN2), bytes_only)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    # As in its file: behind the vocabulary, some of them not special.
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return tokenizer


def smollm2():
    digits = pre_tokenizers.Digits(individual_digits=True)
    return byte_level_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], digits,
                          pre_tokenizers.ByteLevel(add_prefix_space=False))  # fmt: skip


def o200k():
    return byte_level_bpe(
        ["<|endoftext|>"], split(O200K), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    )


def deepseek():
    splits = [split(pattern) for pattern in DEEPSEEK]
    return byte_level_bpe(["<｜begin▁of▁sentence｜>"], *splits, pre_tokenizers.Digits(individual_digits=True),
                          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))  # fmt: skip


def sentencepiece_like(special, marks, vocab=1200):
    """A vocabulary as SentencePiece makes them: words begin with ▁, bytes stand for what is not in it."""
    trained = Tokenizer(models.BPE(fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=vocab, show_progress=False, limit_alphabet=200))
    file = json.loads(trained.to_str())
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    runs = ["▁" * n for n in range(2, 17)]
    pairs = [["▁", "▁"], *([["▁▁" * n, "▁▁" * n] for n in (1, 2, 4)])]
    tokens = dict.fromkeys([*special, *bytes_, *marks, *file["model"]["vocab"], *runs])
    merges = [*file["model"]["merges"], *pairs]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    model = models.BPE(
        vocabulary, [tuple(pair) for pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return tokenizer


def llama2():
    tokenizer = sentencepiece_like(["<unk>", "<s>", "</s>"], [])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return with_template(tokenizer, "<s> $A", "<s>")


def mistral():
    tokenizer = sentencepiece_like(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], [])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return with_template(tokenizer, "<s> $A", "<s>")


def gemma():
    tokenizer = sentencepiece_like(["<pad>", "<eos>", "<bos>", "<unk>"], ["<start_of_turn>", "<end_of_turn>"])
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<start_of_turn>", "<end_of_turn>")])
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(1, 5)])
    return with_template(tokenizer, "<bos> $A", "<bos>")


def metaspace():
    tokenizer = sentencepiece_like(["<unk>", "<s>", "</s>"], [])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return with_template(tokenizer, "<s> $A </s>", "<s>", "</s>")


def unknown():
    """No bytes to fall back on, and few characters: most of a text is unknown, or dropped."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], limit_alphabet=40, show_progress=False)
    tokenizer.train_from_iterator([AUSTEN[:3000]], trainer)  # without words it takes its time
    return tokenizer


def unknown_each():
    file = json.loads(unknown().to_str())
    file["model"]["fuse_unk"] = False
    return Tokenizer.from_str(json.dumps(file))


def dropped():
    file = json.loads(unknown().to_str())
    file["model"]["unk_token"] = None
    return Tokenizer.from_str(json.dumps(file))


FAMILIES = [gpt2, roberta_like, llama3, qwen2, smollm2, o200k, deepseek, llama2, mistral, gemma, metaspace, unknown,
            unknown_each, dropped]  # fmt: skip


@cache
def trained(family):
    return family()


def merges_as_strings(tokenizer):
    """The file as it was before 2024: merges as strings."""
    file = json.loads(tokenizer.to_str())
    file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    return json.dumps(file)
