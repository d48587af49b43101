import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
import torch

torch.set_num_threads(2)
torch.use_deterministic_algorithms(True)


@pytest.fixture(scope="session")
def tigon_program():
    """The program that TIGON names (default: build/tigon)."""
    root = Path(__file__).resolve().parents[2]
    return os.environ.get("TIGON", str(root / "build" / "tigon"))


@pytest.fixture(scope="session")
def tigon(tigon_program):
    """Runs the program and returns what it printed."""

    def run(*arguments, check=True):
        result = subprocess.run([tigon_program, *map(str, arguments)], capture_output=True, text=True)
        if check:
            assert result.returncode == 0, result.stdout + result.stderr
        return result

    return run


@pytest.fixture
def write_tokens(tmp_path):
    """A token file as docs/training.md describes it."""

    def write(tokens, vocab, name="tokens.bin", width=2):
        path = tmp_path / name
        code = {2: "H", 4: "I"}[width]
        path.write_bytes(
            b"TIGONTOK" + struct.pack("<IIQQ", 1, width, len(tokens), vocab) + struct.pack(f"<{len(tokens)}{code}", *tokens)
        )
        return path

    return write


def read_log(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
