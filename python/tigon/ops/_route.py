"""The one place that decides how a call reaches its kernel.

Plain tensors in plain eager code go straight to the kernel (torch.autograd.Function, a few microseconds). Everything that
watches or rewrites calls (torch.compile, torch.export, torch.jit.trace, FakeTensor, dispatch modes, tensor subclasses) gets
the operator registered with torch.library, which it can see.
"""

import torch
from torch.autograd import forward_ad

_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})
# Bound once: each is asked on every call.
_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state
_are_transforms_active = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack
_is_grad_enabled = torch.is_grad_enabled


# How a call goes on.
WATCHED, RECORDED, DIRECT = range(3)


def route(op: str, tensors: tuple[torch.Tensor | None, ...]) -> int:
    """WATCHED: to the operator. RECORDED: to the kernel, and autograd has to know of it, also of forward-mode derivatives,
    which it will refuse. DIRECT: to the kernel alone. Raises where none of them works."""
    if _is_compiling() or _tracing_state() is not None:
        return WATCHED
    if _are_transforms_active():
        raise NotImplementedError(
            f"tigon.ops.{op} does not work under torch.func transforms (vmap, grad, jvp, jacrev, …). Batch by leading "
            "dimensions instead of vmap, and take gradients by torch.autograd (backward, torch.autograd.grad)."
        )
    if _dispatch_modes() != 0:
        return WATCHED
    requires_grad = False
    for t in tensors:
        if t is not None:
            if type(t) not in _PLAIN_TYPES or t.is_meta:
                return WATCHED
            requires_grad = requires_grad or t.requires_grad
    recorded = (requires_grad and _is_grad_enabled()) or forward_ad._current_level >= 0
    return RECORDED if recorded else DIRECT


def is_plain_call(op: str, tensors: tuple[torch.Tensor | None, ...]) -> bool:
    """Whether the kernel may be called directly."""
    return route(op, tensors) != WATCHED
