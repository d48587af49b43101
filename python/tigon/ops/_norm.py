"""What the RMS norms share."""

_CASTING = {"llama": 0, "gemma": 1, "none": 2}  # tigon_norm_casting


def casting_number(mode: str) -> int:
    """The C ABI's number of a casting mode."""
    if mode not in _CASTING:
        raise ValueError(f"casting_mode is {mode!r}: expected one of {', '.join(map(repr, _CASTING))}")
    return _CASTING[mode]
