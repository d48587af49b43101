import tigon
import torch


def reference(x, weight, eps):
    x, weight = x.double(), weight.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def test_matches_pytorch(device):
    x = torch.randn(3, 5, 64, device=device, requires_grad=True)
    weight = torch.randn(64, device=device, requires_grad=True)
    upstream = torch.randn(3, 5, 64, device=device)
    y = tigon.ops.rms_norm(x, weight)
    expected = reference(x, weight, 1e-6)
    torch.testing.assert_close(y.double(), expected, rtol=1e-6, atol=1e-6)
    got = torch.autograd.grad(y, (x, weight), upstream)
    want = torch.autograd.grad(expected, (x, weight), upstream.double())
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_compiles_whole(device):
    x = torch.randn(6, 64, device=device, requires_grad=True)
    weight = torch.randn(64, device=device, requires_grad=True)
    compiled = torch.compile(lambda x, w: tigon.ops.rms_norm(x * 2, w) + 1, fullgraph=True)
    loss = compiled(x, weight).square().sum()
    got = torch.autograd.grad(loss, (x, weight))
    want = torch.autograd.grad((reference(x * 2, weight, 1e-6) + 1).square().sum(), (x, weight))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
