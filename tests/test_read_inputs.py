"""Which files are read: names, folders and patterns, in one order, and clear words where there is nothing."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.config import ReadConfig
from gristmill.errors import ConfigError, InputError
from gristmill.read import InputFile, list_inputs, slice_file
from gristmill.read.find import find_inputs, split_suffixes
from reading import write


def paths_of(folder, *inputs, **options):
    config = ReadConfig(inputs=tuple(str(folder / given) for given in inputs), **options)
    return [os.path.relpath(file.path, folder) for file in list_inputs(config)]


@pytest.fixture
def folder(tmp_path):
    for name in ("b.jsonl", "a.txt.gz", "sub/c.parquet", "sub/deep/d.csv.zst", "README", "_SUCCESS.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path, name, b"x")
    for name in (".hidden.jsonl", ".cache/e.jsonl", "_temporary/f.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path, name, b"x")
    return tmp_path


def test_a_folder_stands_for_its_known_files_by_name(folder):
    assert paths_of(folder, ".") == ["a.txt.gz", "b.jsonl", "sub/c.parquet", "sub/deep/d.csv.zst"]


def test_a_card_beside_other_formats_is_no_document(folder, tmp_path_factory):
    write(folder, "README.md", b"# A dataset")
    write(folder, "sub/notes.md", b"x")
    shown = ["a.txt.gz", "b.jsonl", "sub/c.parquet", "sub/deep/d.csv.zst", "sub/notes.md"]
    assert paths_of(folder, ".") == shown
    assert find_inputs(ReadConfig(inputs=(str(folder),))).skipped[".md"] == 1
    assert paths_of(folder, "README.md") == ["README.md"]
    pages = tmp_path_factory.mktemp("pages")
    write(pages, "README.md", b"text alone")
    assert paths_of(pages, ".") == ["README.md"]


def test_a_folder_read_in_one_format_stands_for_the_files_of_that_format(folder):
    assert paths_of(folder, ".", format="csv") == ["sub/deep/d.csv.zst"]


def test_patterns_match_known_files_and_any_file_where_the_format_is_set(folder):
    assert paths_of(folder, "*") == ["_SUCCESS.txt", "a.txt.gz", "b.jsonl"]
    assert paths_of(folder, "**/*.csv.zst") == ["sub/deep/d.csv.zst"]
    assert paths_of(folder, "READ*", format="text") == ["README"]


def test_inputs_keep_the_order_they_are_given_in_and_a_file_is_taken_once(folder):
    assert paths_of(folder, "sub", "b.jsonl", "*.jsonl", "sub/../sub/c.parquet") == [
        "sub/c.parquet",
        "sub/deep/d.csv.zst",
        "b.jsonl",
    ]


def test_a_link_to_a_folder_is_followed_and_a_loop_of_them_ends(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(other, "g.jsonl", b"x")
    (folder / "sub" / "link").symlink_to(other)
    (folder / "sub" / "loop").symlink_to(folder / "sub")
    assert paths_of(folder, "sub") == ["sub/c.parquet", "sub/deep/d.csv.zst", "sub/link/g.jsonl"]


def test_a_file_whose_name_holds_pattern_characters_is_that_file(tmp_path):
    write(tmp_path, "a[1].jsonl", b"x")
    write(tmp_path, "a1.jsonl", b"x")
    assert paths_of(tmp_path, "a[1].jsonl") == ["a[1].jsonl"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", ("jsonl", "none")),
        ("a.JSON", ("jsonl", "none")),
        ("a.ndjson.zstd", ("jsonl", "zstd")),
        ("a.b.tsv.xz", ("csv", "xz")),
        ("a.md.bz2", ("text", "bz2")),
        ("a.feather", ("arrow", "none")),
        ("a.parquet.gz", (None, "gzip")),
        ("a.gz", (None, "gzip")),
        ("jsonl", (None, "none")),
        ("http://host/a.jsonl.gz?sign=x.parquet#part", ("jsonl", "gzip")),
    ],
)
def test_the_end_of_a_name_tells_format_and_compression(name, expected):
    assert split_suffixes(name) == expected


def test_what_the_config_says_wins_over_the_name(tmp_path):
    path = write(tmp_path, "a.jsonl.gz", b"x")
    [file] = list_inputs(ReadConfig(inputs=(str(path),), format="text", compression="none"))
    assert (file.format, file.compression) == ("text", "none")
    assert (file.num_bytes, file.version) == (1, str(path.stat().st_mtime_ns))


def test_a_file_named_without_a_known_suffix_is_refused_with_the_way_out(folder):
    with pytest.raises(ConfigError, match=r"README: its name tells no format .*set read\.format"):
        paths_of(folder, "README")
    assert paths_of(folder, "README", format="text") == ["README"]


def test_no_match_says_what_is_there(folder):
    with pytest.raises(
        InputError, match=r"\*\.arrow: matches no file to read \(there is .*README.* and \d+ more"
    ):
        paths_of(folder, "*.arrow")
    with pytest.raises(InputError, match=r"c\.jsonl: No such file or directory; there is .*sub/c\.parquet"):
        paths_of(folder, "sub/c.jsonl")
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: matches no file to read \(there is nothing"):
        paths_of(folder, "empty")
    with pytest.raises(ConfigError, match=r"read\.inputs is empty"):
        list_inputs(ReadConfig())


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="is no regular file"):
        paths_of(tmp_path, "a.jsonl")


@given(num_bytes=st.integers(0, 10_000), unit_bytes=st.integers(1, 3000))
def test_slices_of_lines_are_ranges_without_gaps(num_bytes, unit_bytes):
    file = InputFile(path="a.jsonl", num_bytes=num_bytes, version="", format="jsonl", compression="none")
    parts = slice_file(3, file, ReadConfig(), unit_bytes)
    assert parts[0].start == 0
    assert parts[-1].stop == max(num_bytes, 1)
    assert [part.stop for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert all(part.stop - part.start <= unit_bytes and part.file == 3 for part in parts)
    assert sum(part.num_bytes for part in parts) == num_bytes
    assert all(part.start % unit_bytes == 0 for part in parts)


@pytest.mark.parametrize(
    ("format", "compression", "document"),
    [
        ("jsonl", "gzip", "file"),
        ("text", "none", "file"),
        ("text", "none", "separator"),
        ("csv", "none", "line"),
    ],
)
def test_what_cannot_be_cut_is_one_slice(format, compression, document):
    file = InputFile(path="a", num_bytes=1000, version="", format=format, compression=compression)
    [part] = slice_file(0, file, ReadConfig(document=document), 10)
    assert (part.start, part.stop, part.num_bytes) == (0, 1, 1000)
