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


def is_plain_call(op: str, tensors: tuple[torch.Tensor | None, ...]) -> bool:
    """Whether the kernel may be called directly; raises where neither way works."""
    if _is_compiling() or _tracing_state() is not None:
        return False
    if _are_transforms_active():
        raise NotImplementedError(
            f"tigon.ops.{op} does not work under torch.func transforms (vmap, grad, jvp, jacrev, …). Batch by leading "
            "dimensions instead of vmap, and take gradients by torch.autograd (backward, torch.autograd.grad)."
        )
    if _dispatch_modes() != 0:
        return False
    for t in tensors:  # noqa: SIM110 - half the time of all(…)
        if t is not None and (type(t) not in _PLAIN_TYPES or t.is_meta):
            return False
    return True


def is_recorded(tensors: tuple[torch.Tensor | None, ...]) -> bool:
    """Whether autograd has to know of a plain call. Also for forward-mode derivatives, which it will refuse."""
    if forward_ad._current_level >= 0:
        return True
    if not _is_grad_enabled():
        return False
    for t in tensors:  # noqa: SIM110 - half the time of any(…)
        if t is not None and t.requires_grad:
            return True
    return False
