"""Two processes with DeepSpeed ZeRO-3, whose parameters are empty outside of their modules' calls, on the CPU."""

import importlib.util
import os

import pytest
import tigon.transformers as tt
import torch
from tiny_models import batch, tiny_model
from two_processes import in_two_processes

# Not imported here, where it would change what Transformers does in the other tests.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="no deepspeed")

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0},
}


def train(rank, patched):
    import deepspeed

    model = tiny_model("llama", mlp_bias=False)
    if patched:
        tt.apply_tigon(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    assert engine.module.lm_head.weight.numel() == 0
    losses = []
    for step in range(4):
        output = engine(**batch(rows=1, seed=10 * step + rank))
        assert (output.logits is None) == patched
        engine.backward(output.loss)
        engine.step()
        losses.append(output.loss.item())
    return losses


def process(rank, folder):
    os.environ["DS_ACCELERATOR"] = "cpu"
    # For what DeepSpeed compiles: in the usual place a lock that a killed run left would be waited for.
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
    import deepspeed

    deepspeed.init_distributed("gloo")
    torch.save([train(rank, patched) for patched in (False, True)], folder / str(rank))


def test_losses_of_four_steps(tmp_path):
    in_two_processes(process, tmp_path)
    for rank in "01":
        expected, got = torch.load(tmp_path / rank)
        assert got == pytest.approx(expected, rel=1e-5)
