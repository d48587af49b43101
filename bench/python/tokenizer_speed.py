"""How fast text becomes ids on one core: Tigon's tokenizer and PyPI's `tokenizers`, the same file, the same ids.

Usage: build/python/bin/python bench/python/tokenizer_speed.py build/release/bin/text_probe (ninja target text_probe)
"""

import os
import subprocess
import sys
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "text"))

import families
import tokenizers

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "data" / "austen.txt"
REPEATS = 3


def trained(family, vocab):
    """A family's settings with a vocabulary of the size that models have."""
    build = families.sentencepiece_like if family in (families.llama2, families.gemma) else families.byte_level_bpe
    usual = build.__kwdefaults__, build.__defaults__
    if build is families.byte_level_bpe:
        build.__kwdefaults__ = {**build.__kwdefaults__, "vocab": vocab}
    else:
        build.__defaults__ = (vocab,)
    families.CORPUS = [families.AUSTEN]
    try:
        return family()
    finally:
        build.__kwdefaults__, build.__defaults__ = usual


def ours(program, file):
    lines = f"time {TEXT}\n" * REPEATS
    output = subprocess.run([program, file], input=lines, capture_output=True, text=True, check=True).stdout
    size, ids, _ = output.splitlines()[1].split()
    return int(ids), int(size) / min(float(line.split()[2]) for line in output.splitlines()[1:]) / 1e6


def theirs(tokenizer, pieces):
    best = 1e9
    for _ in range(REPEATS):
        begin = time.perf_counter()
        ids = sum(len(tokenizer.encode(piece, add_special_tokens=False).ids) for piece in pieces)
        best = min(best, time.perf_counter() - begin)
    return ids, TEXT.stat().st_size / best / 1e6


def main():
    text = TEXT.read_text()
    # In pieces of some KB, which is faster for theirs than all at once.
    lines = text.splitlines(keepends=True)
    pieces = ["".join(lines[i : i + 64]) for i in range(0, len(lines), 64)]
    print(
        f"tokenizers {tokenizers.__version__}, {TEXT.stat().st_size / 1e6:.2f} MB of English, one core, best of {REPEATS}"
    )
    print(
        "| settings | vocabulary | Tigon, MB/s | tokenizers, MB/s | in pieces, MB/s | ids |\n|---|---|---|---|---|---|"
    )
    for family in (families.gpt2, families.llama3, families.qwen2, families.smollm2, families.llama2, families.gemma):
        tokenizer = trained(family, 32000)
        file = Path("/tmp") / f"{family.__name__}-speed.json"
        tokenizer.save(str(file))
        count, speed = ours(sys.argv[1], file)
        whole, whole_speed = theirs(tokenizer, [text])
        _, piece_speed = theirs(tokenizer, pieces)
        special = len(tokenizer.encode("").ids)
        assert count == whole + special
        row = (
            family.__name__,
            tokenizer.get_vocab_size(),
            f"{speed:.1f}",
            f"{whole_speed:.2f}",
            f"{piece_speed:.2f}",
            whole,
        )
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
