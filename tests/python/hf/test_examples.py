"""The examples run on the CPU, and what they train learns."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.pin_memory. argument:UserWarning")  # of Trainer on a CPU

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", ["hf_trainer", "plain_loop", "lightning_style"])
def test_example(name, monkeypatch):
    if name == "hf_trainer":
        pytest.importorskip("accelerate")
    monkeypatch.syspath_prepend(EXAMPLES)
    losses = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()
    assert losses[-1] < 0.8 * losses[0]


def test_fsdp2(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES), prepend=":")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, Path(__file__).with_name("two_processes.py"), EXAMPLES / "fsdp2.py"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    losses = [float(loss) for loss in done.stdout.split()]
    assert losses[-1] < 0.8 * losses[0]
