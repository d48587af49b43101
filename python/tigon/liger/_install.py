"""Enters Tigon into Liger's two registries, and into the modules that took Liger's functions before.

Liger 0.8 has a registry of implementations per op, asked at every call of its dispatcher, and one of whole sets of autograd
functions, asked once when liger_kernel.ops is imported, which is before anybody can enter anything. The functions are
therefore also exchanged where they are: in liger_kernel.ops, for imports to come, and in the modules that imported them.
"""

import importlib
import sys
import types
from typing import Any

from tigon.liger import _losses, _ops, _rope, functions

NAME = "tigon"
_DISPATCHED = {
    "rms_norm": _ops.rms_norm,
    "fused_add_rms_norm": _ops.fused_add_rms_norm,
    "layer_norm": _ops.layer_norm,
    "swiglu": _ops.swiglu,
    "geglu": _ops.geglu,
    "rope": _rope.rope,
    "cross_entropy": _losses.cross_entropy,
    "fused_linear_cross_entropy": _losses.fused_linear_cross_entropy,
}
_FIRST_CHOICE = 0  # Liger's own have ranks from 2 on; the lowest wins

_exchanged: list[tuple[types.ModuleType, str, Any]] = []


def install() -> None:
    """Makes Tigon the backend of liger_kernel in this process. May be called again: then for what was imported since."""
    registry, sets = _registries()
    for op, implementation in _DISPATCHED.items():
        registry.register_impl(
            op, impl_name=NAME, preference_rank=_FIRST_CHOICE, notes="Tigon's kernels, on CUDA and on the CPU"
        )(implementation)
    sets.register_impl(sets.ImplInfo(name=NAME, devices=("cuda", "cpu"), module_path=functions.__name__))
    _exchange_functions()


def uninstall() -> None:
    """Gives Liger its own kernels back. Does nothing where Tigon is not installed."""
    if not installed():
        return
    registry, sets = _registries()
    for op in _DISPATCHED:
        registry._REGISTRY.pop((op, NAME), None)
    registry._invalidate_available_cache()
    sets.IMPL_REGISTRY.pop(NAME, None)
    for module, name, before in reversed(_exchanged):
        setattr(module, name, before)
    _exchanged.clear()


def installed() -> bool:
    """Whether install() is in force."""
    return bool(_exchanged)


def _registries() -> tuple[Any, Any]:
    try:
        registry = importlib.import_module("liger_kernel.backends.registry")
        sets = importlib.import_module("liger_kernel.ops.backends.registry")
    except ModuleNotFoundError as missing:
        if missing.name == "liger_kernel":
            raise ImportError(
                "tigon.liger puts Tigon behind liger_kernel, which is not installed here: pip install liger-kernel. Without "
                "it, tigon.transformers has the same names (Liger -> Tigon)."
            ) from missing
        if missing.name is None or not missing.name.startswith("liger_kernel"):
            raise ImportError(
                f"liger_kernel needs {missing.name}, which is not installed: pip install {missing.name}"
            ) from missing
        raise ImportError(
            f"this liger_kernel has no registry of implementations ({missing.name}); expected version 0.8.5 or later: "
            "pip install -U liger-kernel"
        ) from missing
    return registry, sets


def _exchange_functions() -> None:
    ours = {name: getattr(functions, name) for name in functions.__all__}
    liger_ops = sys.modules["liger_kernel.ops"]
    for module in [liger_ops, *_importers()]:
        for name in ours.keys() & vars(module).keys():
            before = vars(module)[name]
            if before is not ours[name]:
                _exchanged.append((module, name, before))
                setattr(module, name, ours[name])


def _importers() -> list[types.ModuleType]:
    """Liger's modules outside of liger_kernel.ops, whose own modules mean their own functions."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("liger_kernel.") and not name.startswith("liger_kernel.ops") and module is not None
    ]
