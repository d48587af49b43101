#!/usr/bin/env python3
"""FSDP2: each process holds a part of every weight and gradient. Start it with torchrun:

torchrun --nproc-per-node 2 examples/fsdp2.py
"""

import torch
import torch.distributed as dist
from tigon.transformers import apply_tigon
from tiny_llama import Counting, tiny_llama
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.set_device(dist.get_node_local_rank())

    model = tiny_llama().to("cuda" if cuda else "cpu").train()
    apply_tigon(model)  # before or after sharding
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model.lm_head)  # may be sharded by itself: its weight is read in its own call
    fully_shard(model)

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = Counting()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    losses = []
    for _ in range(3):
        for batch in loader:
            inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
            loss = model(**inputs).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    if dist.get_rank() == 0:
        print(*losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
