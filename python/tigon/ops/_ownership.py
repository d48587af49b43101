"""Whether a tensor's memory may be written over, because nobody else can look at it any more."""

import sys
from typing import Any

import torch

_C: Any = torch._C
_COUNTED = hasattr(torch.Tensor, "_use_count") and hasattr(_C, "_storage_Use_Count")  # no public parts of torch


def holders(t: Any) -> tuple[int, ...]:
    """How many hold a tensor, to be compared with ONE_VARIABLE. Empty where torch does not say."""
    if not _COUNTED:
        return ()
    storage = t.untyped_storage()
    return (
        sys.getrefcount(t),  # the Python object: variables, hooks that kept it
        t._use_count(),  # the tensor: nodes of a graph that saved it
        _C._storage_Use_Count(storage._cdata),  # its memory: views, detached tensors
        storage.resizable(),  # false where NumPy, DLPack or the like lent the memory, which no count shows
    )


def _one_variable() -> tuple[int, ...] | None:
    t = torch.empty(1)
    return holders(t) or None


# What holders(t) is when the variable ``t`` of the caller is all that holds the tensor and its memory.
ONE_VARIABLE = _one_variable()
