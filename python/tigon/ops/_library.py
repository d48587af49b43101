"""Registers kernels as torch.library operators of the namespace ``tigon``.

A kernel here is a Python function that allocates its outputs and then calls the compiled op, which it takes as ``run``. With
a ``run`` that does nothing the same function is the operator's fake, so shapes and types cannot disagree.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

Kernel = Callable[..., tuple[torch.Tensor | None, ...]]


def _skip(*_: object) -> None:
    pass


def _as_operator(kernel: Kernel) -> Callable[..., Any]:
    """Operators return no None, so what was not asked for becomes an empty tensor; and a single result is no tuple."""

    def operator(first: torch.Tensor, *rest: Any) -> Any:
        results = tuple(first.new_empty(0) if t is None else t for t in kernel(first, *rest))
        return results[0] if len(results) == 1 else results

    return operator


def register(name: str, schema: str, kernel: Kernel) -> Kernel:
    """Defines ``tigon::name`` on CPU and CUDA, with its fake; returns a function that calls it and gives a tuple."""
    qualified = f"tigon::{name}"
    torch.library.define(qualified, schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(qualified, ("cpu", "cuda"), _as_operator(kernel))
    torch.library.register_fake(qualified, _as_operator(functools.partial(kernel, run=_skip)))
    operator = getattr(torch.ops.tigon, name).default
    if len(operator._schema.returns) > 1:
        return cast(Kernel, operator)
    return lambda *inputs: (operator(*inputs),)
