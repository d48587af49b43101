"""Replacements for Hugging Face's apply_rotary_pos_emb, and their place in one model's attention alone."""

import types
from collections.abc import Callable
from typing import Any, cast

import torch

from tigon import ops
from tigon.transformers._families import Family
from tigon.transformers.rope import tigon_rotary_pos_emb

Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def rotation(family: Family) -> Rotation:
    """The function that rotates q and k as the family does, with the arguments of apply_rotary_pos_emb."""
    return _rotate_neighbours if family.interleaved_rope else _rotate_halves


def _rotate_halves(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    return tigon_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)


def _rotate_neighbours(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    rotated = ops.rope(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim, interleaved=True)
    return cast(tuple[torch.Tensor, torch.Tensor], rotated)


def with_rotation(forward: Any, rotate: Rotation) -> Any:
    """An attention's forward that calls ``rotate`` where the original calls apply_rotary_pos_emb.

    Hugging Face's attention takes that function from its module, which all models of the family share. The copy looks up
    its names in a copy of that module's, so that one model can be patched and the others left alone.
    """
    names = {**forward.__globals__, "apply_rotary_pos_emb": rotate}
    copy = types.FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    copy.__kwdefaults__ = forward.__kwdefaults__
    copy.__qualname__, copy.__doc__ = forward.__qualname__, forward.__doc__
    return copy
