"""Registers kernels as torch.library operators of the namespace ``tigon``.

A kernel here is a Python function that allocates its outputs and then calls the compiled op, which it takes as ``run``. With
a ``run`` that does nothing the same function is the operator's fake, so shapes and types cannot disagree.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[..., tuple[torch.Tensor | None, ...]]


def _skip(*_: object) -> None:
    pass


def _with_empty_for_none(kernel: Kernel) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Operators cannot return None: what was not asked for becomes an empty tensor."""

    @functools.wraps(kernel)
    def full(first: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
        return tuple(first.new_empty(0) if t is None else t for t in kernel(first, *rest))

    return full


def register(name: str, schema: str, kernel: Kernel) -> Any:
    """Defines ``tigon::name`` on CPU and CUDA, with its fake; returns the operator."""
    qualified = f"tigon::{name}"
    torch.library.define(qualified, schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(qualified, ("cpu", "cuda"), _with_empty_for_none(kernel))
    torch.library.register_fake(qualified, _with_empty_for_none(functools.partial(kernel, run=_skip)))
    return getattr(torch.ops.tigon, name).default
