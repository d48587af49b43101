"""8-bit states of tigon.optim.AdamW, and so of the trainer's adamw8, against bitsandbytes, element by element."""

import pytest
import tigon
import torch
from two_layers import OPTIONS, gradients_of, make_weights

functional = pytest.importorskip("bitsandbytes.functional")  # ./scripts/test installs it


def quantized(values, table):
    """Codes and scales. bitsandbytes' operator for f32 on CPUs cuts values to 16 bits first and loses what is below 2^-16 of
    a block's largest; that for f64 takes the nearest entry, as its kernels for GPUs do."""
    codes, scales = torch.ops.bitsandbytes.quantize_blockwise(values.double(), table, 256)
    return codes, scales.float()


class BitsandbytesAdamW:
    """AdamW8bit, out of bitsandbytes' own tables and block-wise operators: it has no 8-bit optimizer for CPUs."""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        self.parameters = [p.detach().clone() for p in parameters]
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.maps = [functional.create_dynamic_map(signed=signed) for signed in (True, False)]
        self.steps = 0
        # Codes and scales of m and v, at zero.
        self.states = [
            [(torch.full(p.shape, zero, dtype=torch.uint8), torch.zeros((p.numel() + 255) // 256)) for zero in (127, 0)]
            for p in parameters
        ]

    def _stored(self, codes, scales, which):
        return functional.dequantize_blockwise(codes, absmax=scales, code=self.maps[which], blocksize=256)

    def step(self, gradients):
        self.steps += 1
        beta1, beta2 = self.betas
        correction1, correction2 = 1 - beta1**self.steps, 1 - beta2**self.steps
        for i, (p, g) in enumerate(zip(self.parameters, gradients, strict=True)):
            m, v = (self._stored(*self.states[i][which], which) for which in (0, 1))
            m = m * beta1 + (1 - beta1) * g
            v = v * beta2 + (1 - beta2) * g * g
            p *= 1 - self.lr * self.weight_decay
            p -= self.lr / correction1 * (m / (v.sqrt() / correction2**0.5 + self.eps))
            for which, moment in enumerate((m, v)):
                self.states[i][which] = quantized(moment, self.maps[which])


def test_8_bits_are_bitsandbytes_step_by_step():
    """Each of ten steps from the same states: every code, scale and weight."""
    ours = [torch.nn.Parameter(w) for w in make_weights()]
    optimizer, theirs = tigon.optim.AdamW(ours, state="int8", **OPTIONS), BitsandbytesAdamW(ours, **OPTIONS)
    for step in range(10):
        _, gradients = gradients_of(ours, step)
        for p, g in zip(ours, gradients, strict=True):
            p.grad = g
        optimizer.step()
        theirs.step(gradients)
        for i, p in enumerate(ours):
            torch.testing.assert_close(p.detach(), theirs.parameters[i], rtol=1e-6, atol=1e-7)
            state = optimizer.state[p]
            for which, name in enumerate(("exp_avg", "exp_avg_sq")):
                codes, scales = theirs.states[i][which]
                torch.testing.assert_close(state[name + "_scale"], scales, rtol=1e-6, atol=0)
                # f32 sums differ in their last bit, and so may what is just between two entries.
                difference = (state[name].int() - codes.int()).abs()
                assert difference.max() <= 1
                assert difference.sum() <= codes.numel() // 2000, (step, name)
                theirs.states[i][which] = (state[name].clone(), state[name + "_scale"].clone())
            theirs.parameters[i].copy_(p.detach())


def test_8_bits_learn_as_bitsandbytes():
    """Ten steps, each on its own."""
    ours = [torch.nn.Parameter(w) for w in make_weights()]
    optimizer, theirs = tigon.optim.AdamW(ours, state="int8", **OPTIONS), BitsandbytesAdamW(ours, **OPTIONS)
    for step in range(10):
        loss, gradients = gradients_of(ours, step)
        expected, their_gradients = gradients_of([p.requires_grad_() for p in theirs.parameters], step)
        assert loss == pytest.approx(expected, rel=1e-4)
        for p, g in zip(ours, gradients, strict=True):
            p.grad = g
        optimizer.step()
        with torch.no_grad():
            theirs.step(their_gradients)
    for p, q in zip(ours, theirs.parameters, strict=True):
        # A few weights have had a code on the other side of a tie, which moves them by a part of the learning rate.
        torch.testing.assert_close(p.detach(), q.detach(), rtol=0, atol=2 * OPTIONS["lr"])
        assert (p.detach() - q.detach()).abs().mean() < 1e-6


def test_every_number_of_8_bits_is_bitsandbytes():
    """With both betas 0 m becomes the gradient: all entries, their middles, and what lies around those."""
    table = functional.create_dynamic_map(signed=True)
    middles = (table[1:] + table[:-1]) / 2
    values = torch.cat([table, middles, middles.nextafter(torch.tensor(2.0)), middles.nextafter(torch.tensor(-2.0))])
    values = torch.cat([values, 10 ** (-9 * torch.rand(20000)) * torch.randn(20000).sign()])
    values = values[: values.numel() // 255 * 255].reshape(-1, 255)
    values = torch.cat([values, torch.ones(values.shape[0], 1)], dim=1).reshape(-1)  # the largest of each block
    p = torch.nn.Parameter(torch.zeros_like(values))
    p.grad = values
    optimizer = tigon.optim.AdamW([p], betas=(0.0, 0.0), state="int8")
    optimizer.step()
    codes = optimizer.state[p]["exp_avg"]
    # What bitsandbytes' kernels take: the first entry whose middle with the next is not exceeded.
    assert torch.equal(codes.int(), torch.bucketize(values, middles).int())
    stored = functional.dequantize_blockwise(
        codes, absmax=optimizer.state[p]["exp_avg_scale"], code=table, blocksize=256
    )
    exact, scales = quantized(values, table)
    different = codes != exact  # at ties: distances in f32 are equal where values are not
    assert different.sum() < 1000
    assert ((stored - values).abs() <= (table[exact.long()] - values).abs() + 1e-7)[different].all()
    assert torch.equal(scales, optimizer.state[p]["exp_avg_scale"])
