"""The ops as functions with gradients, for any leading batch dimensions."""

from tigon.ops.rms_norm import rms_norm

__all__ = ["rms_norm"]
