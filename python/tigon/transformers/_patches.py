"""Attributes replaced on classes, modules and instances, and put back.

Each owner keeps what it had in an attribute of its own, so a deep copy of a patched model can be reverted as well, and a
model that is thrown away takes its patches with it.
"""

import types
import warnings
import weakref
from typing import Any

from torch import nn

Owner = type | types.ModuleType | nn.Module

_KEPT = "_tigon_replaced"  # {attribute: (what was there, what replaced it)}


class _Absent:
    """Nothing was there. A class, not an object(): it stays itself in a deep copy and in a pickle."""


_patched_code: list[type | types.ModuleType] = []
_patched_instances: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()


def replace(owner: Owner, name: str, value: Any) -> None:
    """Sets an attribute and remembers what was there before the first replacement."""
    _follow_accelerate(owner)
    kept = vars(owner).get(_KEPT)
    if kept is None:
        kept = {}
        setattr(owner, _KEPT, kept)
        if isinstance(owner, nn.Module):
            _patched_instances.add(owner)
        else:
            _patched_code.append(owner)
    before = kept[name][0] if name in kept else vars(owner).get(name, _Absent)
    setattr(owner, name, value)
    kept[name] = before, vars(owner)[name]


def is_replaced(owner: Owner, name: str) -> bool:
    """Whether ``replace`` has set the attribute."""
    _follow_accelerate(owner)
    return name in vars(owner).get(_KEPT, {})


def original(owner: Owner, name: str) -> Any:
    """The attribute as it was before any replacement; for an instance without its own, its class's."""
    kept = vars(owner).get(_KEPT, {})
    own = kept[name][0] if name in kept else vars(owner).get(name, _Absent)
    if own is not _Absent:
        return own
    return original(type(owner), name) if isinstance(owner, nn.Module) else getattr(owner, name)


def restore(owner: Owner) -> None:
    """Puts back everything that was replaced on ``owner``."""
    _follow_accelerate(owner)
    for name, (before, replacement) in vars(owner).get(_KEPT, {}).items():
        if vars(owner).get(name) != replacement:
            warnings.warn(
                f"{name} of {getattr(owner, '__name__', type(owner).__name__)} was replaced again after Tigon patched it, "
                "and is left as it is. Revert the later change first, then call revert_tigon().",
                stacklevel=3,
            )
        elif before is _Absent:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
    if _KEPT in vars(owner):
        delattr(owner, _KEPT)


def _follow_accelerate(owner: Owner) -> None:
    """Accelerate moves forward to _old_forward when it hooks a module, and back when it takes the hook away."""
    kept = vars(owner).get(_KEPT, {})
    for name, now in (("forward", "_old_forward"), ("_old_forward", "forward")):
        if name not in kept or now in kept:
            continue
        before, replacement = kept[name]
        if vars(owner).get(name) == replacement or vars(owner).get(now) != replacement:
            continue
        if before is _Absent:  # there has to be an _old_forward while there is a hook
            before = types.MethodType(original(type(owner), name), owner)
        del kept[name]
        kept[now] = before, replacement


def restore_model(model: nn.Module) -> None:
    """Puts back what was replaced on a model's instances."""
    for module in model.modules():
        restore(module)
        _patched_instances.discard(module)


def restore_all() -> None:
    """Puts back what was replaced on classes, modules, and every instance that is still alive."""
    for owner in (*_patched_code, *_patched_instances):
        restore(owner)
    _patched_code.clear()
    _patched_instances.clear()
