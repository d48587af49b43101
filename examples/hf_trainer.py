#!/usr/bin/env python3
"""Hugging Face's Trainer with gradient accumulation and checkpointing; the model is patched in one line."""

import tempfile

from tigon.transformers import apply_tigon
from tiny_llama import Counting, tiny_llama
from transformers import Trainer, TrainingArguments


def main() -> list[float]:
    model = tiny_llama()
    apply_tigon(model)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            learning_rate=3e-3,
            max_steps=30,
            logging_steps=10,
            report_to=[],
            save_strategy="no",
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Counting())
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    print(*main())
