"""Files -> documents: what there is to read, the slices it can be read in, and their documents."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from gristmill.config import ReadConfig
from gristmill.hub.names import is_pinned
from gristmill.read.ahead import read_ahead
from gristmill.read.at_hand import at_hand
from gristmill.read.blocks import Batches, Blocks, split_batches
from gristmill.read.fields import text_paths
from gristmill.read.find import Listing, find_inputs, list_inputs
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.slices import slice_file
from gristmill.read.storage import describe_file, is_remote, open_input, unreadable

__all__ = [
    "READERS",
    "Blocks",
    "InputFile",
    "Listing",
    "Slice",
    "at_hand",
    "describe_file",
    "find_inputs",
    "is_pinned",
    "is_remote",
    "list_inputs",
    "open_input",
    "read_slice",
    "slice_file",
    "text_paths",
    "unreadable",
]

Reader = Callable[[InputFile, Slice, ReadConfig, Blocks], Batches]


def _reader(name: str) -> Reader:
    """A reader whose module is imported when it is used: pyarrow takes a tenth of a second, and 37 MB."""
    return lambda *arguments: getattr(import_module(f"gristmill.read.{name}"), f"read_{name}")(*arguments)


READERS: dict[str, Reader] = {name: _reader(name) for name in ("jsonl", "parquet", "arrow", "csv", "text")}


def read_slice(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of a slice in order; a bad file raises `BadFileError` after those before the fault."""
    batches = READERS[file.format](at_hand(file, config), part, config, blocks)
    if blocks.max_documents is not None:
        batches = split_batches(batches, blocks.max_documents)
    return read_ahead(batches) if blocks.read_ahead else batches
