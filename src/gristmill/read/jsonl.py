"""JSON Lines -> documents: blocks of whole lines, parsed by the native core."""

from __future__ import annotations

from msgspec.structs import replace

from gristmill import _native
from gristmill.batch import BadDocument, DocumentBatch
from gristmill.config import ReadConfig
from gristmill.engines import Bytes
from gristmill.read.blocks import Batches, Blocks, RecordBlock
from gristmill.read.documents import EXCERPT_BYTES, show_excerpt, too_large
from gristmill.read.fields import id_path, text_paths
from gristmill.read.inputs import InputFile, Slice
from gristmill.read.lines import find_line_end, line_blocks

BOM = b"\xef\xbb\xbf"
JSON_ARRAY = "the file looks like a JSON array; JSON Lines, one object a line, is needed"
MAX_BAD = 1 << 14
"""In a batch: a bad line takes far more memory than the two bytes it may stand in."""


def read_jsonl(file: InputFile, part: Slice, config: ReadConfig, blocks: Blocks) -> Batches:
    """Documents of the lines that begin in the slice."""
    num_records = 0
    for block in line_blocks(file, part, blocks):
        if block.kind == "too_large":
            yield _explain_array(too_large(block, num_records, blocks))
            num_records += 1
        elif block.kind == "records":
            for batch in _parse_block(block, config, num_records):
                num_records += batch.num_records
                yield _explain_array(batch)


def _explain_array(batch: DocumentBatch) -> DocumentBatch:
    """A file that begins with a bracket is most likely one array, and no line of it will do."""
    if not batch.bad or batch.bad[0].position > len(BOM) or not batch.bad[0].excerpt.startswith("["):
        return batch
    first = batch.bad[0]
    first = first._replace(detail=f"{first.detail}; {JSON_ARRAY}")
    return replace(batch, bad=(first, *batch.bad[1:]))


def _parse_block(block: RecordBlock, config: ReadConfig, record: int) -> Batches:
    start = 0
    while start < len(block.content):
        batch = _parse_lines(block.content[start:], block.position + start, record, config)
        if len(batch.bad) == MAX_BAD:
            line_start = batch.bad[-1].position - block.position
            stop = find_line_end(block.content, line_start)
            batch = replace(batch, num_bytes=stop - start)
        start += batch.num_bytes
        record += batch.num_records
        yield batch


def _parse_lines(content: Bytes, position: int, record: int, config: ReadConfig) -> DocumentBatch:
    text, offsets, lines, positions, names, bad, num_lines = _native.parse_json_lines(
        content, text_paths(config), config.join.encode(), id_path(config), MAX_BAD
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
