"""Optimizers for torch, fused over all tensors of a group."""

from tigon.optim.adamw import AdamW

__all__ = ["AdamW"]
