"""What the ops compute, spelled in PyTorch. Run in f64."""

import torch
import torch.nn.functional as F


def rms_norm(x, weight=None, eps=1e-6, offset=0.0):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y if weight is None else y * (offset + weight)


def fused_add_rms_norm(x, residual, weight=None, eps=1e-6, offset=0.0):
    total = x + residual
    return rms_norm(total, weight, eps, offset), total


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def swiglu(a, b):
    return F.silu(a) * b


def geglu(a, b, approximate="tanh"):
    return F.gelu(a, approximate=approximate) * b


def rotate_neighbours(x, cos, sin):
    """The pairs (2i, 2i + 1) by columns i of cos and sin, one by one."""
    columns = []
    for i in range(cos.shape[-1] // 2):
        c, s = cos[:, None, :, i], sin[:, None, :, i]
        first, second = x[..., 2 * i], x[..., 2 * i + 1]
        columns += [first * c - second * s, second * c + first * s]
    return torch.cat((torch.stack(columns, dim=-1), x[..., cos.shape[-1] :]), dim=-1)


def rotate(x, cos, sin):
    """x: [batch, heads, seq, D]; cos, sin: [batch or 1, seq, rotary]."""
    rotary = cos.shape[-1]
    x, rest = x[..., :rotary], x[..., rotary:]
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return torch.cat((x * cos[:, None] + turned * sin[:, None], rest), dim=-1)


def cross_entropy_terms(
    logits, target, weight=None, ignore_index=-100, lse_square_scale=0.0, label_smoothing=0.0, softcap=None
):
    """Per token: the cross entropy, the z-loss, and which tokens count."""
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    counts = target != ignore_index
    safe = torch.where(counts, target, 0).long()
    w = torch.ones(logits.shape[-1], dtype=logits.dtype, device=logits.device) if weight is None else weight
    lse = logits.logsumexp(-1)
    picked = logits.gather(-1, safe[..., None]).squeeze(-1)
    hard = w[safe] * (lse - picked)
    smooth = (w * (lse[..., None] - logits)).sum(-1) / logits.shape[-1]
    entropy = (1 - label_smoothing) * hard + label_smoothing * smooth
    return torch.where(counts, entropy, 0), torch.where(counts, lse_square_scale * lse.square(), 0), counts, w[safe]


def cross_entropy(logits, target, reduction="mean", scale=None, **options):
    entropy, z_loss, counts, weights = cross_entropy_terms(logits, target, **options)
    if scale is not None:
        entropy, z_loss = entropy * scale, z_loss * scale
    if reduction == "none":
        return entropy + z_loss
    if reduction == "sum":
        return (entropy + z_loss).sum()
    number = counts.sum().clamp_min(1)
    total = (weights * counts).sum()
    return entropy.sum() / torch.where(total == 0, 1, total) + z_loss.sum() / number


def linear_cross_entropy(x, weight, target, bias=None, ce_weight=None, **options):
    return cross_entropy(F.linear(x, weight, bias), target, weight=ce_weight, **options)
