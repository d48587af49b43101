"""The patched forward of a causal language model: its options, and when it steps aside."""

import copy

import pytest
import tigon.transformers as tt
import torch
from tiny_models import batch, loss_and_gradients, tiny_model
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.llama import modeling_llama


@pytest.fixture
def pair():
    """A model and its patched copy."""
    model = tiny_model("llama")
    patched = copy.deepcopy(model)
    tt.apply_tigon(patched)
    return model, patched


def assert_same_step(pair, **inputs):
    (expected, expected_gradients), (got, got_gradients) = (loss_and_gradients(m, **inputs) for m in pair)
    torch.testing.assert_close(got.loss, expected.loss, rtol=2e-6, atol=1e-6)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(got_gradients[name], gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())
    return expected, got


@pytest.mark.parametrize("items", [40, torch.tensor(40)])
def test_num_items_in_batch_divides_the_sum(pair, items):
    _, got = assert_same_step(pair, **batch(), num_items_in_batch=items)
    assert got.logits is None


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("items", [0, torch.tensor(0)])
def test_a_batch_of_masked_labels_changes_nothing(items, fused):
    model = tiny_model("llama")
    tt.apply_tigon_to_llama(cross_entropy=not fused, fused_linear_cross_entropy=fused, model=model)
    inputs = batch()
    inputs["labels"].fill_(-100)
    got, gradients = loss_and_gradients(model, **inputs, num_items_in_batch=items)
    assert got.loss == 0
    assert gradients
    assert all((g == 0).all() for g in gradients.values())


def test_shift_labels_are_taken_as_they_are(pair):
    inputs = batch()
    shifted = torch.randint(0, 96, inputs["labels"].shape)
    shifted[:, 3] = -100
    assert_same_step(pair, **inputs, shift_labels=shifted)


@pytest.mark.parametrize("fused", [True, False])
def test_shift_labels_may_be_flat(fused):
    model = tiny_model("llama")
    patched = copy.deepcopy(model)
    tt.apply_tigon_to_llama(cross_entropy=not fused, fused_linear_cross_entropy=fused, model=patched)
    inputs = batch()
    assert_same_step((model, patched), **inputs, shift_labels=inputs["labels"].flatten())
    with pytest.raises(ValueError, match=r"\(23,\) for \(2, 12\) positions"):
        patched(**inputs, shift_labels=inputs["labels"].flatten()[1:])


def test_shift_labels_alone_are_labels_enough(pair):
    inputs = batch()
    labels = inputs.pop("labels")
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    expected = pair[0](**inputs, labels=labels).loss
    torch.testing.assert_close(pair[1](**inputs, shift_labels=shifted).loss, expected)


def test_ignore_index(pair):
    inputs = batch()
    inputs["labels"] = inputs["labels"].masked_fill(inputs["labels"] == -100, 7)
    assert_same_step(pair, **inputs, ignore_index=7)


@pytest.mark.parametrize("keep", [5, torch.tensor([1, 4, 5])])
def test_logits_to_keep(pair, keep):
    inputs = batch()
    kept = slice(-keep, None) if isinstance(keep, int) else keep
    assert_same_step(pair, **inputs, logits_to_keep=keep, shift_labels=inputs["labels"][:, kept].contiguous())


def slice_logits_to_keep(hidden, logits_to_keep):
    return hidden[logits_to_keep]


@pytest.mark.usefixtures("fresh_checks")
def test_logits_to_keep_by_the_function_of_transformers(monkeypatch):
    """Transformers has one since 5.21; here it takes masks alone, of positions of the whole batch."""

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        **kwargs,
    ):
        outputs = self.model(input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        logits = self.lm_head(slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep))
        loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits)

    monkeypatch.setattr(modeling_llama.LlamaForCausalLM, "forward", forward)
    monkeypatch.setattr(modeling_llama, "slice_logits_to_keep", slice_logits_to_keep, raising=False)
    model = tiny_model("llama")
    patched = copy.deepcopy(model)
    tt.apply_tigon(patched)
    inputs = batch()
    mask = torch.rand(inputs["labels"].shape) < 0.5
    _, got = assert_same_step((model, patched), **inputs, logits_to_keep=mask, shift_labels=inputs["labels"][mask])
    assert got.logits is None


def test_labels_for_other_positions_are_refused(pair):
    with pytest.raises(ValueError, match=r"\(2, 12\) for \(2, 5\) positions.*shift_labels"):
        pair[1](**batch(), logits_to_keep=5)


def test_evaluation_is_the_original(pair):
    for model in pair:
        model.eval()
    inputs = batch()
    expected, got = pair[0](**inputs), pair[1](**inputs)
    torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.loss, expected.loss)
    assert type(got) is type(expected)


def test_without_labels_there_are_logits_in_training(pair):
    got = pair[1](input_ids=batch()["input_ids"])
    assert got.loss is None
    assert got.logits.shape == (2, 12, 96)


def test_logits_in_training_when_asked(pair):
    expected, got = pair[0](**batch()), pair[1](**batch(), skip_logits=False)
    torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.loss, expected.loss)


def test_no_logits_in_evaluation_when_asked(pair):
    pair[1].eval()
    with torch.no_grad():
        got = pair[1](**batch(), skip_logits=True)
    assert got.logits is None
    torch.testing.assert_close(got.loss, pair[0](**batch()).loss)
    with pytest.raises(ValueError, match="without labels"):
        pair[1](input_ids=batch()["input_ids"], skip_logits=True)


def test_generation(pair):
    ids = batch()["input_ids"]
    assert torch.equal(*(m.eval().generate(ids, max_new_tokens=6, do_sample=False) for m in pair))


def test_padding(pair):
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, :3] = 0
    assert_same_step(pair, **batch(), attention_mask=mask)


def test_tuples(pair):
    loss, *_ = pair[1](**batch(), return_dict=False)
    torch.testing.assert_close(loss, pair[0](**batch()).loss)


def test_positional_arguments(pair):
    inputs = batch()
    loss = pair[1](inputs["input_ids"], None, None, None, None, inputs["labels"]).loss
    torch.testing.assert_close(loss, pair[0](**inputs).loss)


def test_hidden_states_when_asked(pair):
    expected, got = (m(**batch(), output_hidden_states=True) for m in pair)
    assert len(got.hidden_states) == len(expected.hidden_states)
    torch.testing.assert_close(got.hidden_states[-1], expected.hidden_states[-1], rtol=1e-4, atol=1e-5)


def test_token_accuracy_and_predictions(pair):
    logits = pair[0](**batch()).logits
    got = pair[1](**batch(), return_token_accuracy=True, return_predicted_tokens=True)
    target = batch()["labels"][:, 1:]
    counted = target != -100
    right = (logits[:, :-1].argmax(-1) == target) & counted
    torch.testing.assert_close(got.token_accuracy, right.sum() / counted.sum())
    assert torch.equal(got.predicted_tokens[:, :-1][counted], logits[:, :-1].argmax(-1)[counted])


def test_a_loss_of_the_users_own_is_respected(pair):
    for model in pair:
        model.loss_function = lambda logits, labels, vocab_size, **_: logits.square().mean()
    _, got = assert_same_step(pair, **batch())
    assert got.logits is not None


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(pair, reentrant):
    for model in pair:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert_same_step(pair, **batch())


def test_gradients_accumulate(pair):
    for model in pair:
        for seed in (1, 2, 3):
            (model(**batch(seed=seed), num_items_in_batch=50).loss).backward()
    for expected, got in zip(*(m.parameters() for m in pair), strict=True):
        torch.testing.assert_close(got.grad, expected.grad, rtol=1e-4, atol=1e-5 * expected.grad.abs().max().item())


def test_only_the_head_is_trained(pair):
    for model in pair:
        model.model.requires_grad_(False)
    assert_same_step(pair, **batch())
    assert pair[1].lm_head.weight.grad is not None


def test_only_the_backbone_is_trained(pair):
    for model in pair:
        model.lm_head.requires_grad_(False)
    assert_same_step(pair, **batch())


def test_autocast(pair):
    with torch.autocast("cpu", torch.bfloat16):
        (expected, _), (got, gradients) = (loss_and_gradients(m, **batch()) for m in pair)
    assert got.loss.dtype == torch.float32
    torch.testing.assert_close(got.loss, expected.loss, rtol=1e-2, atol=0)
    assert all(g.dtype == torch.float32 for g in gradients.values())


def test_compiles_whole(pair):
    inputs = batch()
    _, expected_gradients = loss_and_gradients(pair[0], **inputs)
    compiled = torch.compile(pair[1], fullgraph=True, backend="aot_eager")
    compiled(**inputs).loss.backward()
    for name, parameter in pair[1].named_parameters():
        gradient = expected_gradients[name]
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())
