#!/usr/bin/env python3
"""A training loop without a trainer, with gradient accumulation: every token of a batch counts the same."""

import torch
from tigon.transformers import apply_tigon
from tiny_llama import Counting, tiny_llama
from torch.utils.data import DataLoader

ACCUMULATE = 2


def main() -> list[float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = tiny_llama().to(device).train()
    apply_tigon(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    losses = []
    loader = DataLoader(Counting(), batch_size=4)
    for _ in range(4):
        parts = iter(loader)
        for batch in zip(*[parts] * ACCUMULATE, strict=False):
            items = sum((part["labels"][:, 1:] != -100).sum() for part in batch)  # the first token is not predicted
            total = 0.0
            for part in batch:
                inputs = {name: tensor.to(device) for name, tensor in part.items()}
                loss = model(**inputs, num_items_in_batch=items).loss
                loss.backward()
                total += loss.item()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total)
    return losses


if __name__ == "__main__":
    print(*main())
