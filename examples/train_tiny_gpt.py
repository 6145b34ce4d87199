"""Trains a tiny GPT on the CPU on the rows of a finished run. Needs torch.

Make a run first, of rows of a fixed length:

    gristmill tokenize corpus/ -t path/to/tokenizer -o shards --format parquet --sequence-length 64
    python examples/train_tiny_gpt.py shards --steps 100

Run it again with the same --state FILE and it goes on with the rows that it has not seen; a job of several
ranks passes its rank and world size to `loader`, and may have another number of ranks each time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import gristmill

WIDTH, HEADS, LAYERS = 64, 4, 2
MOST_LOGITS = 1 << 26
"""Of a batch: a number for each place and token of the vocabulary, which is most of the memory."""


class Block(nn.Module):
    """Attention to what came before, then a layer for each place alone."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_layer = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.layer = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.query_key_value(self.before_attention(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.layer(self.before_layer(x))


class TinyGPT(nn.Module):
    """A vocabulary, places, a few blocks."""

    def __init__(self, vocab_size: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab_size, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocab_size))

    def forward(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.tokens(ids) + self.places(places)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a finished run of rows, best of 64 tokens")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, help="default: 16 rows, or fewer where they are long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--state", type=Path, help="where the loader's place is kept from one time to the next"
    )
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    dataset = gristmill.open(arguments.run, columns=["input_ids", "labels", "position_ids"])
    fitting = MOST_LOGITS // (dataset.row_length * dataset.vocab_size)
    batch_size = arguments.batch_size or min(16, max(1, fitting))
    loader = dataset.loader(seed=arguments.seed, batch_size=batch_size)
    if arguments.state and arguments.state.exists():
        loader.load_state(json.loads(arguments.state.read_text()))
    model = TinyGPT(dataset.vocab_size, dataset.row_length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0
    while step < arguments.steps:
        for batch in loader:  # to the end of an epoch; the next loop is the next epoch, in another order
            ids, labels, places = (torch.from_numpy(batch[name]) for name in dataset.columns)
            logits = model(ids, places)
            # Labels are the ids, -100 on padding: the token that follows is what is to be guessed.
            loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 1 or step == arguments.steps:
                print(f"step {step}  epoch {loader.epoch}  loss {loss.item():.3f}", flush=True)
            if step == arguments.steps:
                break
    if arguments.state:
        arguments.state.write_text(json.dumps(loader.state()))


if __name__ == "__main__":
    main()
