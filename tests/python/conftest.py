import pytest
import torch

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=no_gpu)])
def device(request):
    return torch.device(request.param)


@pytest.fixture(params=["float32", "bfloat16", "float16"])
def dtype(request):
    return getattr(torch, request.param)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
