"""The compiled module (python/binding): the C ABI's ops. Arguments follow the tables in ops.cpp; outputs are written."""

from collections.abc import Callable

import torch

version: str

_In = torch.Tensor | None
_Out = torch.Tensor | None

def connect(
    tensor_type: type[torch.Tensor],
    exchange: object,
    dtypes: dict[torch.dtype, int],
    empty_bytes: Callable[[int, int], torch.Tensor],
    current_stream: Callable[[int], int],
    num_threads: Callable[[], int],
    out_of_memory_error: type[Exception],
    /,
) -> bool: ...
def rmsnorm_forward(
    x: _In, weight: _In, y: _Out, rstd: _Out, eps: float, offset: float, casting: int, /
) -> None: ...
def rmsnorm_backward(
    dy: _In, x: _In, weight: _In, rstd: _In, dx: _Out, dweight: _Out, offset: float, casting: int, /
) -> None: ...
