"""A small network of two layers, for optimizers in 8 bits to learn with."""

import torch

OPTIONS = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def make_weights(inner=100, outputs=61):
    return [torch.randn(inner, 96) / 10, torch.randn(outputs, inner) / 10]


def gradients_of(weights, step):
    """The loss and its gradients, on data that changes from step to step."""
    generator = torch.Generator().manual_seed(100 + step)
    x = torch.randn(64, 96, generator=generator)
    y = torch.nn.functional.gelu(x @ weights[0].T) @ weights[1].T
    loss = (y - torch.sin(x.cumsum(1))[:, : y.shape[1]]).pow(2).mean()
    return loss.item(), torch.autograd.grad(loss, weights)
