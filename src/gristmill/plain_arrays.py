"""NumPy arrays out of files that anybody may have changed: whatever their bytes are, an array or an error."""

from __future__ import annotations

import math
import os
import re
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x93NUMPY\x01\x00"
"""And the version of such files."""
HEADER = re.compile(
    rb"\{'descr': '([<|][iuf]\d)', 'fortran_order': False, 'shape': \((\d{1,18}), ?(\d{1,18})?\), \} *\n"
)
"""Of all that is written here: plain numbers, in one dimension or two."""


def read_array(file: BinaryIO) -> NDArray[Any]:
    """The array that begins here, as `numpy.save` wrote it; ValueError where there is none.

    NumPy's own reader has Python's parser read the header, which takes longer than all the rest."""
    head = file.read(len(MAGIC) + 2) or b""  # None: a pipe in its place, which nobody has written to
    found = HEADER.fullmatch(file.read(int.from_bytes(head[len(MAGIC) :], "little")) or b"")
    if head[: len(MAGIC)] != MAGIC or not found:
        raise ValueError("the header of an array is damaged, or of a kind that is never written")
    shape = tuple(int(size) for size in found.groups()[1:] if size is not None)
    try:
        dtype = np.dtype(found[1].decode())
    except TypeError as error:
        raise ValueError("the header of an array is damaged") from error
    num_bytes = dtype.itemsize * math.prod(shape)
    if num_bytes > os.fstat(file.fileno()).st_size:
        raise ValueError("an array is larger than its file")
    content = file.read(num_bytes) or b""
    if len(content) < num_bytes:
        raise ValueError("an array is cut off")
    return np.frombuffer(content, dtype).reshape(shape)
