"""Every option of both losses at the vocabularies that models have, beside PyTorch in f64.

Small vocabularies take other kernels. A gradient is compared class by class: of 100,000 classes each has a share of about
1e-5, which a tolerance relative to the largest would never see.
"""

import pytest
import references
import tigon
import torch

# Aligned ones, GPT-2's, odd ones, and one more than a multiple of everything.
VOCABULARIES = [32000, 50257, 128256, 151936, 256000, 32003, 32769]
WEIGHTED = {"class_weight": True}
REPORTS = {"return_z_loss": True, "return_token_accuracy": True, "return_predicted_tokens": True}
OPTIONS = {
    "plain": {},
    "smoothing": {"label_smoothing": 0.1},
    "z-loss": {"lse_square_scale": 1e-3},
    "softcap": {"softcap": 6.0},
    "class weights": WEIGHTED,
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "z-loss reported": {"lse_square_scale": 1e-3, "return_z_loss": True},
    "accuracy": {"return_token_accuracy": True},
    "predictions": {"return_predicted_tokens": True},
    "everything": {"label_smoothing": 0.1, "lse_square_scale": 1e-3, "softcap": 6.0, **WEIGHTED, **REPORTS},
    "smoothing, weights, none": {"label_smoothing": 0.2, "reduction": "none", **WEIGHTED, **REPORTS},
    "smoothing, softcap, sum": {"label_smoothing": 0.1, "softcap": 6.0, "reduction": "sum", **REPORTS},
}
FUSED_OPTIONS = {
    **OPTIONS,
    "bias": {"bias": True},
    "token scaling": {"use_token_scaling": True},
    "f32 sums": {"accum_dtype": torch.float32},
    "bias, smoothing, scaling": {"bias": True, "label_smoothing": 0.1, "softcap": 6.0, "use_token_scaling": True},
    "bias, everything, none": {"bias": True, **OPTIONS["everything"], "reduction": "none", "chunk": 2},
}
ULP = torch.finfo(torch.float32).eps


def rows_of(device):
    return 5 if device.type == "cpu" else 70


def targets(vocabulary, rows, device):
    """Targets with the first and the last class and two ignored tokens; and the class that each row will prefer, which is
    its target in every other row."""
    target, preferred = torch.randperm(vocabulary - 3)[: 2 * rows].add(1).view(2, rows)
    target[:2] = torch.tensor([vocabulary - 1, 0])
    preferred[::2] = target[::2]
    preferred[1] = vocabulary - 2
    target[2] = target[rows - 1] = -100
    return target.to(device), preferred.to(device)


def loss_scale(dtype):
    """In f16 shares of 1e-5 lie below the normal range, so losses are scaled there. A power of two rounds nothing."""
    return 1024.0 if dtype == torch.float16 else 1.0


def as_reference(options, class_weight):
    taken = ("label_smoothing", "lse_square_scale", "softcap")
    return {"weight": class_weight, **{name: options[name] for name in taken if name in options}}


class Expected:
    """Losses and gradients of logits in f64, and the sum of what they are made of, term by term, all positive."""

    def __init__(self, logits, target, options, class_weight, scale=None):
        self.options, self.reduction = options, options.get("reduction", "mean")
        settings = as_reference(options, class_weight)
        entropy, z_loss, counts, weights = references.cross_entropy_terms(logits, target, **settings)
        scale = torch.ones_like(entropy) if scale is None else scale
        self.losses, self.z_losses, self.counts, self.scale = (entropy + z_loss) * scale, z_loss * scale, counts, scale
        number, total = counts.sum(), (weights * counts).sum()
        divisor = (total, number) if self.reduction == "mean" else (1, 1)
        self.share = [scale * counts / d for d in divisor]  # of a token's cross entropy and z-loss in the loss
        self.weights = weights
        self.loss = self._reduced(entropy, z_loss)
        self.z_loss = self._reduced(torch.zeros_like(z_loss), z_loss)
        self._measure(logits.detach(), target, class_weight)

    def _reduced(self, entropy, z_loss):
        loss = entropy * self.share[0] + z_loss * self.share[1]
        return loss if self.reduction == "none" else loss.sum()

    def _measure(self, logits, target, class_weight):
        smoothing, z = self.options.get("label_smoothing", 0.0), self.options.get("lse_square_scale", 0.0)
        cap = self.options.get("softcap")
        slope = 1.0 if cap is None else 1 - torch.tanh(logits / cap).square()
        capped = logits if cap is None else cap * torch.tanh(logits / cap)
        classes = logits.shape[-1]
        w = torch.ones(classes, dtype=logits.dtype, device=logits.device) if class_weight is None else class_weight
        lse = capped.logsumexp(-1, keepdim=True)
        p = (capped - lse).exp()
        of_target = torch.zeros_like(p).scatter_(-1, target.clamp_min(0)[:, None], 1.0)
        hard = (1 - smoothing) * self.weights[:, None] * (p + of_target)
        smooth = smoothing / classes * (w.sum() * p + w)
        self.gradient_size = slope * (
            self.share[0][:, None] * (hard + smooth) + self.share[1][:, None] * 2 * z * lse.abs() * p
        )
        # How far the loss goes with its logits, and what is added up in it.
        self.slope_of_loss = self._reduced(2 * torch.maximum(self.weights, w.mean()), 2 * z * lse[:, 0].abs())
        magnitude = (1 - smoothing) * self.weights * (lse.abs() + capped.abs().amax(-1, keepdim=True))[:, 0]
        magnitude = magnitude + smoothing / classes * (w * (lse.abs() + capped.abs())).sum(-1)
        self.loss_size = self._reduced(magnitude, z * lse[:, 0].square())


def assert_within(got, want, allowed, what):
    assert got.shape == want.shape, what
    worst = ((got.double() - want).abs() / allowed.clamp_min(1e-300)).max().item()
    assert worst <= 1, f"{what}: {worst:.2f} times what is allowed"  # also where it is NaN


def check_reports(result, expected, preferred, target, reduction, allowed):
    for name, wanted in (
        ("z_loss", "return_z_loss"),
        ("token_accuracy", "return_token_accuracy"),
        ("predicted_tokens", "return_predicted_tokens"),
    ):
        assert (getattr(result, name) is not None) == expected.options.get(wanted, False)
    if result.z_loss is not None:
        assert_within(result.z_loss, expected.z_loss.detach(), allowed, "z-loss")
    hits = (preferred == target) & expected.counts
    if result.token_accuracy is not None:
        accuracy = hits.double() if reduction == "none" else hits.sum() / expected.counts.sum()
        torch.testing.assert_close(result.token_accuracy.double(), accuracy.double(), rtol=ULP, atol=0)
    if result.predicted_tokens is not None:
        assert torch.equal(result.predicted_tokens, torch.where(expected.counts, preferred, -1))


def as_output(result):
    return tigon.ops.CrossEntropyOutput(result) if isinstance(result, torch.Tensor) else result


def upstream_of(loss, dtype):
    return torch.full_like(loss, loss_scale(dtype)) * (torch.rand_like(loss) + 0.5 if loss.dim() else 1.0)


def settings_of(options, vocabulary, device):
    """Without what is no argument of the ops; and class weights, as f32 holds them."""
    arguments = {name: value for name, value in options.items() if name not in ("class_weight", "bias")}
    class_weight = torch.rand(vocabulary, device=device) + 0.5 if options.get("class_weight") else None
    return arguments, class_weight, None if class_weight is None else class_weight.double()


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_cross_entropy(options, vocabulary, device, dtype):
    rows = rows_of(device)
    target, preferred = targets(vocabulary, rows, device)
    logits = torch.randn(rows, vocabulary, device=device)
    logits[torch.arange(rows), preferred] = 8.0
    logits = logits.to(dtype).requires_grad_()
    arguments, class_weight, wide_weight = settings_of(options, vocabulary, device)
    result = as_output(tigon.ops.cross_entropy(logits, target, weight=class_weight, **arguments))

    doubles = logits.detach().double().requires_grad_()
    expected = Expected(doubles, target, options, wide_weight)
    allowed = 8 * ULP * expected.loss_size.detach()
    assert_within(result.loss, expected.loss.detach(), allowed, "loss")
    check_reports(result, expected, preferred, target, expected.reduction, allowed)

    upstream = upstream_of(result.loss, dtype)
    (got,) = torch.autograd.grad(result.loss, logits, upstream)
    (want,) = torch.autograd.grad(expected.loss, doubles, upstream.double())
    size = expected.gradient_size * upstream.double().reshape(-1, 1)
    info = torch.finfo(dtype)
    # One rounding of the result, some of f32 on the way, and half a step where the type's numbers end.
    allowed = info.eps / 2 * want.abs() + 32 * ULP * size + info.smallest_normal * info.eps
    assert got.dtype == dtype
    assert_within(got, want, allowed, "gradient")


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("options", FUSED_OPTIONS.values(), ids=FUSED_OPTIONS)
def test_linear_cross_entropy(options, vocabulary, device, dtype):
    rows, hidden = rows_of(device), 8 if device.type == "cpu" else 64
    target, preferred = targets(vocabulary, rows, device)
    x = torch.randn(rows, hidden, device=device).to(dtype).requires_grad_()
    weight = torch.randn(vocabulary, hidden, device=device) / hidden**0.5
    weight[preferred] = 9.0 * x.detach().float() / x.detach().float().square().sum(-1, keepdim=True)
    weight = weight.to(dtype).requires_grad_()
    bias = torch.randn(vocabulary, device=device).div(8).to(dtype).requires_grad_() if options.get("bias") else None
    leaves = [x, weight] if bias is None else [x, weight, bias]
    arguments, class_weight, wide_weight = settings_of(options, vocabulary, device)
    result = as_output(tigon.ops.linear_cross_entropy(x, weight, target, bias, class_weight, **arguments))

    doubles = [t.detach().double().requires_grad_() for t in leaves]
    logits = torch.nn.functional.linear(*doubles)
    assert torch.equal(logits.argmax(-1), preferred)
    scale = None
    if options.get("use_token_scaling"):
        plain = {name: value for name, value in as_reference(options, None).items() if name == "softcap"}
        scale = (-references.cross_entropy_terms(logits.detach(), target, **plain)[0]).exp()
    expected = Expected(logits, target, options, wide_weight, scale)
    info = torch.finfo(dtype)
    # Logits are sums of f32 products, kept in the type of x, so a probability is off by that error of its logit.
    largest = logits.detach().abs().max()
    of_logit = (info.eps / 2 if dtype != torch.float32 else 4 * ULP) * largest
    of_scale = 2 * of_logit if scale is not None else 0.0
    allowed = (8 * ULP + of_scale) * expected.loss_size.detach() + of_logit * expected.slope_of_loss
    assert_within(result.loss, expected.loss.detach(), allowed, "loss")
    check_reports(result, expected, preferred, target, expected.reduction, allowed)

    upstream = upstream_of(result.loss, dtype)
    gradients = torch.autograd.grad(result.loss, leaves, upstream)
    want = torch.autograd.grad(expected.loss, doubles, upstream.double())
    size = expected.gradient_size * upstream.double().reshape(-1, 1)
    # Gradients of logits are rounded too before they enter the products.
    of_logits = (2 * of_logit + of_scale + info.eps / 2 + 32 * ULP) * size + info.smallest_normal * info.eps
    wide_x, wide_head = (t.detach().abs() for t in doubles[:2])
    for got, expect, error, name in zip(
        gradients,
        want,
        (of_logits @ wide_head, of_logits.T @ wide_x, of_logits.sum(0)),
        ("dx", "dweight", "dbias"),
        strict=False,
    ):
        assert got.dtype == dtype
        assert_within(got, expect, error + info.eps * expect.abs() + info.smallest_normal * info.eps, name)
