"""Trains a tiny GPT-2 with the Trainer of transformers, on the rows of a finished run.

Needs transformers, torch and accelerate.

Make a run first, of rows of a fixed length:

    gristmill tokenize corpus/ -t path/to/tokenizer -o shards --format parquet --sequence-length 64
    python examples/train_with_transformers.py shards --steps 100
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import gristmill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a finished run of rows; seconds with rows of 64")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()

    dataset = gristmill.open(arguments.run, columns=["input_ids", "labels", "attention_mask"])
    config = GPT2Config(
        vocab_size=dataset.vocab_size, n_positions=dataset.row_length, n_embd=64, n_layer=2, n_head=4
    )
    with tempfile.TemporaryDirectory() as output:
        training = TrainingArguments(
            output_dir=output,
            max_steps=arguments.steps,
            per_device_train_batch_size=arguments.batch_size,
            learning_rate=3e-3,
            logging_steps=10,
            logging_first_step=True,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model=GPT2LMHeadModel(config), args=training, train_dataset=dataset)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"loss {float(losses[0]):.3f} at first, {float(losses[-1]):.3f} after {arguments.steps} steps")


if __name__ == "__main__":
    main()
