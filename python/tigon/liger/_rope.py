"""Tigon's rope for all that Liger's takes."""

import torch

from tigon import ops


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    unsqueeze_dim: int = 1,
    rotary_dim: int | None = None,
    *,
    mode: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """q, k: [batch, heads, seq, D] whatever unsqueeze_dim says, and position_ids have nothing to say: as in Liger.

    cos, sin: [seq or more, width], [1, seq or more, width], [batch, seq, width], or these with a dimension of 1 for the
    heads. Of an odd number of elements to rotate the last one stays as it is.
    """
    half = _rotary(q.shape[-1], cos.shape[-1], rotary_dim) // 2
    cos, sin = (_table(t, q.shape[2], unsqueeze_dim, half) for t in (cos, sin))
    q, k = _seq_first(q), _seq_first(k)
    if q.dtype == k.dtype:
        q_out, k_out = ops.rope(q, k, cos, sin)
    else:
        q_out, k_out = ops.rope(q, None, cos, sin)[0], ops.rope(k, None, cos, sin)[0]
    assert k_out is not None
    return q_out, k_out


def _rotary(d: int, width: int, rotary_dim: int | None) -> int:
    """How many elements of each head rotate."""
    if rotary_dim is None:
        return min(width, d)
    if rotary_dim % 2 != 0 or not 0 < rotary_dim <= d:
        raise ValueError(f"rotary_dim is {rotary_dim}: expected an even number from 2 to D = {d}")
    if width < rotary_dim // 2:
        raise ValueError(f"cos has width {width}: expected {rotary_dim // 2} or more, half of rotary_dim")
    return rotary_dim


def _table(t: torch.Tensor, seq: int, unsqueeze_dim: int, half: int) -> torch.Tensor:
    """cos or sin without a dimension for the heads, 2·half wide; only the first half is read. They get no gradients."""
    if t.requires_grad:
        t = t.detach()
    if t.dim() == 4:
        heads = unsqueeze_dim if t.shape[unsqueeze_dim] == 1 else 1
        t = t.squeeze(heads)
    if t.dim() == 3 and t.shape[0] == 1:
        t = t[:, :seq]
    return t[..., : 2 * half] if t.shape[-1] >= 2 * half else torch.cat((t[..., :half], t[..., :half]), dim=-1)


def _seq_first(x: torch.Tensor) -> torch.Tensor:
    """Liger's results lie as [batch, seq, heads, D] in memory, however the inputs do; ours lie as the inputs."""
    return x if x.stride(1) <= x.stride(2) else x.transpose(1, 2).contiguous().transpose(1, 2)
