"""Writes tests/golden/data: what PyTorch computes, forward and backward, for small cases of every op.

    python tests/golden/make_golden.py        (needs torch; the result is committed)

A file is a sequence of cases:

    case <name>
    scalar <name> <number>
    tensor <name> <dtype> <sizes …>           followed by the elements, little-endian, and a line break

tests/golden/golden.hpp reads it. In bf16 the formulas run in bf16 as written, with PyTorch's own roundings, except where
Hugging Face computes in f32 (losses) and where a comment says so.
"""

import pathlib

import torch
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).parent / "data"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32"}


def raw(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array = tensor.numpy()
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


class File:
    """One op's file: cases with scalars and tensors."""

    def __init__(self, op):
        self.op = op
        self.parts = []

    def case(self, name, scalars, **tensors):
        self.parts.append(f"case {name}\n".encode())
        for key, value in scalars.items():
            self.parts.append(f"scalar {key} {float(value):.17g}\n".encode())
        for key, value in tensors.items():
            sizes = "".join(f" {size}" for size in value.shape)
            self.parts += [f"tensor {key} {NAMES[value.dtype]}{sizes}\n".encode(), raw(value), b"\n"]

    def write(self):
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{self.op}.golden").write_bytes(b"".join(self.parts))


def normal(*shape, dtype=torch.float32, mean=0.0, deviation=1.0):
    return (mean + deviation * torch.randn(*shape)).to(dtype)


def gradients(outputs, upstream, inputs):
    """The gradients of inputs, given what arrives at each of the outputs."""
    return torch.autograd.grad(outputs, inputs, upstream)


def leaves(*tensors):
    return [t.detach().requires_grad_() for t in tensors]


# --- norms ---


def hf_rmsnorm(x, weight, eps, offset, gemma):
    """LlamaRMSNorm, or with gemma GemmaRMSNorm, as in transformers."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if gemma:
        return (normed * (offset + weight.float())).type_as(x)
    return (offset + weight) * normed.to(x.dtype)


def rmsnorm():
    file = File("rmsnorm")
    for name, dtype in DTYPES.items():
        for style, offset, casting in (("llama", 0.0, 0), ("gemma", 1.0, 1)):
            x, weight = leaves(normal(7, 33, dtype=dtype), normal(33, dtype=dtype, mean=1 - offset, deviation=0.3))
            dy = normal(7, 33, dtype=dtype)
            y = hf_rmsnorm(x, weight, 1e-5, offset, style == "gemma")
            dx, dweight = gradients([y], [dy], [x, weight])
            file.case(f"{style} {name}", dict(eps=1e-5, offset=offset, casting=casting),
                      x=x, weight=weight, dy=dy, y=y, dx=dx, dweight=dweight)
    file.write()


def add_rmsnorm():
    file = File("add_rmsnorm")
    for name, dtype in DTYPES.items():
        x, residual, weight = leaves(normal(7, 33, dtype=dtype), normal(7, 33, dtype=dtype),
                                     normal(33, dtype=dtype, mean=1, deviation=0.3))
        dy, dresidual_out = normal(7, 33, dtype=dtype), normal(7, 33, dtype=dtype)
        residual_out = x + residual
        y = hf_rmsnorm(residual_out, weight, 1e-6, 0.0, False)
        dx, dweight = gradients([y, residual_out], [dy, dresidual_out], [x, weight])
        file.case(f"llama {name}", dict(eps=1e-6), x=x, residual=residual, weight=weight, dy=dy,
                  dresidual_out=dresidual_out, residual_out=residual_out, y=y, dx=dx, dweight=dweight)
    file.write()


def layernorm():
    file = File("layernorm")
    for name, dtype in DTYPES.items():
        x, weight, bias = leaves(normal(7, 33, dtype=dtype, mean=2), normal(33, dtype=dtype, mean=1, deviation=0.3),
                                 normal(33, dtype=dtype))
        dy = normal(7, 33, dtype=dtype)
        y = F.layer_norm(x, (33,), weight, bias, 1e-5)
        dx, dweight, dbias = gradients([y], [dy], [x, weight, bias])
        file.case(name, dict(eps=1e-5), x=x, weight=weight, bias=bias, dy=dy, y=y, dx=dx, dweight=dweight, dbias=dbias)
    file.write()


# --- rope ---


def llama3_frequencies(inverse, factor, low, high, original):
    """_compute_llama3_parameters of transformers."""
    wavelength = 2 * torch.pi / inverse
    scaled = torch.where(wavelength > original / low, inverse / factor, inverse)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * scaled / factor + smooth * scaled
    is_between = ~(wavelength < original / high) & ~(wavelength > original / low)
    return torch.where(is_between, between, scaled)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def rotate_pairs(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rope():
    file = File("rope")
    batch, heads, kv_heads, seq, dim = 2, 2, 1, 5, 16
    for name, dtype in DTYPES.items():
        for style in ("half", "interleaved", "partial", "linear", "llama3"):
            rotary = 8 if style == "partial" else dim
            inverse = 1.0 / (10000.0 ** (torch.arange(0, rotary, 2, dtype=torch.int64).float() / rotary))
            scaling = dict(kind=0, factor=1, low=1, high=4, original=8192)
            if style == "linear":
                scaling = dict(scaling, kind=1, factor=4)
                inverse = inverse / 4
            if style == "llama3":  # a short original context, so that all three branches are met
                scaling = dict(kind=2, factor=8, low=1, high=4, original=64)
                inverse = llama3_frequencies(inverse, 8.0, 1.0, 4.0, 64.0)
            positions = torch.tensor([[0, 1, 2, 3, 4], [7, 100, 1000, 3, 2]])
            angles = positions[:, :, None].float() * inverse
            if style == "interleaved":
                angles, rotate = angles.repeat_interleave(2, -1), rotate_pairs
            else:
                angles, rotate = torch.cat((angles, angles), -1), rotate_half
            cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

            def embed(x):
                turned, kept = x[..., :rotary], x[..., rotary:]
                return torch.cat((turned * cos[:, None] + rotate(turned) * sin[:, None], kept), -1)

            q, k = leaves(normal(batch, heads, seq, dim, dtype=dtype), normal(batch, kv_heads, seq, dim, dtype=dtype))
            dq_out, dk_out = torch.randn_like(q), torch.randn_like(k)
            q_out, k_out = embed(q), embed(k)
            dq, dk = gradients([q_out, k_out], [dq_out, dk_out], [q, k])
            file.case(f"{style} {name}", dict(scaling, theta=10000, rotary_dim=rotary,
                                              pairing=style == "interleaved"),
                      q=q, k=k, positions=positions, cos=cos.flatten(0, 1), sin=sin.flatten(0, 1), q_out=q_out,
                      k_out=k_out, dq_out=dq_out, dk_out=dk_out, dq=dq, dk=dk)
    file.write()


# --- activations, softmax ---


def gated(op, activations):
    file = File(op)
    for name, dtype in DTYPES.items():
        for style, activation in activations.items():
            a, b = leaves(normal(5, 37, dtype=dtype, deviation=2), normal(5, 37, dtype=dtype))
            dc = normal(5, 37, dtype=dtype)
            c = activation(a) * b
            da, db = gradients([c], [dc], [a, b])
            file.case(f"{style} {name}", dict(gelu=style == "erf"), a=a, b=b, c=c, dc=dc, da=da, db=db)
    file.write()


def softmax():
    file = File("softmax")
    for name, dtype in DTYPES.items():
        (x,) = leaves(normal(5, 37, dtype=dtype, deviation=3))
        dy = normal(5, 37, dtype=dtype)
        y = F.softmax(0.5 * x, -1)
        (dx,) = gradients([y], [dy], [x])
        file.case(name, dict(scale=0.5), x=x, dy=dy, y=y, dx=dx)
    file.write()


# --- losses ---

LOSS_CASES = {  # reduction, ignored, label_smoothing, z_loss, softcap, class weights
    "mean": ("mean", True, 0.0, 0.0, 0.0, False),
    "sum": ("sum", True, 0.0, 0.0, 0.0, False),
    "none": ("none", True, 0.0, 0.0, 0.0, False),
    "smoothing": ("mean", True, 0.1, 0.0, 0.0, False),
    "weights": ("mean", True, 0.0, 0.0, 0.0, True),
    "smoothing_weights": ("mean", True, 0.2, 0.0, 0.0, True),
    "z_loss": ("mean", True, 0.0, 1e-2, 0.0, False),
    "softcap": ("mean", False, 0.0, 0.0, 5.0, False),
    "everything": ("mean", True, 0.1, 1e-2, 5.0, True),
    "everything_none": ("none", True, 0.1, 1e-2, 5.0, True),
    "all_ignored": ("sum", None, 0.0, 0.0, 0.0, False),
}
REDUCTIONS = {"mean": 0, "sum": 1, "none": 2}


def targets(tokens, vocab, ignored):
    target = torch.randint(0, vocab, (tokens,))
    if ignored is None:
        target[:] = -100
    elif ignored:
        target[1::3] = -100
    return target


def loss_of(logits, target, weight, reduction, smoothing, z, cap):
    logits = logits.float()
    if cap > 0:
        logits = cap * torch.tanh(logits / cap)
    loss = F.cross_entropy(logits, target, weight, ignore_index=-100, reduction=reduction, label_smoothing=smoothing)
    if z > 0:
        squares = z * torch.logsumexp(logits, -1).square() * (target != -100)
        loss = loss + {"mean": squares.sum() / (target != -100).sum(), "sum": squares.sum(), "none": squares}[reduction]
    return loss


def loss_scalars(reduction, smoothing, z, cap):
    return dict(reduction=REDUCTIONS[reduction], label_smoothing=smoothing, z_loss=z, softcap=cap)


def cross_entropy():
    file = File("cross_entropy")
    tokens, vocab = 7, 41
    for name, dtype in DTYPES.items():
        for style, (reduction, ignored, smoothing, z, cap, weighted) in LOSS_CASES.items():
            (logits,) = leaves(normal(tokens, vocab, dtype=dtype, deviation=3))
            target = targets(tokens, vocab, ignored)
            weight = torch.rand(vocab) + 0.5 if weighted else None
            loss = loss_of(logits, target, weight, reduction, smoothing, z, cap)
            dloss = normal(*loss.shape) if reduction == "none" else torch.tensor(0.75)
            (dlogits,) = gradients([loss], [dloss], [logits])
            optional = dict(class_weight=weight) if weighted else {}
            file.case(f"{style} {name}", loss_scalars(reduction, smoothing, z, cap), logits=logits, target=target,
                      loss=loss.reshape(-1), dloss=dloss.reshape(-1), dlogits=dlogits, **optional)
    file.write()


def fused_linear_cross_entropy():
    file = File("fused_linear_cross_entropy")
    tokens, hidden, vocab = 7, 19, 41
    for name, dtype in DTYPES.items():
        for style in ("mean", "none", "everything", "all_ignored"):
            reduction, ignored, smoothing, z, cap, weighted = LOSS_CASES[style]
            x, weight, bias = leaves(normal(tokens, hidden, dtype=dtype), normal(vocab, hidden, dtype=dtype, deviation=0.5),
                                     normal(vocab, dtype=dtype))
            target = targets(tokens, vocab, ignored)
            class_weight = torch.rand(vocab) + 0.5 if weighted else None
            loss = loss_of(F.linear(x, weight, bias), target, class_weight, reduction, smoothing, z, cap)
            dloss = normal(*loss.shape) if reduction == "none" else torch.tensor(0.75)
            dx, dweight, dbias = gradients([loss], [dloss], [x, weight, bias])
            optional = dict(class_weight=class_weight) if weighted else {}
            file.case(f"{style} {name}", loss_scalars(reduction, smoothing, z, cap), x=x, weight=weight, bias=bias,
                      target=target, loss=loss.reshape(-1), dloss=dloss.reshape(-1), dx=dx, dweight=dweight,
                      dbias=dbias, **optional)
    file.write()


def linear():
    file = File("linear")
    for name, dtype in DTYPES.items():
        x, weight, bias = leaves(normal(6, 19, dtype=dtype), normal(11, 19, dtype=dtype), normal(11, dtype=dtype))
        dy = normal(6, 11, dtype=dtype)
        y = F.linear(x, weight, bias)
        dx, dweight, dbias = gradients([y], [dy], [x, weight, bias])
        file.case(name, {}, x=x, weight=weight, bias=bias, dy=dy, y=y, dx=dx, dweight=dweight, dbias=dbias)
    file.write()


# --- embedding, attention ---


def embedding():
    file = File("embedding")
    for name, dtype in DTYPES.items():
        (weight,) = leaves(normal(9, 13, dtype=dtype))
        ids = torch.tensor([3, 0, 3, 8, 3, 5], dtype=torch.int32)
        dy = normal(6, 13, dtype=dtype)
        # Through f32: PyTorch itself would add up the tokens of a row in bf16.
        y = (4.0 * F.embedding(ids.long(), weight.float())).to(dtype)
        (dweight,) = gradients([y], [dy], [weight])
        file.case(name, dict(scale=4), ids=ids, weight=weight, dy=dy, y=y, dweight=dweight)
    file.write()


def attention():
    file = File("attention")
    batch, seq, heads, kv_heads, dim = 2, 11, 4, 2, 8
    for name, dtype in DTYPES.items():
        for style, causal, scale in (("causal", True, 0.0), ("full", False, 0.7)):
            q, k, v = leaves(normal(batch, seq, heads, dim, dtype=dtype), normal(batch, seq, kv_heads, dim, dtype=dtype),
                             normal(batch, seq, kv_heads, dim, dtype=dtype))
            dout = normal(batch, seq, heads, dim, dtype=dtype)
            o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal,
                                               scale=scale or None, enable_gqa=True).transpose(1, 2)
            dq, dk, dv = gradients([o], [dout], [q, k, v])
            scores = torch.einsum("bihd,bjhd->bhij", q.float(), k.float().repeat_interleave(heads // kv_heads, 2))
            scores = scores * (scale or dim**-0.5)
            if causal:
                scores = scores.masked_fill(torch.ones(seq, seq).triu(1).bool(), -torch.inf)
            file.case(f"{style} {name}", dict(causal=causal, scale=scale), q=q, k=k, v=v, dout=dout, o=o,
                      lse=torch.logsumexp(scores, -1), dq=dq, dk=dk, dv=dv)
    file.write()


# --- optimizer ---


def adamw():
    file = File("adamw")
    for name, dtype in DTYPES.items():
        for style, weight_decay in (("decay", 0.1), ("plain", 0.0)):
            param = normal(37, dtype=dtype).requires_grad_()
            optimizer = torch.optim.AdamW([param], lr=0.02, betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay,
                                          foreach=False, fused=False)
            tensors = dict(param=param.detach().clone())
            for step in (1, 2, 3):
                param.grad = normal(37, dtype=dtype)
                optimizer.step()
                tensors |= {f"grad{step}": param.grad, f"param{step}": param.detach().clone()}
            state = optimizer.state[param]
            file.case(f"{style} {name}", dict(lr=0.02, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=weight_decay),
                      **tensors, m3=state["exp_avg"], v3=state["exp_avg_sq"])
    file.write()


def global_norm():
    file = File("global_norm")
    for name, dtype in DTYPES.items():
        for style, max_norm in (("clipped", 1.0), ("loose", 100.0)):
            values = [normal(*shape, dtype=dtype) for shape in ((5, 7), (31,), (1,))]
            params = [torch.nn.Parameter(torch.zeros(v.shape)) for v in values]
            for param, value in zip(params, values):
                param.grad = value.float().clone()
            norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
            clip = params[1].grad[0] / values[1][0].float()
            file.case(f"{style} {name}", dict(max_norm=max_norm), x0=values[0], x1=values[1], x2=values[2],
                      norm=norm.reshape(1), clip=clip.reshape(1))
    file.write()


def main():
    ops = [rmsnorm, add_rmsnorm, layernorm, rope,
           lambda: gated("swiglu", {"silu": F.silu}),
           lambda: gated("geglu", {"tanh": lambda a: F.gelu(a, approximate="tanh"), "erf": F.gelu}),
           softmax, cross_entropy, fused_linear_cross_entropy, linear, embedding, attention, adamw, global_norm]
    for seed, op in enumerate(ops):
        torch.manual_seed(seed)
        op()


if __name__ == "__main__":
    main()
