"""Finds torch and connects the compiled kernels to it."""

try:
    import torch
except ImportError as missing:
    raise ImportError(
        "tigon needs PyTorch 2.6 or later, which is not installed here. Install the build for your machine first "
        "(https://pytorch.org/get-started/locally), for a CPU: pip install torch"
    ) from missing

from tigon import _native

_DTYPES = {  # the numbers of tigon_dtype in tigon.h
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.float16: 2,
    torch.float64: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.uint8: 6,
}


def _require_version(installed: str) -> None:
    major, minor = (int(part) for part in installed.split(".")[:2])
    if (major, minor) < (2, 6):
        raise ImportError(f"tigon needs PyTorch 2.6 or later, and found {installed}. Update it: pip install -U torch")


def _empty_bytes(count: int, cuda_index: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8, device="cpu" if cuda_index < 0 else f"cuda:{cuda_index}")


def _current_stream(cuda_index: int) -> int:
    return torch.cuda.current_stream(cuda_index).cuda_stream


def connect(exchange: object) -> bool:
    """Gives the kernels what they need of torch; ``exchange`` is the capsule of DLPack's exchange table, or None.

    Returns whether that table is used. Without it every tensor costs a few microseconds more.
    """
    return _native.connect(
        torch.Tensor,
        exchange,
        _DTYPES,
        _empty_bytes,
        _current_stream,
        torch.get_num_threads,
        torch.OutOfMemoryError,
    )


_require_version(torch.__version__)
connect(getattr(torch.Tensor, "__dlpack_c_exchange_api__", None))
version: str = _native.version
