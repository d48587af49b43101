"""bench/python/train_llama.py runs, and its variants train the same model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "python" / "train_llama.py"


def test_train_llama(tmp_path):
    sizes = ["--config", "tiny", "--batch", "1", "--seq", "16", "--warmup", "1", "--steps", "2", "--threads", "1"]
    command = [sys.executable, BENCH, *sizes, "--variants", "plain", "tigon", "--output", tmp_path / "result"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    plain, tigon = json.loads((tmp_path / "result.json").read_text())
    assert tigon["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert len(tigon["step_s"]) == 2
    assert tigon["peak_bytes"] > 0
    assert (tmp_path / "result.md").read_text().strip() == done.stdout.strip()
    assert "| tigon |" in done.stdout
