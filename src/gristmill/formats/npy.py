"""NumPy's own .npy files, a column a file: `numpy.load` opens them, and maps them where they lie.

Not to be taken for olmo's .npy, which has no header and which `numpy.load` refuses.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.drafts import Scratch
from gristmill.errors import RunError
from gristmill.formats.arrays import (
    ArrayWriter,
    Container,
    check_arrays,
    map_arrays,
    read_arrays,
)
from gristmill.formats.payload import map_file

MAGIC = b"\x93NUMPY\x01\x00"
HEAD_BYTES = 128
"""Room for every shape, and a multiple of 64, so that the numbers are aligned."""


def head_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What stands before the numbers; the same for every version of NumPy."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    room = HEAD_BYTES - len(MAGIC) - 2
    return MAGIC + room.to_bytes(2, "little") + text.encode().ljust(room - 1) + b"\n"


def _wrap(_: Scratch, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, bytes]:
    return head_of(dtype, shape), b""


def _unwrap(path: Path, dtype: np.dtype[Any], row_length: int | None) -> NDArray[Any]:
    values = map_file(path, dtype, offset=HEAD_BYTES)
    shape = (len(values) // row_length, row_length) if row_length else (len(values),)
    if map_file(path, np.dtype("u1"), count=HEAD_BYTES).tobytes() != head_of(dtype, shape):
        raise RunError(f"{path}: the header is not that of {shape} numbers of {dtype.name}")
    return values


CONTAINER = Container(".npy", lambda layout: layout.id_type, _wrap, _unwrap)
NpyWriter = partial(ArrayWriter, CONTAINER)
read = partial(read_arrays, CONTAINER)
map_rows = partial(map_arrays, CONTAINER)
check = partial(check_arrays, CONTAINER)
