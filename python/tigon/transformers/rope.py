"""Rotary position embedding under the name that replaces Hugging Face's apply_rotary_pos_emb."""

from tigon.transformers.functional import tigon_rope as tigon_rotary_pos_emb

__all__ = ["tigon_rotary_pos_emb"]
