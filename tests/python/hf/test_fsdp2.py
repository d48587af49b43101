"""Two processes with FSDP2 (fully_shard) compute what one process computes, on the CPU with gloo."""

import pytest
import torch
import torch.distributed as dist
from tigon.transformers import apply_tigon
from tiny_models import batch, loss_and_gradients, tiny_model
from two_processes import PROCESSES, in_two_processes

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo")

# What is sharded by itself, beside the model as a whole; and what is special about the model.
SHARDINGS = {
    "layers": (["layers"], {"mlp_bias": False}),  # without biases MLPs use another op
    "layers and head": (["layers", "head"], {}),
    "projections": (["projections"], {"mlp_bias": False}),
    "head shared with the embedding": (["layers"], {"tie_word_embeddings": True}),
}


def shard(model, parts):
    from torch.distributed.fsdp import fully_shard

    if "layers" in parts:
        for layer in model.model.layers:
            fully_shard(layer)
    if "projections" in parts:
        for layer in model.model.layers:
            fully_shard(layer.mlp.down_proj)
    if "head" in parts:
        fully_shard(model.lm_head)
    fully_shard(model)


def train(rank, parts, changes):
    model = tiny_model("llama", **changes)
    apply_tigon(model)
    shard(model, parts)
    losses = []
    for step in range(2):  # the second step finds the shards that the first one left
        output, gradients = loss_and_gradients(model, **batch(rows=1, seed=10 * step + rank))
        assert output.logits is None
        losses.append(output.loss.detach())
    return losses, {name: gradient.full_tensor() for name, gradient in gradients.items()}


def process(rank, file):
    # They meet in a file: a port that is free now may be taken when they come to use it.
    dist.init_process_group("gloo", init_method=f"file://{file}.store", rank=rank, world_size=PROCESSES)
    results = {name: train(rank, *sharding) for name, sharding in SHARDINGS.items()}
    if rank == 0:
        torch.save(results, file)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of every sharding; starting processes takes longer than what they do."""
    file = tmp_path_factory.mktemp("fsdp2") / "results"
    in_two_processes(process, file)
    return torch.load(file)


@pytest.mark.parametrize("name", SHARDINGS)
def test_two_processes_equal_one(name, results):
    losses, gradients = results[name]
    model = tiny_model("llama", **SHARDINGS[name][1])  # unpatched
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
