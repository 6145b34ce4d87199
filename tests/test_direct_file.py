"""Large drafts are written past the page cache; what they hold does not depend on it."""

import errno
import fcntl
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from gristmill import direct_file, drafts
from gristmill.direct_file import ALIGNED_BYTES, BUFFER_BYTES, MAX_WAITING, O_DIRECT
from gristmill.drafts import LARGE_BYTES, Draft
from gristmill.errors import RunError

CONTENT = Random(1).randbytes((MAX_WAITING + 2) * BUFFER_BYTES + 12_345)


def written(path: Path, sizes: list[int]) -> bytes:
    """What a draft holds that was given the content in parts of so many bytes."""
    draft, start = Draft(path, []), 0
    for size in sizes:
        draft.write(CONTENT[start : start + size])
        start += size
    draft.finish()
    assert draft.num_bytes == start
    draft.commit()
    return path.read_bytes()


@pytest.mark.parametrize(
    "sizes",
    [
        [LARGE_BYTES],
        [LARGE_BYTES - 1, 1, LARGE_BYTES],
        [4, LARGE_BYTES, 1],
        [ALIGNED_BYTES, 2 * BUFFER_BYTES],
        [5, BUFFER_BYTES, 7, 3 * BUFFER_BYTES + 11, LARGE_BYTES],
        [len(CONTENT)],
    ],
)
def test_a_draft_holds_what_it_was_given(tmp_path: Path, sizes: list[int]) -> None:
    assert written(tmp_path / "file", sizes) == CONTENT[: sum(sizes)]


def test_parts_of_any_size_give_the_same_file(tmp_path: Path) -> None:
    random = Random(2)
    for number in range(30):
        sizes = [random.choice((1, 100, 5000, LARGE_BYTES, 400_000, 1_500_000)) for _ in range(6)]
        sizes = [min(size, len(CONTENT) // 6) for size in sizes]
        assert written(tmp_path / f"{number}", sizes) == CONTENT[: sum(sizes)]


def test_a_draft_can_be_read_in_the_middle_and_goes_on(tmp_path: Path) -> None:
    draft = Draft(tmp_path / "file", [])
    half = len(CONTENT) // 2
    draft.write(CONTENT[:half])
    draft.flush()
    assert draft.temporary.read_bytes() == CONTENT[:half]
    draft.write(CONTENT[half:])
    draft.finish()
    assert draft.temporary.read_bytes() == CONTENT


@pytest.fixture(autouse=True)
def _no_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have sent what they wrote."""
    monkeypatch.setattr(drafts, "_uploads", [])


def goes_past_the_cache(draft: Draft) -> bool:
    """What becomes of a large write."""
    draft.write(CONTENT)
    flags = fcntl.fcntl(draft._file.fileno(), fcntl.F_GETFL)
    draft.finish()
    assert draft.temporary.read_bytes() == CONTENT
    return bool(flags & O_DIRECT)


def test_the_cache_is_passed_by_on_a_disk_and_used_elsewhere(tmp_path: Path) -> None:
    is_on_disk = os.major(tmp_path.stat().st_dev) != 0
    assert goes_past_the_cache(Draft(tmp_path / "file", [])) == is_on_disk


def test_what_will_be_read_at_once_stays_in_the_cache(tmp_path: Path) -> None:
    assert not goes_past_the_cache(Draft(tmp_path / "inventory", [], is_hashed=False))
    drafts.expect_uploads()
    assert not goes_past_the_cache(Draft(tmp_path / "upload", []))


PWRITE = os.pwrite


def refuse_direct(handle: int, content: memoryview, position: int) -> int:
    """A disk whose blocks are larger than we know of."""
    if fcntl.fcntl(handle, fcntl.F_GETFL) & O_DIRECT:
        raise OSError(errno.EINVAL, "Invalid argument")
    return PWRITE(handle, content, position)


def test_a_disk_that_refuses_such_writes_gets_ordinary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_file.os, "pwrite", refuse_direct)
    assert written(tmp_path / "file", [3, len(CONTENT) - 3]) == CONTENT


def test_a_write_cut_short_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_file.os, "pwrite", lambda h, c, at: PWRITE(h, c[: max(1, len(c) // 2)], at))
    assert written(tmp_path / "file", [len(CONTENT)]) == CONTENT


def test_a_write_that_failed_fails_whatever_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    draft = Draft(tmp_path / "file", [])
    with monkeypatch.context() as patch:
        patch.setattr(direct_file.os, "pwrite", fail)
        with pytest.raises(RunError, match="Input/output error"):
            write_and_finish(draft)
    if os.major(tmp_path.stat().st_dev) == 0:
        return  # the cache took it
    with pytest.raises(RunError, match="Input/output error"):
        draft.finish()
    draft.discard()
    assert not list(tmp_path.iterdir())


FORKED = """
import os, signal, sys
from pathlib import Path
from gristmill.drafts import Draft
folder = Path(sys.argv[1])
def write(name):
    draft = Draft(folder / name, [])
    draft.write(bytes(5 << 20))
    draft.finish()
    draft.commit()
write("parent")
child = os.fork()
if child == 0:
    signal.alarm(30)
    write("child")
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_writes_with_threads_of_its_own(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED, str(tmp_path)], check=True)
    assert (tmp_path / "child").read_bytes() == (tmp_path / "parent").read_bytes() == bytes(5 << 20)


def test_an_interrupt_while_a_buffer_is_handed_in_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        @staticmethod
        def put(writing: direct_file._Writing) -> None:
            given.append(writing)
            raise KeyboardInterrupt

    given: list[direct_file._Writing] = []
    monkeypatch.setattr(direct_file, "_waiting", Interrupted())
    with (tmp_path / "file").open("wb") as file:
        direct = direct_file.DirectFile(file.fileno(), 0)  # on any file system
        with pytest.raises(KeyboardInterrupt):
            direct.write(memoryview(CONTENT))
        given[0].do()  # a thread that had it all the same
        direct.abandon()
    assert os.path.getsize(tmp_path / "file") == 0


def test_without_threads_it_is_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    direct_file._begin_anew()  # those of other tests are for them alone
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with (tmp_path / "file").open("wb") as file:
        direct = direct_file.DirectFile(file.fileno(), 0)  # on any file system
        direct.write(memoryview(CONTENT))
        direct.finish()
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("limit", [ALIGNED_BYTES, BUFFER_BYTES, 2 * BUFFER_BYTES + 5000])
def test_a_disk_that_takes_no_more_is_an_error_and_leaves_nothing(tmp_path: Path, limit: int) -> None:
    draft = Draft(tmp_path / "file", [])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(RunError, match=r"file: cannot be written \(File too large\)"):
            write_and_finish(draft)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    draft.discard()
    assert not list(tmp_path.iterdir())


def write_and_finish(draft: Draft) -> None:
    draft.write(CONTENT)
    draft.finish()
