"""Files by URL: the same documents as from a local file, and no fsspec where it is not needed."""

import gzip
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.config import ReadConfig
from gristmill.errors import ConfigError, InputError, MissingPackageError
from gristmill.read import describe_file, list_inputs, read_slice, slice_file
from reading import BLOCKS, read_all, read_part, write

LINES = b"".join(b'{"text": "number %d"}\n' % number for number in range(500))
TEXTS = [f"number {number}" for number in range(500)]


@pytest.fixture
def files(tmp_path):
    write(tmp_path, "a.jsonl", LINES)
    write(tmp_path, "a.jsonl.gz", gzip.compress(LINES))
    write(tmp_path, "a.txt", b"one\ntwo\n")
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet", row_group_size=100)
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema({"text": pa.string()})) as writer:
        writer.write_table(pa.table({"text": TEXTS}), max_chunksize=100)
    return tmp_path


@pytest.fixture
def memory(files):
    store = fsspec.filesystem("memory")
    for path in files.iterdir():
        store.pipe_file(f"/corpus/{path.name}", path.read_bytes())
    store.pipe_file("/corpus/_skipped/b.jsonl", LINES)
    store.pipe_file("/corpus/sub/c.jsonl", LINES)
    yield "memory://corpus"
    store.rm("/corpus", recursive=True)


class RangeHandler(SimpleHTTPRequestHandler):
    """Serves files, and ranges of them."""

    with_ranges = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        wanted = self.headers.get("Range")
        path = self.translate_path(self.path)
        if wanted is None or not self.with_ranges:
            return super().do_GET()
        with open(path, "rb") as file:
            content = file.read()
        first, last = wanted.removeprefix("bytes=").split("-")
        part = content[int(first) : int(last or len(content)) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def end_headers(self):
        if self.with_ranges:
            self.send_header("Accept-Ranges", "bytes")
        super().end_headers()


class WholeHandler(RangeHandler):
    """Serves whole files only."""

    with_ranges = False


@pytest.fixture(params=[RangeHandler, WholeHandler], ids=["ranges", "whole"])
def server(request, files):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(request.param, directory=str(files))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "a.arrow"])
def test_a_file_by_url_gives_what_the_local_one_gives(files, memory, name):
    local = read_all(files / name, unit_bytes=1000, blocks=BLOCKS._replace(block_bytes=300))
    remote = read_all(f"{memory}/{name}", unit_bytes=1000, blocks=BLOCKS._replace(block_bytes=300))
    assert local.texts == TEXTS
    assert remote == local


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_file_of_a_web_server_gives_what_the_local_one_gives(files, server, name, request):
    remote = read_all(f"{server}/{name}", unit_bytes=4000)
    if name == "a.parquet" and "whole" in request.node.name:
        assert remote.fault == (
            "unreadable",
            "the server gives whole files only; fetch the file and read it there",
        )
    else:
        local = read_all(files / name, unit_bytes=4000)
        assert remote.texts == local.texts == TEXTS
        assert remote.positions == local.positions
        assert remote.fault is None


def test_a_file_that_a_web_server_lost_is_unreadable(files, server):
    config = ReadConfig(inputs=(f"{server}/a.jsonl",))
    [file] = list_inputs(config)
    (files / "a.jsonl").unlink()
    [part] = slice_file(0, file, config, 1 << 40)
    assert read_part(file, part, config, BLOCKS).fault[0] == "unreadable"
    with pytest.raises(InputError, match=r"a\.jsonl"):
        list_inputs(config)


def test_folders_and_patterns_work_by_url(memory):
    def paths_of(given):
        return [file.path for file in list_inputs(ReadConfig(inputs=(given,)))]

    names = ["a.arrow", "a.jsonl", "a.jsonl.gz", "a.parquet", "a.txt", "sub/c.jsonl"]
    assert [path.split("/corpus/")[1] for path in paths_of(memory)] == names
    found = paths_of(f"{memory}/**/*.jsonl")
    assert [path.split("/corpus/")[1] for path in found] == ["_skipped/b.jsonl", "a.jsonl", "sub/c.jsonl"]
    with pytest.raises(InputError, match=r"\*\.csv: matches no file"):
        paths_of(f"{memory}/*.csv")
    with pytest.raises(InputError, match="absent"):
        paths_of(f"{memory}/absent.jsonl")


def test_the_version_of_a_file_changes_when_it_is_written_anew(memory):
    size, version = describe_file(f"{memory}/a.txt")
    assert size == 8
    assert describe_file(f"{memory}/a.txt") == (size, version)
    fsspec.filesystem("memory").pipe_file("/corpus/a.txt", b"other words")
    assert describe_file(f"{memory}/a.txt")[1] != version


def test_an_unknown_protocol_and_a_missing_package_are_named(monkeypatch):
    with pytest.raises(ConfigError, match="nowhere"):
        list_inputs(ReadConfig(inputs=("nowhere://a.jsonl",)))
    with pytest.raises(ConfigError, match="chained"):
        list_inputs(ReadConfig(inputs=("zip://a.jsonl::memory://a.zip",)))
    monkeypatch.setitem(sys.modules, "dropboxdrivefs", None)
    with pytest.raises(MissingPackageError, match="dropbox"):
        list_inputs(ReadConfig(inputs=("dropbox://a.jsonl",)))
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingPackageError, match=r"gristmill\[remote\]"):
        list_inputs(ReadConfig(inputs=("memory://a.jsonl",)))


def test_local_files_are_read_without_fsspec(files):
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from gristmill.config import ReadConfig\n"
        "from gristmill.read import Blocks, list_inputs, read_slice, slice_file\n"
        f"config = ReadConfig(inputs=({str(files / 'a.jsonl')!r}, 'file://' + {str(files / 'a.txt')!r}))\n"
        "for file in list_inputs(config):\n"
        "    for part in slice_file(0, file, config, 100):\n"
        "        print(sum(map(len, read_slice(file, part, config, Blocks(100, 100, False, False)))))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sum(map(int, result.stdout.split())) == 501


def test_read_slice_by_url_can_read_ahead(memory):
    config = ReadConfig(inputs=(f"{memory}/a.jsonl",))
    [file] = list_inputs(config)
    [part] = slice_file(0, file, config, 1 << 40)
    batches = read_slice(file, part, config, BLOCKS._replace(read_ahead=True, block_bytes=999))
    assert sum(map(len, batches)) == 500
