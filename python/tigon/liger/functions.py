"""Stands in for the autograd functions of liger_kernel.ops, under their names: each has the ``apply`` that Liger calls."""

from collections.abc import Callable
from typing import Any

from tigon.liger import _losses, _ops, _rope


class AppliedOp:
    """An op with the one method of a torch.autograd.Function that its users call."""

    def __init__(self, op: Callable[..., Any], **attributes: Any) -> None:
        self.apply = op
        vars(self).update(attributes)

    def __repr__(self) -> str:
        return f"tigon's {self.apply.__name__}"


LigerRMSNormFunction = AppliedOp(_ops.rms_norm)
LigerFusedAddRMSNormFunction = AppliedOp(_ops.fused_add_rms_norm)
LigerLayerNormFunction = AppliedOp(_ops.layer_norm)
LigerSiLUMulFunction = AppliedOp(_ops.swiglu)
LigerFusedGateUpSiLUMulFunction = AppliedOp(_ops.packed_swiglu)
LigerGELUMulFunction = AppliedOp(_ops.geglu)
LigerRopeFunction = AppliedOp(_rope.rope)
LigerCrossEntropyFunction = AppliedOp(_losses.cross_entropy)
LigerFusedLinearCrossEntropyFunction = AppliedOp(_losses.fused_linear_cross_entropy, supports_inner_impl_dispatch=True)

__all__ = [
    "LigerCrossEntropyFunction",
    "LigerFusedAddRMSNormFunction",
    "LigerFusedGateUpSiLUMulFunction",
    "LigerFusedLinearCrossEntropyFunction",
    "LigerGELUMulFunction",
    "LigerLayerNormFunction",
    "LigerRMSNormFunction",
    "LigerRopeFunction",
    "LigerSiLUMulFunction",
]
