"""JSON Lines -> documents: blocks of whole lines, parsed by the native core."""

from __future__ import annotations

from gristmill.batch import BadDocument, DocumentBatch
from gristmill.config import ReadConfig
from gristmill.engines import Bytes
from gristmill.read.blocks import Batches, Blocks
from gristmill.read.documents import EXCERPT_BYTES, show_excerpt, too_large
from gristmill.read.fields import id_path, text_paths
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.lines import line_blocks
from gristmill.read.slow_jsonl import parse_json_lines


def read_jsonl(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of the lines that begin in the slice."""
    num_records = 0
    for block in line_blocks(file, part, blocks):
        if block.kind == "rest":
            continue
        if block.kind == "too_large":
            batch = too_large(block, num_records, blocks)
        else:
            batch = _parse_block(block.content, block.position, num_records, config)
        num_records += batch.num_records
        yield batch


def _parse_block(content: Bytes, position: int, record: int, config: ReadConfig) -> DocumentBatch:
    text, offsets, lines, positions, names, bad, num_lines = parse_json_lines(
        content, text_paths(config), config.join.encode(), id_path(config)
    )
    return DocumentBatch(
        text=text,
        offsets=offsets,
        records=lines + record,
        positions=positions + position,
        names=names,
        bad=tuple(
            BadDocument(line + record, start + position, reason, detail, _line_excerpt(content, start))
            for line, start, reason, detail in bad
        ),
        num_records=num_lines,
        num_bytes=len(content),
    )


def _line_excerpt(content: Bytes, start: int) -> str:
    line = content[start : start + EXCERPT_BYTES].tobytes().split(b"\n", 1)[0]
    return show_excerpt(line)
