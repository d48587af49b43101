import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Probe:
    """Tigon's tokenizer, by the program that TIGON_TEXT_PROBE names (default: that of the release build)."""

    def __init__(self, file):
        program = os.environ.get("TIGON_TEXT_PROBE", str(ROOT / "build" / "release" / "bin" / "text_probe"))
        self.process = subprocess.Popen([program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.greeting = self.process.stdout.readline().strip()

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def encode(self, text, special=True):
        raw = text if isinstance(text, bytes) else text.encode()
        return [int(word) for word in self.ask("encode" if special else "plain", raw.hex() or "-").split()]

    def decode(self, ids, skip_special=False):
        answer = self.ask("decode", int(skip_special), *ids)
        return bytes.fromhex(answer.replace("-", "")).decode()

    def token_to_id(self, token):
        answer = self.ask("id", token.encode().hex() or "-")
        return None if answer == "none" else int(answer)

    def id_to_token(self, id):
        answer = self.ask("token", id)
        return None if answer == "none" else bytes.fromhex(answer.replace("-", "")).decode()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    """The probe of a tokenizer.json, given as text."""
    folder, opened = tmp_path_factory.mktemp("tokenizers"), []

    @cache
    def open_probe(text):
        file = folder / f"{len(opened)}.json"
        file.write_text(text)
        opened.append(Probe(file))
        return opened[-1]

    yield open_probe
    for each in opened:
        each.close()
