"""Two processes with FSDP2 (fully_shard) compute what one process computes, on the CPU with gloo."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from tigon.transformers import apply_tigon
from tiny_models import batch, loss_and_gradients, tiny_model

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo")

PROCESSES = 2
# What is sharded by itself, beside the model as a whole; and whether the head's weight is the embedding's.
SHARDINGS = {
    "layers": (["layers"], False),
    "layers and head": (["layers", "head"], False),
    "head shared with the embedding": (["layers"], True),
}


def shard(model, parts):
    from torch.distributed.fsdp import fully_shard

    if "layers" in parts:
        for layer in model.model.layers:
            fully_shard(layer)
    if "head" in parts:
        fully_shard(model.lm_head)
    fully_shard(model)


def process(rank, port, parts, tied, file):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    torch.set_num_threads(1)
    model = tiny_model("llama", tie_word_embeddings=tied)
    apply_tigon(model)
    shard(model, parts)
    losses = []
    for step in range(2):  # the second step finds the shards that the first one left
        mine = batch(rows=1, seed=10 * step + rank)
        output, gradients = loss_and_gradients(model, **mine)
        assert output.logits is None
        losses.append(output.loss.detach())
    whole = {name: gradient.full_tensor() for name, gradient in gradients.items()}
    if rank == 0:
        torch.save((losses, whole), file)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("name", SHARDINGS)
def test_two_processes_equal_one(name, tmp_path):
    parts, tied = SHARDINGS[name]
    torch.multiprocessing.spawn(process, (free_port(), parts, tied, tmp_path / "result"), nprocs=PROCESSES, join=True)
    losses, gradients = torch.load(tmp_path / "result")

    model = tiny_model("llama", tie_word_embeddings=tied)  # unpatched
    expected = {}
    for rank in range(PROCESSES):
        for step, loss in enumerate(losses):
            output, of_rank = loss_and_gradients(model, **batch(rows=1, seed=10 * step + rank))
            if rank == 0:
                torch.testing.assert_close(loss, output.loss.detach())
        for key, gradient in of_rank.items():  # of the last step, as the processes returned
            expected[key] = expected.get(key, 0) + gradient / PROCESSES
    assert gradients.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(gradients[key], gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())
