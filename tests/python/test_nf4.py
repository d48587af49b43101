"""NF4 against bitsandbytes, bit by bit: codes, scales and what comes back."""

import pytest
import torch
from tigon import _native

functional = pytest.importorskip("bitsandbytes.functional", reason="bitsandbytes is not installed")

SIZES = [(1, 1), (3, 7), (1, 64), (5, 64), (130, 129), (256, 256), (1024, 1000)]


def quantized(x):
    """Codes, scales' codes, group scales and offset."""
    n = x.numel()
    blocks = -(-n // 64)
    out = [
        torch.empty(-(-n // 2), dtype=torch.uint8),
        torch.empty(blocks, dtype=torch.uint8),
        torch.empty(-(-blocks // 256)),
        torch.empty(1),
    ]
    _native.nf4_quantize(x.reshape(-1), *out)
    return out


def dequantized(parts, shape, dtype):
    y = torch.empty(shape, dtype=dtype)
    _native.nf4_dequantize(*parts, y.reshape(-1))
    return y


def theirs(x, offset):
    """The same of bitsandbytes' operators, around a given mean. For the scales that is the operator for f64, which takes
    the nearest entry, as its kernels for GPUs do; the one for f32 on CPUs looks at 16 bits of a number."""
    codes, state = functional.quantize_4bit(x, blocksize=64, quant_type="nf4")
    left = (state.absmax - offset).double()
    scale_codes, groups = torch.ops.bitsandbytes.quantize_blockwise(left, functional.create_dynamic_map(), 256)
    return codes.reshape(-1), scale_codes, groups, state.absmax.mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SIZES)
def test_every_code_and_scale(shape, dtype):
    torch.manual_seed(shape[0])
    x = (torch.randn(shape) * 0.02).to(dtype)
    ours = quantized(x)
    codes, scale_codes, groups, mean = theirs(x, ours[3])
    assert torch.equal(ours[0], codes)
    assert torch.equal(ours[2], groups)
    assert ours[3].item() == pytest.approx(mean.item(), rel=1e-6)
    same = ours[1] == scale_codes
    assert torch.equal(
        same | (groups.repeat_interleave(256)[: len(same)] == 0), torch.ones_like(same, dtype=torch.bool)
    )


def test_ties_and_zeros():
    levels = functional.get_4bit_type("nf4", device="cpu")
    x = torch.zeros(8, 64)
    x[0, :15] = (levels[1:] + levels[:-1]) / 2
    x[0, 63] = x[1, 5] = 1
    x[2] = torch.linspace(-3, 3, 64)
    x[3] = 1e-40
    assert torch.equal(quantized(x)[0], theirs(x, 0.0)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SIZES)
def test_what_bitsandbytes_has_written_comes_back_as_it_says(shape, dtype):
    torch.manual_seed(shape[1])
    x = (torch.randn(shape) * 0.02).to(dtype)
    codes, state = functional.quantize_4bit(x, blocksize=64, compress_statistics=True, quant_type="nf4")
    parts = [codes.reshape(-1), state.absmax, state.state2.absmax, state.offset.reshape(1)]
    assert torch.equal(dequantized(parts, shape, dtype), functional.dequantize_4bit(codes, state))


def test_an_exact_mean_is_theirs():
    """Sums of powers of two are exact in any order, so that nothing is left to differ."""
    x = torch.randn(1024, 64).clamp(-1, 1) * 2.0 ** torch.randint(-6, 0, (1024, 1))
    x[:, 0] = 2.0 ** torch.randint(-6, 0, (1024,))
    x.clamp_(-x[:, :1], x[:, :1])
    ours = quantized(x)
    *rest, mean = theirs(x, ours[3])
    assert ours[3] == mean
    assert all(torch.equal(a, b) for a, b in zip(ours, rest, strict=False))
