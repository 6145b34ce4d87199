"""A process that encodes with a Python tokenizer, until its input ends."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any, BinaryIO

import msgspec
import numpy as np

from gristmill.causal.opening import open_class
from gristmill.causal.pool import Failed, Ids, Open, Opened, Part, write_all
from gristmill.errors import GristmillError
from gristmill.tokenizer import Tokenizer

GARBAGE_EVERY = 100_000
"""Objects made between two looks for garbage: an encoder makes millions, and hardly any in cycles."""


def main() -> None:
    """Serve until standard input ends; whatever is printed goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    orders = sys.stdin.buffer
    try:
        named = msgspec.json.decode(orders.readline(), type=Open)
        tokenizer = open_class(named.source, named.class_name)
    except GristmillError as error:
        _answer(answers, Failed(type(error).__name__, str(error)))
        return
    gc.freeze()
    gc.set_threshold(GARBAGE_EVERY)
    _answer(answers, Opened(tokenizer.fingerprint))
    while line := orders.readline():
        encode_part(tokenizer, msgspec.json.decode(line, type=Part), orders, answers)


def encode_part(tokenizer: Tokenizer, part: Part, orders: BinaryIO, answers: Any) -> None:
    """Read documents, answer with their ids."""
    offsets = np.frombuffer(orders.read(8 * (part.num_documents + 1)), np.int64)
    text = np.frombuffer(orders.read(part.num_bytes), np.uint8)
    try:
        tokens = tokenizer.encode_batch((text, offsets), special_tokens=part.special_tokens)
    except GristmillError as error:
        _answer(answers, Failed(type(error).__name__, str(error)))
        return
    _answer(answers, Ids(len(tokens), len(tokens.ids)))
    write_all(answers, tokens.offsets.data.cast("B"))
    write_all(answers, tokens.ids.data.cast("B"))


def _answer(answers: Any, message: Opened | Ids | Failed) -> None:
    write_all(answers, msgspec.json.encode(message) + b"\n")
