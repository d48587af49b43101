"""The ops under the names and argument orders that Liger-Kernel's users know.

Arguments that only choose how Liger computes (``in_place``, ``row_mode``) are accepted and have nothing to choose here:
inputs are never overwritten.
"""

from typing import cast

import torch

from tigon import ops
from tigon.ops import CrossEntropyOutput

__all__ = [
    "CrossEntropyOutput",
    "tigon_cross_entropy",
    "tigon_fused_add_rms_norm",
    "tigon_fused_linear_cross_entropy",
    "tigon_geglu",
    "tigon_layer_norm",
    "tigon_rms_norm",
    "tigon_rope",
    "tigon_swiglu",
]


def tigon_rms_norm(
    X: torch.Tensor,
    W: torch.Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = True,
    row_mode: bool | None = None,
) -> torch.Tensor:
    """X: [..., hidden], W: [hidden] or None -> [..., hidden]. See tigon.ops.rms_norm."""
    return ops.rms_norm(X, W, eps, offset, casting_mode)


def tigon_fused_add_rms_norm(
    X: torch.Tensor,
    R: torch.Tensor,
    W: torch.Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """X, R: [..., hidden] -> (norm of X + R, X + R). See tigon.ops.fused_add_rms_norm."""
    return ops.fused_add_rms_norm(X, R, W, eps, offset, casting_mode)


def tigon_layer_norm(X: torch.Tensor, W: torch.Tensor | None, B: torch.Tensor | None, eps: float) -> torch.Tensor:
    """X: [..., hidden], W, B: [hidden] or None -> [..., hidden]. See tigon.ops.layer_norm."""
    return ops.layer_norm(X, W, B, eps)


def tigon_swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """silu(a)·b; a, b: [..., features]."""
    return ops.swiglu(a, b)


def tigon_geglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """gelu(a)·b with the tanh form of gelu; a, b: [..., features]."""
    return ops.geglu(a, b)


def tigon_rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    unsqueeze_dim: int = 1,
    rotary_dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """q: [batch, heads, seq, D], k: [batch, kv heads, seq, D], cos, sin: [1 or batch, seq, rotary] -> (q, k) rotated.

    rotary_dim is the width of cos and sin, or twice it where they hold every angle once (GPT-OSS).
    """
    if rotary_dim is not None and rotary_dim != cos.shape[-1]:
        if rotary_dim != 2 * cos.shape[-1]:
            raise ValueError(
                f"rotary_dim is {rotary_dim} but cos has width {cos.shape[-1]}: expected {cos.shape[-1]} (every angle "
                f"twice) or {2 * cos.shape[-1]} (every angle once)"
            )
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
    q_out, k_out = ops.rope(q, k, cos, sin, position_ids, unsqueeze_dim)
    return q_out, cast(torch.Tensor, k_out)


def tigon_cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    lse_square_scale: float = 0.0,
    softcap: float | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
) -> torch.Tensor | CrossEntropyOutput:
    """input: [tokens, V], target: [tokens] -> the loss, f32; the arguments of torch.nn.functional.cross_entropy and more.

    ``size_average`` and ``reduce``, which torch replaced by ``reduction``, must be None.
    """
    if size_average is not None or reduce is not None:
        raise ValueError(
            "size_average and reduce are replaced by reduction ('mean', 'sum' or 'none'): pass that instead"
        )
    return ops.cross_entropy(
        input,
        target,
        weight=weight,
        ignore_index=ignore_index,
        lse_square_scale=lse_square_scale,
        label_smoothing=label_smoothing,
        reduction=reduction,
        softcap=softcap,
        return_z_loss=return_z_loss,
        return_token_accuracy=return_token_accuracy,
        return_predicted_tokens=return_predicted_tokens,
    )


def tigon_fused_linear_cross_entropy(
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None = None,
    ce_weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    accum_dtype: torch.dtype | None = None,
    use_token_scaling: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    chunk_mem_const: int = 1,
) -> torch.Tensor | CrossEntropyOutput:
    """input: [tokens, hidden], weight: [V, hidden], target: [tokens], bias: [V] or None -> the loss, f32.

    ``chunk_mem_const`` scales Liger's chunks; here a budget of bytes decides (``chunk`` of tigon.ops.linear_cross_entropy).
    """
    return ops.linear_cross_entropy(
        input,
        weight,
        target,
        bias,
        ce_weight,
        ignore_index,
        lse_square_scale,
        label_smoothing,
        reduction,
        softcap,
        return_z_loss,
        accum_dtype,
        use_token_scaling,
        return_token_accuracy,
        return_predicted_tokens,
    )
