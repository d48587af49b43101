"""The head's weight is read only during the head's call, and through its hooks: what sharded training relies on."""

import copy

import pytest
import tigon.transformers as tt
import torch
from tigon.transformers import _lm_head
from tiny_models import batch, loss_and_gradients, tiny_model


class Partitioned:
    """Does to a layer's weight what DeepSpeed ZeRO-3 does: gathers it before the call, and again before its backward;
    releases it after each. In between the parameter is empty."""

    def __init__(self, layer):
        self.layer, self.whole = layer, layer.weight.detach().clone()
        self.gathered = 0
        layer.register_forward_pre_hook(lambda *_: self.gather())
        layer.register_forward_hook(self.after_forward)
        layer.weight.register_post_accumulate_grad_hook(self.after_backward)
        self.release()

    def gather(self):
        self.gathered += 1
        self.layer.weight.data = self.whole

    def release(self):
        self.layer.weight.data = torch.empty(0)

    def after_forward(self, layer, args, output):
        outputs = output if isinstance(output, tuple) else (output,)
        for tensor in outputs:
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda gradient: self.gather())
        self.release()

    def after_backward(self, parameter):
        self.release()


@pytest.mark.parametrize("options", [{}, {"return_token_accuracy": True}])
def test_partitioned_weight(options):
    model = tiny_model("llama")
    expected, expected_gradients = loss_and_gradients(model, **batch())
    tt.apply_tigon(model)
    partitioned = Partitioned(model.lm_head)
    got, gradients = loss_and_gradients(model, **batch(), **options)
    assert got.logits is None
    assert partitioned.gathered == 2  # forward and backward
    torch.testing.assert_close(got.loss, expected.loss)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())


def test_the_heads_forward_is_back_after_the_call():
    model = tiny_model("llama")
    tt.apply_tigon(model)
    model.lm_head.register_forward_pre_hook(lambda *_: None)
    before = dict(vars(model.lm_head))
    model(**batch())
    assert dict(vars(model.lm_head)) == before
    with pytest.raises(ValueError, match="positions"):
        model(**batch(), logits_to_keep=3)
    assert dict(vars(model.lm_head)) == before


def test_without_hooks_the_head_is_left_alone(monkeypatch):
    """Threads may share a model, and would see each other's exchange."""
    model = tiny_model("llama")
    tt.apply_tigon(model)
    monkeypatch.setattr(_lm_head, "_forward_exchanged", None)
    assert model(**batch()).logits is None


def test_weights_that_accelerate_moves():
    """accelerate keeps offloaded weights on the meta device and brings them in by wrapping forward."""
    accelerate = pytest.importorskip("accelerate")
    model = tiny_model("llama")
    patched = copy.deepcopy(model)
    expected = model(**batch()).loss
    accelerate.cpu_offload(patched, execution_device="cpu")
    assert patched.lm_head.weight.is_meta
    tt.apply_tigon(patched)
    with torch.no_grad():
        got = patched(**batch())
    assert got.logits is None
    torch.testing.assert_close(got.loss, expected)
    assert patched.lm_head.weight.is_meta


def test_a_head_that_is_not_a_plain_linear_layer():
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = tiny_model("llama")
    head = Doubled(32, 96, bias=False)
    head.load_state_dict(model.lm_head.state_dict())
    model.lm_head = head
    expected = model(**batch()).loss
    tt.apply_tigon(model)
    got = model(**batch())
    torch.testing.assert_close(got.loss, expected)
    assert got.logits is not None


class Quantised(torch.Tensor):
    """As torchao's weights: of a class of its own inside an ordinary nn.Linear, able to multiply and not much else."""

    @staticmethod
    def __new__(cls, numbers, scale):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype)

    def __init__(self, numbers, scale):
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self):
        return ["numbers", "scale"], None

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.linear:
            x, weight, *_ = args
            return x @ (weight.numbers * weight.scale).T
        return super().__torch_function__(function, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scale)
        raise NotImplementedError(f"{function} of a quantised weight")


def test_a_quantised_head():
    model = tiny_model("llama")
    scale = model.lm_head.weight.abs().max() / 127
    numbers = (model.lm_head.weight / scale).round().to(torch.int8)
    model.lm_head.weight = torch.nn.Parameter(Quantised(numbers, scale.detach()), requires_grad=False)
    expected, expected_gradients = loss_and_gradients(model, **batch())
    tt.apply_tigon(model)
    got, gradients = loss_and_gradients(model, **batch())
    assert got.logits is not None
    torch.testing.assert_close(got.loss, expected.loss)
    assert gradients.keys() == expected_gradients.keys()


def test_a_head_with_a_bias():
    model = tiny_model("llama")
    model.lm_head = torch.nn.Linear(32, 96)
    expected, expected_gradients = loss_and_gradients(model, **batch())
    tt.apply_tigon(model)
    got, gradients = loss_and_gradients(model, **batch())
    assert got.logits is None
    torch.testing.assert_close(got.loss, expected.loss)
    torch.testing.assert_close(gradients["lm_head.bias"], expected_gradients["lm_head.bias"], rtol=1e-4, atol=1e-6)
