"""Compressed files: all of a good one, and of a damaged one all before the fault, whatever the block size."""

import bz2
import gzip
import io
import lzma
import struct
import zlib

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill.errors import BadFileError
from gristmill.read.codecs import FED_BYTES, decode_file
from reading import BLOCKS, peak_bytes, read_all, write

CODECS = {
    ".gz": ("gzip", gzip.compress),
    ".zst": ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress),
    ".bz2": ("bz2", bz2.compress),
    ".xz": ("xz", lzma.compress),
}
SUFFIXES = list(CODECS)
LINES = [f"line {number}: {'é' * (number % 50)}" for number in range(4000)]
CONTENT = "\n".join(LINES).encode()
PADDED = {".gz", ".xz"}
"""Zeros after the end are padding there."""


def test_what_needs_much_memory_to_be_decompressed_is_no_damage_and_has_a_remedy():
    wide = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    zstd = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    xz = lzma.compress(CONTENT, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}])
    for compression, content in (("zstd", zstd.compress(CONTENT) + zstd.flush()), ("xz", xz)):
        with pytest.raises(BadFileError, match=rf"{compression}: needs .* MiB.*write it anew") as raised:
            list(decode_file(io.BytesIO(content), compression))
        assert raised.value.reason == "large_window"


def decode(content, suffix):
    pieces, fault = [], None
    try:
        pieces += decode_file(io.BytesIO(content), CODECS[suffix][0])
    except BadFileError as error:
        fault = error.reason
    return b"".join(pieces), fault


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_compressed_file_has_the_documents_of_the_plain_one(tmp_path, suffix):
    plain = read_all(write(tmp_path, "a.txt", CONTENT), document="line")
    packed = read_all(write(tmp_path, f"a.txt{suffix}", CODECS[suffix][1](CONTENT)), document="line")
    assert plain.texts == LINES
    assert packed == plain


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_members_that_follow_each_other_are_one_file(suffix):
    compress = CODECS[suffix][1]
    assert decode(compress(b"a" * FED_BYTES) + compress(b"") + compress(b"b"), suffix) == (
        b"a" * FED_BYTES + b"b",
        None,
    )


def test_a_skippable_frame_and_one_without_checksum_or_size_are_read():
    skippable = struct.pack("<II", 0x184D2A53, 70_000) + bytes(70_000)
    bare = zstandard.ZstdCompressor(write_content_size=False).compress(CONTENT)
    assert decode(skippable + bare + skippable, ".zst") == (CONTENT, None)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("num_zeros", [1, 4, 3 * FED_BYTES])
def test_zeros_after_the_end_are_padding_where_the_format_says_so(suffix, num_zeros):
    content, fault = decode(CODECS[suffix][1](CONTENT) + bytes(num_zeros), suffix)
    assert content == CONTENT
    assert (fault is None) == (suffix in PADDED)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_garbage_after_the_end_is_corrupt_and_nothing_before_it_is_lost(tmp_path, suffix):
    path = write(
        tmp_path, f"a.txt{suffix}", CODECS[suffix][1](CONTENT + b"\n") + b"no member begins like this"
    )
    found = read_all(path, document="line")
    assert found.texts == LINES
    assert found.fault[0] == "corrupt"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_ends_early_gives_its_whole_lines_and_is_truncated(tmp_path, suffix):
    path = write(tmp_path, f"a.txt{suffix}", CODECS[suffix][1](CONTENT)[:-3])
    for block_bytes in (1 << 20, 1000, 7):
        found = read_all(path, document="line", blocks=BLOCKS._replace(block_bytes=block_bytes))
        assert found.fault[0] == "truncated"
        # The last line is there as far as is known, but not whether more of it followed.
        assert found.texts == LINES[:-1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.data())
def test_damage_anywhere_gives_a_prefix_that_no_block_size_changes(tmp_path, data):
    suffix = data.draw(st.sampled_from(SUFFIXES))
    content = bytearray(CODECS[suffix][1](CONTENT))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = write(tmp_path, f"a.txt{suffix}", bytes(content))
    small, large = (
        read_all(path, document="line", blocks=BLOCKS._replace(block_bytes=block_bytes))
        for block_bytes in (997, 1 << 20)
    )
    assert small == large
    # zstd checks at the end of a frame only, so that the lines themselves may be wrong by then.
    assert small.fault is not None or small.texts == LINES


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_bomb_is_unpacked_in_small_steps(tmp_path, suffix):
    path = write(tmp_path, f"a.txt{suffix}", CODECS[suffix][1](bytes(64 << 20)))
    with peak_bytes() as peak:
        found = read_all(path, document="line", blocks=BLOCKS._replace(block_bytes=1 << 16))
        assert peak() < 16 << 20
    assert found.reasons == ["too_large"]


def test_an_xz_file_that_wants_gigabytes_is_refused():
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 24}]
    content = bytearray(lzma.compress(b"text", filters=filters, check=lzma.CHECK_NONE))
    start = content.index(b"\x21\x01") + 2
    content[start] = 40
    header = slice(12, 12 + (content[12] + 1) * 4)
    body = bytes(content[header])[:-4]
    content[header] = body + struct.pack("<I", zlib.crc32(body))
    assert decode(bytes(content), ".xz") == (b"", "large_window")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_compressed_file_of_nothing_is_empty(tmp_path, suffix):
    assert read_all(write(tmp_path, f"a.txt{suffix}", b"")).fault[0] == "empty_file"
    assert read_all(write(tmp_path, f"b.jsonl{suffix}", CODECS[suffix][1](b""))).fault[0] == "empty_file"


def test_a_file_that_is_not_compressed_as_its_name_says_is_corrupt(tmp_path):
    for suffix in SUFFIXES:
        assert read_all(write(tmp_path, f"a.jsonl{suffix}", b'{"text": "plain"}\n')).fault[0] == "corrupt"
