"""The ops as functions with gradients, for any leading batch dimensions.

Each computes in f32 (in f64 for f64 tensors, on the CPU) whatever its storage type, gives the same bits on every run, changes
nothing that others can see, and computes the gradients that are asked for.
"""

from tigon.ops._chunk import Chunk
from tigon.ops._loss import CrossEntropyOutput
from tigon.ops.cross_entropy import cross_entropy
from tigon.ops.fused_add_rms_norm import fused_add_rms_norm
from tigon.ops.gated import geglu, swiglu
from tigon.ops.gated_linear import geglu_linear, swiglu_linear
from tigon.ops.layer_norm import layer_norm
from tigon.ops.linear import linear
from tigon.ops.linear_cross_entropy import linear_cross_entropy
from tigon.ops.rms_norm import rms_norm
from tigon.ops.rope import rope

__all__ = [
    "Chunk",
    "CrossEntropyOutput",
    "cross_entropy",
    "fused_add_rms_norm",
    "geglu",
    "geglu_linear",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "rms_norm",
    "rope",
    "swiglu",
    "swiglu_linear",
]
