"""Initial values of the modules' parameters."""

import torch

_INITIAL = {"ones": torch.ones, "zeros": torch.zeros}


def initial(init_fn: str, size: int | tuple[int, ...]) -> torch.Tensor:
    """A tensor of ``size``, filled as ``init_fn`` ("ones" or "zeros") says."""
    if init_fn not in _INITIAL:
        raise ValueError(f"init_fn is {init_fn!r}: expected 'ones' or 'zeros'")
    return _INITIAL[init_fn](size)
