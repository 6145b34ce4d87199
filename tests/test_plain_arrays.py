"""Whatever the bytes of a file are, reading an array gives one or a ValueError."""

import io
import os
import random

import numpy as np
import pytest

from gristmill.errors import RunError
from gristmill.files import open_without_waiting
from gristmill.plain_arrays import read_array
from gristmill.text_sample import TextSample, read_sample, write_sample


def written(path, content):
    path.write_bytes(content)
    return path.open("rb")


def saved(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def test_arrays_come_back_one_after_the_other(tmp_path):
    arrays = [np.arange(5), np.zeros((3, 3), np.uint32), np.zeros(0, np.uint8)]
    with written(tmp_path / "a", b"".join(map(saved, arrays))) as file:
        for array in arrays:
            found = read_array(file)
            assert found.dtype == array.dtype
            assert np.array_equal(found, array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 no array",
        saved(np.arange(100))[:-1],
        saved(np.arange(100)).replace(b"(100,)", b"(2**9,)"),
        saved(np.arange(100)).replace(b"(100,), ", b"(10**17,"),
        saved(np.arange(100)).replace(b"(100,)", b"(-10,)"),
        saved(np.arange(100)).replace(b"<i8", b"|O8"),
        saved(np.arange(100)).replace(b"<i8", b"<i9"),
        saved(np.arange(100)).replace(b"\x01\x00", b"\x02\x00", 1),
        saved(np.zeros((2, 2, 2))),
        saved(np.asfortranarray(np.zeros((2, 3)))),
        saved(np.arange(100)).replace(b"}", b"("),
    ],
)
def test_what_is_no_array_is_refused(tmp_path, content):
    with written(tmp_path / "a", content) as file, pytest.raises(ValueError, match=r"\w"):
        read_array(file)


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    with open_without_waiting(tmp_path / "pipe") as file, pytest.raises(ValueError, match="header"):
        read_array(file)
    os.close(writer)


def test_a_damaged_sample_is_read_whole_or_refused(tmp_path):
    path, choose = tmp_path / "sample", random.Random(7)
    whole = TextSample(np.frombuffer(b"some text", np.uint8), np.array([0, 4, 9]), np.array([0, 1]))
    with path.open("wb") as file:
        write_sample(file, whole)
    content = path.read_bytes()
    assert all(map(np.array_equal, read_sample(path), whole))
    for _ in range(500):
        damaged = bytearray(content)
        damaged[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        path.write_bytes(damaged[: choose.choice([len(content), choose.randrange(len(content))])])
        try:
            sample = read_sample(path)
        except RunError:
            continue
        assert len(sample.offsets) == len(sample.files) + 1
