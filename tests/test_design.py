"""docs/design.md and docs/formats.md name what the code has: every reason, layer, option and file."""

import json
import re
import struct
import zlib
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from gristmill.config import Column, OutputFormat, PackMode
from gristmill.training.counting import PieceCounter
from gristmill.training.cut import cut_of
from test_layers import LEVEL

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
FORMATS = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "src" / "gristmill").rglob("*.py"))
)
READ_BINDINGS = (ROOT / "native" / "bindings" / "read.cpp").read_text(encoding="utf-8")
SHOWN_ELSEWHERE = {"__init__", "__main__", "_native", "bench_methods", "bench_worker", "bench_report"}
SHOWN_ELSEWHERE |= {"stopwatch", "unicode_data"}


def reasons():
    """Every reason for which code sets a record or a file apart."""
    found = set(re.findall(r'BadFileError\(\s*"(\w+)"', SOURCES))
    found |= set(re.findall(r'BadDocument\([^"]*?"(\w+)"', SOURCES))
    found |= set(re.findall(r'\("(too_large|bad_utf8|empty)",', SOURCES))
    found |= set(re.findall(r'reason = "(\w+)" if', SOURCES))
    found |= set(re.findall(r'reason = .* else "(\w+)"', SOURCES))
    (native,) = re.findall(r'for \(const char\* name : \{"", (.*?)\}\)', READ_BINDINGS)
    return found | set(re.findall(r'"(\w+)"', native))


def test_every_reason_is_explained():
    assert len(reasons()) >= 15
    assert {reason for reason in reasons() if f"`{reason}`" not in DESIGN} == set()


def test_every_layer_is_in_the_picture():
    picture = re.search(r"^```\n(cli, cli_run.*?)^```", DESIGN, flags=re.MULTILINE | re.DOTALL)[1]
    named = set(re.findall(r"\w+", picture))
    assert set(LEVEL) - SHOWN_ELSEWHERE - named == set()


@pytest.mark.parametrize("mode", get_args(PackMode))
def test_every_mode_is_explained(mode):
    assert f"- **{mode}**:" in DESIGN


@pytest.mark.parametrize("name", [*get_args(OutputFormat), *get_args(Column)])
def test_every_format_and_column_is_laid_out(name):
    assert re.search(rf"^### {name}$|^\*\*{name}\*\*|^\| `{name}`", FORMATS, flags=re.MULTILINE)


def test_an_inventory_begins_and_ends_as_the_page_says(tmp_path):
    counter = PieceCounter(cut_of("gpt2"), tmp_path, max_bytes=1 << 20)
    text = np.frombuffer(b"to be or not to be", np.uint8)
    counter.add(text, np.array([0, len(text)], np.int64))
    counter.finish(tmp_path / "a.pieces")
    content = (tmp_path / "a.pieces").read_bytes()
    version, size = struct.unpack_from("<II", content, 8)
    assert (content[:8], content[-8:], version) == (b"GMPIECES", b"GMPIECES", 1)
    assert json.loads(content[16 : 16 + size])["splits"]
    (checksum,) = struct.unpack_from("<I", content, 16 + size)
    assert checksum == zlib.crc32(content[: 16 + size])
    num_payload, num_pieces = struct.unpack_from("<II", content, 20 + size)
    footer = struct.unpack_from("<6QI", content, len(content) - 60)
    assert footer[:6] == (5, 6, sum(map(len, ("to", " be", " or", " not", " to"))), 4, 0, 0)
    assert num_pieces == 5
    payload = content[28 + size : 28 + size + num_payload]
    assert payload.startswith(b"\x03 be\x02")
    assert len(content) == 28 + size + num_payload + 4 + 60


def test_every_option_a_document_names_exists():
    options = set(re.findall(r"`(\w+\.\w+)` \|", (ROOT / "docs" / "options.md").read_text(encoding="utf-8")))
    sections = {option.split(".")[0] for option in options}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages if path.stem != "perf-log")
    named = set(re.findall(rf"`((?:{'|'.join(sections)})\.[a-z_]+)", text))
    assert len(named) > 10
    files = {name for name in named if name.endswith((".json", ".py", ".model"))}
    assert named - files <= options
