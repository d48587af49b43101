"""Tigon as the backend of an installed Liger-Kernel: existing code keeps its Liger imports and gets these kernels.

    import tigon.liger
    tigon.liger.install()

Works for what is imported from liger_kernel before and after, for apply_liger_kernel_to_* and for Trainer's
use_liger_kernel. Ops that Tigon does not have (jsd, kl_div, …) stay Liger's.
"""

from tigon.liger._install import install, installed, uninstall

__all__ = ["install", "installed", "uninstall"]
