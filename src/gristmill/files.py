"""Files appear whole: the one place that opens a final path for writing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gristmill.errors import InputError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new, never a part."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
