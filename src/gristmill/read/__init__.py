"""Files -> documents: what there is to read, the slices it can be read in, and their documents."""

from __future__ import annotations

from collections.abc import Callable

from gristmill.config import ReadConfig
from gristmill.read.ahead import read_ahead
from gristmill.read.arrow import read_arrow
from gristmill.read.blocks import Batches, Blocks
from gristmill.read.csv import read_csv
from gristmill.read.fields import text_paths
from gristmill.read.find import list_inputs
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.jsonl import read_jsonl
from gristmill.read.parquet import read_parquet
from gristmill.read.slices import slice_file
from gristmill.read.storage import describe_file, open_input
from gristmill.read.text import read_text

__all__ = [
    "READERS",
    "Blocks",
    "InputFile",
    "Slice",
    "describe_file",
    "list_inputs",
    "open_input",
    "read_slice",
    "slice_file",
    "text_paths",
]

Reader = Callable[[InputFile, Slice, ReadConfig, Blocks], Batches]
READERS: dict[str, Reader] = {
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "csv": read_csv,
    "text": read_text,
}


def read_slice(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of a slice in order; a bad file raises `BadFileError` after those before the fault."""
    batches = READERS[file.format](file, part, config, blocks)
    return read_ahead(batches) if blocks.read_ahead else batches
