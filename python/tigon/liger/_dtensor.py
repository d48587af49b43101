"""DTensors, for the two ops that take them in Liger too. torch.distributed is slow to import, so nothing here asks for it
before there is a DTensor."""

from collections.abc import Callable
from typing import Any

import torch


def is_dtensor(t: torch.Tensor | None) -> bool:
    """Whether t is one."""
    return hasattr(t, "full_tensor")


def gathered(t: Any) -> Any:
    """t as a whole, in every process."""
    return t.full_tensor() if is_dtensor(t) else t


def on_local_parts(op: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], a: Any, b: Any) -> Any:
    """op(a, b) where each process computes its own part; one of them, at least, is a DTensor and says which that is."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh, placements = (a.device_mesh, a.placements) if is_dtensor(a) else (b.device_mesh, b.placements)

    def local_part(t: Any) -> torch.Tensor:
        if not is_dtensor(t):  # a plain tensor is the same in every process
            t = DTensor.from_local(t, mesh, [Replicate()] * mesh.ndim).redistribute(mesh, placements)
        part: torch.Tensor = t.to_local()
        return part

    return DTensor.from_local(op(local_part(a), local_part(b)), mesh, placements)
