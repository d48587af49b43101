#!/usr/bin/env python3
"""A module of your own built from Tigon's parts, with the methods that Lightning calls.

Nothing here needs Lightning: derive Model from lightning.LightningModule instead of torch.nn.Module, and give it to its
Trainer in the place of fit().
"""

import torch
from tigon.transformers import TigonFusedLinearCrossEntropyLoss, TigonRMSNorm
from tigon.transformers.functional import tigon_swiglu
from tiny_llama import Counting
from torch import nn
from torch.utils.data import DataLoader


class Block(nn.Module):
    """[..., width] -> the same."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.norm = TigonRMSNorm(width)
        self.gate, self.up = nn.Linear(width, features, bias=False), nn.Linear(width, features, bias=False)
        self.down = nn.Linear(features, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(tigon_swiglu(self.gate(y), self.up(y)))


class Model(nn.Module):
    """Predicts each token from the one before it."""

    def __init__(self, vocabulary: int = 256, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, 2 * width) for _ in range(2)))
        self.norm = TigonRMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.loss = TigonFusedLinearCrossEntropyLoss()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(self.embedding(ids)))

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        hidden = self(batch["input_ids"][:, :-1])
        return self.loss(self.head.weight, hidden.flatten(0, 1), batch["labels"][:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def fit(model: Model, loader: DataLoader, epochs: int) -> list[float]:
    """What a trainer does."""
    optimizer = model.configure_optimizers()
    losses = []
    for _ in range(epochs):
        for index, batch in enumerate(loader):
            loss = model.training_step(batch, index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def main() -> list[float]:
    torch.manual_seed(0)
    return fit(Model(), DataLoader(Counting(), batch_size=8), epochs=3)


if __name__ == "__main__":
    print(*main())
