"""Fused kernels for training large language models: exact, deterministic, on the CPU and on NVIDIA GPUs.

``tigon.ops`` has the ops as functions with gradients, ``tigon.optim`` optimizers. See docs/python.md.
"""

from tigon import _torch, ops, optim  # _torch first: it explains a missing torch, and connects the kernels to it

__version__ = _torch.version
__all__ = ["__version__", "ops", "optim"]
