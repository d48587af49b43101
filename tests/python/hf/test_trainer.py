"""Hugging Face's Trainer with gradient accumulation: its num_items_in_batch reaches the patched loss."""

import pytest
import tigon.transformers as tt
import torch
from tiny_models import VOCAB, tiny_model

pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")


def rows():
    """Rows of different numbers of labels, so that a mean of means would be another number."""
    generator = torch.Generator().manual_seed(2)
    for row in range(24):
        ids = torch.randint(3, VOCAB, (16,), generator=generator)
        labels = ids.clone()
        labels[: row % 13] = -100
        yield {"input_ids": ids, "labels": labels}


def train(tmp_path, patched, **settings):
    model = tiny_model("llama")
    if patched:
        tt.apply_tigon(model)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=3,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        seed=0,
        **settings,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=list(rows()), eval_dataset=list(rows())[:4]
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, trainer.evaluate()["eval_loss"], model


@pytest.mark.parametrize("settings", [{}, {"gradient_checkpointing": True}], ids=["plain", "checkpointing"])
def test_trainer(tmp_path, settings):
    expected_losses, expected_evaluation, expected = train(tmp_path, patched=False, **settings)
    losses, evaluation, model = train(tmp_path, patched=True, **settings)
    assert losses == pytest.approx(expected_losses, rel=1e-4)  # the log rounds to four places
    assert evaluation == pytest.approx(expected_evaluation, rel=1e-4)
    for got, want in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
