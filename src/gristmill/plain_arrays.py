"""NumPy arrays out of files that anybody may have changed: whatever their bytes are, an array or an error."""

from __future__ import annotations

import math
import os
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


def read_array(file: BinaryIO) -> NDArray[Any]:
    """The array that begins here, as `numpy.save` wrote it; ValueError where there is none."""
    try:
        version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
        if version != (1, 0):
            raise ValueError(f"version {version} of an array is not known")
        header = np.lib.format.read_array_header_1_0(file)  # type: ignore[no-untyped-call]
    except (TokenError, SyntaxError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError("the header of an array is damaged") from error
    shape, is_fortran, dtype = header
    if dtype.hasobject or is_fortran or len(shape) > 2:
        raise ValueError("an array of a kind that is never written")
    num_bytes = dtype.itemsize * math.prod(shape)
    if min(shape, default=0) < 0 or num_bytes > os.fstat(file.fileno()).st_size:
        raise ValueError("an array is larger than its file")
    content = file.read(num_bytes)
    if len(content) < num_bytes:
        raise ValueError("an array is cut off")
    return np.frombuffer(content, dtype).reshape(shape)
