"""Rotary position embedding of queries and keys, in one pass."""

from typing import Any

import torch

from tigon import _native
from tigon.ops._autograd import Gradients
from tigon.ops._differentiable import Recipe, differentiable
from tigon.ops._tensors import as_parameter


def rope(
    q: torch.Tensor,
    k: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    unsqueeze_dim: int = 1,
    interleaved: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rotates the pairs (i, i + rotary/2) of q and k by the angles of cos and sin; returns (q, k) of the inputs' types.

    With ``interleaved`` the pairs are neighbours, (2i, 2i + 1). Column i of cos and sin serves pair i in either case.

    q: [batch, heads, seq, D] and k the same with its own heads (or None), where unsqueeze_dim is 1; where it is 2,
    [batch, seq, heads, D]. Any strides: Hugging Face's transposed views are not copied, and results and gradients are
    laid out as q is.
    cos, sin: [1 or batch, seq, rotary], a row per token, as Hugging Face passes them: the second half repeats the first.
    A rotary below D leaves the rest of D unchanged. Or [positions, rotary], of which position_ids [1 or batch, seq]
    choose the rows (without them row s serves position s). With a row per token there is nothing to choose, and
    position_ids are not used. cos and sin get no gradients.
    """
    if unsqueeze_dim not in (1, 2):
        raise ValueError(f"unsqueeze_dim is {unsqueeze_dim}: expected 1 (q is [batch, heads, seq, D]) or 2")
    if q.dim() != 4:
        raise ValueError(f"q has {q.dim()} dimensions: expected 4, [batch, heads, seq, D] or [batch, seq, heads, D]")
    if cos.requires_grad or sin.requires_grad:
        raise NotImplementedError("tigon.ops.rope has no gradients of cos and sin: pass them detached")
    if unsqueeze_dim == 2:
        q, k = q.transpose(1, 2), None if k is None else k.transpose(1, 2)
    if cos.dim() == 3:
        _check_rows(cos, q)
    positions = None
    if cos.dim() == 2:
        if position_ids is None:
            cos, sin = cos[: q.shape[2]], sin[: q.shape[2]]
        else:
            positions = position_ids.expand(q.shape[0], q.shape[2]).contiguous()
    if interleaved:  # of tables in full width the kernel would expect every column twice in a row
        cos, sin = _first_half(cos), _first_half(sin)
    q_out, k_out = _rope(q, k, as_parameter(cos, q), as_parameter(sin, q), positions, interleaved)
    if k is None:
        k_out = None
    if unsqueeze_dim == 2:
        q_out, k_out = q_out.transpose(1, 2), None if k_out is None else k_out.transpose(1, 2)
    return q_out, k_out


def _check_rows(cos: torch.Tensor, q: torch.Tensor) -> None:
    """Kernels see the rows of [seq, batch, …] as those of [batch, seq, …], and would give them to other tokens."""
    batch, _, seq, _ = q.shape
    if cos.shape[1] != seq or cos.shape[0] not in (1, batch):
        raise ValueError(
            f"cos is {list(cos.shape)} for q of batch {batch} and seq {seq}: expected a row per token, "
            f"[1 or {batch}, {seq}, rotary], or [positions, rotary]"
        )


def _first_half(table: torch.Tensor) -> torch.Tensor:
    rotary = table.shape[-1]
    if rotary % 2 != 0:
        raise ValueError(f"cos and sin are {rotary} wide: expected an even number, the second half repeating the first")
    return table[..., : rotary // 2]


def _is_seq_first(x: torch.Tensor) -> bool:
    """Whether x is Hugging Face's view: [batch, seq, heads, D] in memory."""
    return x.stride(1) < x.stride(2)


def _empty_heads(x: torch.Tensor | None, seq_first: bool) -> torch.Tensor | None:
    """Of x's shape, [batch, heads, seq, D]; laid out by seq or by heads, whatever x is."""
    if x is None:
        return None
    shape = x.shape
    _, heads, seq, d = shape
    block = heads * seq * d
    strides = (block, d, heads * d, 1) if seq_first else (block, seq * d, d, 1)
    return torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device)


def _rotate(
    run: Any,
    q: torch.Tensor | None,
    k: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    interleaved: bool,
    seq_first: bool,
) -> Gradients:
    q_out, k_out = _empty_heads(q, seq_first), _empty_heads(k, seq_first)
    columns = cos.shape[-1]
    tables = (cos, sin, positions, 2 * columns if interleaved else columns, int(interleaved))
    if q is None:
        run(k, None, k_out, None, *tables)
    else:
        run(q, k, q_out, k_out, *tables)
    return q_out, k_out


def _forward(
    q: torch.Tensor,
    k: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    interleaved: bool,
    run: Any = _native.rope_forward,
) -> Gradients:
    return _rotate(run, q, k, cos, sin, positions, interleaved, _is_seq_first(q))


def _backward(
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    dq: torch.Tensor | None,
    dk: torch.Tensor | None,
    interleaved: bool,
    seq_first: bool,
    run: Any = _native.rope_backward,
) -> Gradients:
    return _rotate(run, dq, dk, cos, sin, positions, interleaved, seq_first)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    q, _, cos, sin, positions, ctx.interleaved = inputs
    # Gradients are laid out as the inputs were, so that what comes before needs no copy to add or flatten them.
    ctx.seq_first = _is_seq_first(q)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(cos, sin, positions)


def _gradients(backward: Any, ctx: Any, upstream: tuple[Any, ...]) -> Gradients:
    need_q, need_k, *_ = ctx.needs_input_grad
    dq, dk = upstream[0] if need_q else None, upstream[1] if need_k else None
    if dq is None and dk is None:
        return (None,) * 6
    return *backward(*ctx.saved_tensors, dq, dk, ctx.interleaved, ctx.seq_first), None, None, None, None


_rope = differentiable(
    Recipe(
        name="rope",
        forward=_forward,
        schema="(Tensor q, Tensor? k, Tensor cos, Tensor sin, Tensor? positions, bool interleaved) -> (Tensor, Tensor)",
        backward=_backward,
        backward_schema="(Tensor cos, Tensor sin, Tensor? positions, Tensor? dq, Tensor? dk, "
        "bool interleaved, bool seq_first) -> (Tensor, Tensor)",
        tensors=5,
        results=2,
        save=_save,
        gradients=_gradients,
    )
)
