"""Where bytes come from: local files by plain system calls, everything else by fsspec.

fsspec is an extra; this is the one module that imports it.
"""

from __future__ import annotations

import io
import os
import stat
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Any, BinaryIO, cast

from gristmill.errors import BadFileError, ConfigError, InputError, MissingPackageError
from gristmill.read.ranges import RangeReader
from gristmill.retry import UnreachableError, retried

REMOTE_READ_BYTES = 8 << 20
"""Of one request to a store that is not read by `RangeReader`; larger ones hardly go faster."""
COLUMN_BLOCK_BYTES = 4 << 20
MAX_COLUMN_BLOCKS = 6
"""Of a file of columns: the last to be looked into, and the next on its way."""
WEB_PROTOCOLS = ("http://", "https://")
VERSION_KEYS = (
    "ETag",
    "etag",
    "e_tag",
    "version_id",
    "blob_id",
    "md5Hash",
    "Content-MD5",
    "mtime",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "modified",
    "created",
)


def is_remote(path: str) -> bool:
    """Whether a path is a URL that fsspec opens."""
    return "://" in path


def is_object(path: str) -> bool:
    """Whether a URL is of a store of objects, which gives any range of one at any time."""
    return is_remote(path) and not path.startswith((*WEB_PROTOCOLS, "hf://"))


def local_path(path: str) -> str:
    """The path of a file:// URL; any other path as it is."""
    return path.removeprefix("file://") if path.startswith("file://") else path


def open_store(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    if "::" in url:
        raise ConfigError(f"{url}: chained URLs are not read; name the files themselves")
    try:
        fsspec: Any = import_module("fsspec")
    except ImportError as error:
        raise MissingPackageError(f"{url}: needs fsspec: pip install 'gristmill[remote]'") from error
    try:
        store, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(f"{url}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{url}: {error}") from error
    except Exception as error:  # a store's package raises what it likes, such as for missing credentials
        raise InputError(f"{url}: {describe_error(error)}") from error
    return store, path


@lru_cache(maxsize=4096)
def serves_ranges(path: str) -> bool:
    """Whether any part of a file can be read; some web servers give whole files only."""
    if not path.startswith(WEB_PROTOCOLS):
        return True
    store, name = open_store(path)
    try:
        # Servers do not always say so; asking for a byte is sure.
        with store.open(name, "rb", block_size=1, cache_type="none") as file:
            file.seek(1)
            file.read(1)
    except ValueError:
        return False
    return True


def open_input(path: str, *, stop: int | None = None) -> BinaryIO:
    """A file to read, without a buffer of its own where it is local; one to seek in, if it serves ranges.
    Where reading should stop is where reading ahead does."""
    if not is_remote(path):
        return cast(BinaryIO, io.FileIO(path))
    store, name = open_store(path)
    if is_object(path):
        num_bytes = int(retried(lambda: store.info(name))["size"])
        return cast(BinaryIO, RangeReader(lambda a, b: store.cat_file(name, start=a, end=b), num_bytes, stop))
    # Without a block size the file is streamed, in one request.
    block_bytes = REMOTE_READ_BYTES if serves_ranges(path) else 0
    return cast(BinaryIO, store.open(name, "rb", block_size=block_bytes, cache_type="readahead"))


def open_stream(path: str) -> BinaryIO:
    """A file that is read once, from its start: of the hub in one request, which is faster than many."""
    if not path.startswith("hf://"):
        return open_input(path)
    store, name = open_store(path)
    return cast(BinaryIO, store.open(name, "rb", block_size=0, cache_type="none"))


class WatchedFile:
    """A file of a store that is asked again where that may help, and remembers why it could not be read: the
    reader of its format cannot tell that from a damaged file."""

    def __init__(self, file: BinaryIO) -> None:
        self.fault: Exception | None = None
        self._file = file

    def read(self, num_bytes: int = -1) -> bytes:
        place = self._file.tell()

        def read() -> bytes:
            self._file.seek(place)
            return self._file.read(num_bytes)

        try:
            return retried(read)
        except Exception as error:
            self.fault = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def open_columns(path: str) -> WatchedFile:
    """A remote file of columns, whose parts are read in any order."""
    if not serves_ranges(path):
        raise BadFileError(
            "unreadable", "the server gives whole files only; fetch the file and read it there"
        )
    if not is_object(path):
        return WatchedFile(open_input(path))
    store, name = open_store(path)
    options = {"maxblocks": MAX_COLUMN_BLOCKS}
    opened = retried(
        lambda: store.open(
            name, "rb", block_size=COLUMN_BLOCK_BYTES, cache_type="background", cache_options=options
        )
    )
    return WatchedFile(cast(BinaryIO, opened))


def fault_of(file: WatchedFile | None, error: BadFileError) -> BadFileError:
    """What is wrong with a file of columns: the store, where that failed, and not the file."""
    return unreadable(file.fault) if file is not None and file.fault is not None else error


def read_start(path: str, num_bytes: int) -> bytes:
    """The first bytes of a file, without fetching more of it."""
    if is_remote(path) and serves_ranges(path):
        store, name = open_store(path)
        return cast(bytes, retried(lambda: store.cat_file(name, start=0, end=num_bytes)))
    with open_input(path) as file:
        return file.read(num_bytes)


def describe_file(path: str) -> tuple[int, str]:
    """Size in bytes (0 where a store does not know it), and a version that changes when the file does."""
    if is_remote(path):
        store, name = open_store(path)
        return describe_entry(store, retried(lambda: store.info(name)))
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: is no regular file; name a file, a folder or a pattern")
    return status.st_size, str(status.st_mtime_ns)


def describe_entry(store: Any, entry: dict[str, Any]) -> tuple[int, str]:
    """Size and version from what a store lists of a file."""
    version = next((entry[key] for key in VERSION_KEYS if entry.get(key)), None)
    if isinstance(version, datetime):  # which a store may list as a number
        version = version.timestamp()
    return int(entry.get("size") or 0), str(version or store.ukey(entry["name"]))


def unreadable(error: BaseException) -> BadFileError:
    """The bad file that an error of the file system or of a store means."""
    found = BadFileError("unreadable", describe_error(error))
    found.is_passing = isinstance(error, UnreachableError)
    return found


def describe_error(error: BaseException) -> str:
    """An error in one line; never empty."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    said = " ".join(str(error).split())[:300] or type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"{said}; accept its terms and log in (hf auth login), or set HF_TOKEN"
    return said
