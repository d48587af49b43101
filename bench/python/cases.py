"""The ops of tigon.ops, with PyTorch's and Liger's spellings of the same, at named shapes."""

import importlib
import sys
from dataclasses import dataclass, field

import tigon
import torch
import torch.nn.functional as F
from torch.autograd.graph import _engine_run_backward

# Shapes of each op: tiny for the host's cost, small for a CPU or a smoke test, large as the reports of Tigon's kernels,
# odd where rows begin anywhere, each after the aligned size that it should be as fast as.
SHAPES = {
    "rms_norm": {
        "tiny": ["4x64"],
        "small": ["2048x1024"],
        "large": ["8192x4096", "8192x8192", "8192x12288", "8192x16384"],
        "odd": ["16384x4096", "16384x4095", "8192x896", "8192x895"],
    },
    "rope": {
        "tiny": ["1x4x2x1x64"],
        "small": ["2x512x16x4x64"],
        "large": ["4x2048x32x8x128", "4x2048x64x16x128", "4x2048x96x24x128", "4x2048x128x32x128"],
    },
    "swiglu": {
        "tiny": ["4x64"],
        "small": ["1024x4096"],
        "large": ["4096x11008", "8192x11008", "12288x11008", "16384x11008"],
    },
    "swiglu_linear": {  # tokens, hidden, intermediate: an MLP, since what it saves depends on what comes before
        "tiny": ["4x64x64"],
        "small": ["1024x512x2048"],
        "large": ["8192x2048x8192", "8192x4096x14336"],
    },
    "cross_entropy": {
        "tiny": ["4x64"],
        "small": ["512x32000"],
        "large": ["8192x40960", "8192x81920", "8192x122880", "8192x163840"],
        "odd": ["8192x50256", "8192x50257", "4096x151680", "4096x151669"],
    },
    "linear_cross_entropy": {
        "tiny": ["4x64x96"],
        "small": ["512x256x32000"],
        "large": ["4096x2048x128256", "8192x2048x128256", "32768x2048x128256", "4096x4096x128256", "8192x4096x128256"],
        "odd": [
            *(f"4096x1024x{classes}" for classes in (32000, 32064, 32001, 32002, 32008, 50304, 50257)),
            *(f"4096x{hidden}x32000" for hidden in (1000, 1001, 1002)),
            *("32768x1024x50304", "32768x1024x50257", "6000x2560x151680", "6000x2560x151669"),
        ],
    },
    "linear": {
        "tiny": ["4x64x64"],
        "small": ["256x1024x1024"],
        "large": ["8192x4096x14336"],
        "odd": ["4096x1024x4096", "4096x1024x4097", "4096x1025x4096", "4097x1024x4096"],
    },
}
SHAPES["fused_add_rms_norm"] = SHAPES["layer_norm"] = SHAPES["rms_norm"]
SHAPES["geglu"] = SHAPES["swiglu"]
CASES = [
    "rms_norm",
    "fused_add_rms_norm",
    "layer_norm",
    "rope",
    "swiglu",
    "geglu",
    "swiglu_linear",
    "cross_entropy",
    "linear_cross_entropy",
    "linear",
]


@dataclass
class Case:
    """One op at one shape: differentiable inputs, upstream gradients, and of each provider a function of the inputs that
    returns a list of results."""

    inputs: list
    upstream: list
    functions: dict = field(default_factory=dict)

    def calls(self, count):
        """So many pairs of inputs and upstream gradients, each in memory of its own, for run_calls."""

        def copy():
            inputs = [t.detach().clone().requires_grad_() for t in self.inputs]
            return inputs, [t.clone() for t in self.upstream]

        return [(self.inputs, self.upstream), *(copy() for _ in range(count - 1))]


def run_calls(calls, function):
    """The forwards of all calls, then one backward, as in a model."""
    results, upstream = [], []
    for inputs, gradients in calls:
        results += function(*inputs)
        upstream += gradients
    # Without the checks of torch.autograd.backward, which a model pays once for its one loss.
    _engine_run_backward(
        tuple(results), tuple(upstream), False, False, (), allow_unreachable=True, accumulate_grad=True
    )
    for inputs, _ in calls:
        for leaf in inputs:
            leaf.grad = None


def available_peers(device):
    """Liger's ops where they can be imported (its kernels run on GPUs only)."""
    if device != "cuda":
        return {}
    try:
        return {"liger": importlib.import_module("liger_kernel.ops")}
    except Exception as error:  # a peer that does not load is left out, whatever its reason
        print(f"without liger: {error}", file=sys.stderr)
        return {}


def make_case(op, shape, device, dtype, peers):
    """shape: "8192x4096", or a name of SHAPES, which means its first."""
    if shape in SHAPES[op]:
        shape = SHAPES[op][shape][0]
    sizes = [int(part) for part in shape.split("x")]
    maker = _Maker(torch.device(device), getattr(torch, dtype))
    return getattr(maker, op)(sizes, peers.get("liger"))


class _Maker:
    def __init__(self, device, dtype):
        torch.manual_seed(0)
        self.device, self.dtype = device, dtype

    def random(self, *shape):
        return torch.randn(*shape, device=self.device, dtype=self.dtype)

    def leaf(self, *shape, scale=1.0, mean=0.0):
        return (self.random(*shape) * scale + mean).requires_grad_()

    def targets(self, tokens, classes):
        return torch.randint(classes, (tokens,), device=self.device)

    def rms_norm(self, sizes, liger):
        x, w = self.leaf(*sizes), self.leaf(sizes[1], scale=0.3, mean=1.0)
        case = Case([x, w], [self.random(*sizes)])
        case.functions["tigon"] = lambda x, w: [tigon.ops.rms_norm(x, w, 1e-5)]
        case.functions["eager"] = lambda x, w: [F.rms_norm(x, (sizes[1],), w, 1e-5)]
        if liger:
            function = liger.LigerRMSNormFunction.apply
            case.functions["liger"] = lambda x, w: [function(x, w, 1e-5, 0.0, "llama", False)]
        return case

    def fused_add_rms_norm(self, sizes, liger):
        x, r, w = self.leaf(*sizes), self.leaf(*sizes), self.leaf(sizes[1], scale=0.3, mean=1.0)
        case = Case([x, r, w], [self.random(*sizes), self.random(*sizes)])

        def eager(x, r, w):
            total = x + r
            return F.rms_norm(total, (sizes[1],), w, 1e-5), total

        case.functions["tigon"] = lambda x, r, w: tigon.ops.fused_add_rms_norm(x, r, w, 1e-5)
        case.functions["eager"] = eager
        if liger:
            function = liger.LigerFusedAddRMSNormFunction.apply
            case.functions["liger"] = lambda x, r, w: function(x, r, w, 1e-5, 0.0, "llama", False)
        return case

    def layer_norm(self, sizes, liger):
        x, w, b = self.leaf(*sizes), self.leaf(sizes[1], scale=0.3, mean=1.0), self.leaf(sizes[1])
        case = Case([x, w, b], [self.random(*sizes)])
        case.functions["tigon"] = lambda x, w, b: [tigon.ops.layer_norm(x, w, b, 1e-5)]
        case.functions["eager"] = lambda x, w, b: [F.layer_norm(x, (sizes[1],), w, b, 1e-5)]
        if liger:
            case.functions["liger"] = lambda x, w, b: [liger.LigerLayerNormFunction.apply(x, w, b, 1e-5)]
        return case

    def rope(self, sizes, liger):
        batch, seq, heads, kv_heads, d = sizes
        # As Hugging Face has them: [batch, seq, heads, d] in memory, seen with heads before seq.
        q, k = self.leaf(batch, seq, heads, d), self.leaf(batch, seq, kv_heads, d)
        frequency = 1.0 / 10000 ** (torch.arange(0, d, 2, device=self.device).float() / d)
        angle = torch.outer(torch.arange(seq, device=self.device).float(), frequency).repeat(1, 2)[None]
        cos, sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)

        def half(x):
            first, second = x.chunk(2, dim=-1)
            return torch.cat((-second, first), dim=-1)

        def eager(q, k):
            qt, kt, c, s = q.transpose(1, 2), k.transpose(1, 2), cos[:, None], sin[:, None]
            return qt * c + half(qt) * s, kt * c + half(kt) * s

        case = Case([q, k], [self.random(batch, heads, seq, d), self.random(batch, kv_heads, seq, d)])
        case.functions["tigon"] = lambda q, k: tigon.ops.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        case.functions["eager"] = eager
        if liger:
            function = liger.LigerRopeFunction.apply
            case.functions["liger"] = lambda q, k: function(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        return case

    def gated(self, sizes, ours, eager, liger):
        a, b = self.leaf(*sizes), self.leaf(*sizes)
        case = Case([a, b], [self.random(*sizes)])
        case.functions["tigon"] = lambda a, b: [ours(a, b)]
        case.functions["eager"] = lambda a, b: [eager(a) * b]
        if liger:
            case.functions["liger"] = lambda a, b: [liger.apply(a, b)]
        return case

    def swiglu(self, sizes, liger):
        return self.gated(sizes, tigon.ops.swiglu, F.silu, liger and liger.LigerSiLUMulFunction)

    def geglu(self, sizes, liger):
        def gelu(a):
            return F.gelu(a, approximate="tanh")

        return self.gated(sizes, tigon.ops.geglu, gelu, liger and liger.LigerGELUMulFunction)

    def swiglu_linear(self, sizes, liger):
        tokens, hidden, intermediate = sizes
        x = self.leaf(tokens, hidden)
        gate, up = (self.leaf(intermediate, hidden, scale=hidden**-0.5) for _ in range(2))
        down = self.leaf(hidden, intermediate, scale=intermediate**-0.5)
        case = Case([x, gate, up, down], [self.random(tokens, hidden)])

        def mlp(product):
            return lambda x, gate, up, down: [F.linear(product(F.linear(x, gate), F.linear(x, up)), down)]

        def ours(x, gate, up, down):
            return [tigon.ops.swiglu_linear(F.linear(x, gate), F.linear(x, up), down)]

        case.functions["tigon"] = ours
        case.functions["eager"] = mlp(lambda a, b: F.silu(a) * b)
        if liger:
            case.functions["liger"] = mlp(liger.LigerSiLUMulFunction.apply)
        return case

    def cross_entropy(self, sizes, liger):
        x, target = self.leaf(*sizes), self.targets(*sizes)
        case = Case([x], [torch.ones((), device=self.device)])
        case.functions["tigon"] = lambda x: [tigon.ops.cross_entropy(x, target)]
        case.functions["eager"] = lambda x: [F.cross_entropy(x, target)]
        if liger:
            function = liger.LigerCrossEntropyFunction.apply
            # Liger writes the gradient over the logits, so its values are wrong from the second pair on; its time is not.
            options = (None, -100, 0.0, 0.0, "mean", None, False, False, False)
            case.functions["liger"] = lambda x: [function(x, target, *options)[0]]
        return case

    def linear_cross_entropy(self, sizes, liger):
        tokens, hidden, classes = sizes
        x, w, target = (
            self.leaf(tokens, hidden),
            self.leaf(classes, hidden, scale=hidden**-0.5),
            self.targets(tokens, classes),
        )
        case = Case([x, w], [torch.ones((), device=self.device)])
        case.functions["tigon"] = lambda x, w: [tigon.ops.linear_cross_entropy(x, w, target)]
        case.functions["eager"] = lambda x, w: [F.cross_entropy(F.linear(x, w), target)]
        if liger:
            function = liger.LigerFusedLinearCrossEntropyFunction.apply
            case.functions["liger"] = lambda x, w: [function(x, w, target)[0]]
        return case

    def linear(self, sizes, liger):
        tokens, hidden, features = sizes
        x, w = self.leaf(tokens, hidden), self.leaf(features, hidden, scale=hidden**-0.5)
        case = Case([x, w], [self.random(tokens, features)])
        case.functions["tigon"] = lambda x, w: [tigon.ops.linear(x, w)]
        case.functions["eager"] = lambda x, w: [F.linear(x, w)]
        return case
