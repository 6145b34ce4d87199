"""Objects under one address of a store: put, get, listed and removed, with patience and clear errors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from blake3 import blake3

from gristmill.errors import RunError
from gristmill.files import write_whole
from gristmill.read.storage import open_store
from gristmill.records import FileRecord
from gristmill.retry import LASTING_NAMES, UnreachableError, is_lasting, retried

PART_BYTES = 6 << 20
"""Of an upload, or of a download; held in memory. S3 takes no parts under 5 MiB but the last."""
NUM_PARTS = 2
"""Of a file, under way at a time."""
NUM_TRANSFERS = 4
"""Files under way at a time."""
TRANSFER_BYTES = NUM_TRANSFERS * NUM_PARTS * PART_BYTES
"""What all that is under way holds at most."""
CREDENTIALS = "give credentials as the store's package finds them (for s3://: AWS_ACCESS_KEY_ID, a profile)"
FILE_NAME = re.compile(r"(?:\w+/)?[\w-][\w.-]*", re.ASCII)
Result = TypeVar("Result")


class Objects:
    """What lies under a URL, by names relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._store, root = open_store(self.url)
        self._root = root.rstrip("/")
        protocol = self._store.protocol
        self._is_s3 = "s3" in ((protocol,) if isinstance(protocol, str) else protocol)

    def put(self, name: str, content: bytes) -> None:
        """Write an object, whole."""
        self._asked(name, lambda: self._store.pipe_file(self._path(name), content), is_write=True)

    def create(self, name: str, content: bytes) -> bytes:
        """Write an object unless there is one; returns what is there then.

        Stores without a conditional write are asked first, which leaves a moment in which two may write."""

        def create() -> None:
            try:
                self._store.pipe_file(self._path(name), content, mode="create")
            except (TypeError, NotImplementedError):
                if self.get(name) is None:
                    self._store.pipe_file(self._path(name), content)

        def is_there(error: BaseException) -> bool:
            return is_lasting(error) or "PreconditionFailed" in f"{error!r} {error.__cause__!r}"

        try:
            retried(create, is_lasting=is_there)
        except Exception as error:
            there = self.get(name) if is_there(error) else None
            if there is None:
                raise self._explained(name, error, is_write=True) from error
            return there  # perhaps our own, of an attempt whose answer was lost
        return content

    def get(self, name: str) -> bytes | None:
        """An object, or None where there is none."""
        try:
            found: bytes = self._asked(name, lambda: self._store.cat_file(self._path(name)))
        except FileNotFoundError:
            return None
        return found

    def upload(self, source: Path, name: str) -> None:
        """Write an object from a file, in parts where it is large."""
        options: dict[str, int] = {}
        if self._is_s3:
            options = {"chunksize": PART_BYTES, "max_concurrency": NUM_PARTS}

        def put() -> None:
            self._store.put_file(str(source), self._path(name), **options)

        def is_hopeless(error: BaseException) -> bool:
            # Of an upload in parts that was ended, and the answer lost, the store says that it is not there.
            return is_lasting(error) and not isinstance(error, FileNotFoundError)

        self._asked(name, put, is_write=True, is_lasting=is_hopeless)

    def download(self, file: FileRecord, target: Path) -> None:
        """Bring an object here, whole, once its content is known to be that of its record."""

        def get() -> None:
            digest = blake3()
            with temporary.open("wb") as out:
                for start in range(0, file.num_bytes, PART_BYTES):
                    part = self._range(file.path, start, min(start + PART_BYTES, file.num_bytes))
                    digest.update(part)
                    out.write(part)
            if digest.hexdigest() != file.blake3:
                raise RunError(
                    f"{self.url}/{file.path}: has other content than when it was written; "
                    "gristmill verify says more"
                )

        if not FILE_NAME.fullmatch(file.path):
            raise RunError(f"{self.url}: {file.path!r} is no path of a file of a run; a record is damaged")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        try:
            self._asked(file.path, get)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def sizes(self) -> dict[str, int]:
        """Every object and its size."""

        def find() -> dict[str, Any]:
            self._store.invalidate_cache()
            found: dict[str, Any] = self._store.find(self._root, detail=True)
            return found

        try:
            entries = self._asked("", find)
        except FileNotFoundError:
            return {}
        start = f"{self._root}/"
        return {
            path.removeprefix(start): int(entry.get("size") or 0)
            for path, entry in sorted(entries.items())
            if path.startswith(start) and entry.get("type") != "directory"
        }

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; one that is gone already is no fault."""

        def remove(name: str) -> None:
            with suppress(FileNotFoundError):
                self._store.rm_file(self._path(name))

        self.each(lambda name: self._asked(name, lambda: remove(name), is_write=True), names)

    def pending_uploads(self) -> list[tuple[str, str]]:
        """Uploads in parts that were begun and never ended, by name and id; known of s3:// alone."""
        if not self._is_s3:
            return []
        bucket, key, _ = self._store.split_path(self._root)
        found = retried(lambda: self._store.list_multipart_uploads(bucket))
        return [(one["Key"], one["UploadId"]) for one in found if one["Key"].startswith(f"{key}/")]

    def end_uploads(self, uploads: Iterable[tuple[str, str]]) -> None:
        """Give up such uploads, which frees what they hold."""
        for key, upload in uploads:
            bucket = self._store.split_path(self._root)[0]
            self._store.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload)

    def bring(self, names: Iterable[str], folder: Path) -> None:
        """Small objects, as files of a folder; one that is gone is left out."""

        def bring(name: str) -> None:
            content = self.get(name)
            if content is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_whole(folder / name, content)

        self.each(bring, names)

    @staticmethod
    def each(call: Callable[[Any], None], items: Iterable[Any]) -> None:
        """Call for several at a time; the first error comes up when all are done."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(NUM_TRANSFERS) as threads:
            for _ in threads.map(call, items):
                pass

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _range(self, name: str, start: int, end: int) -> bytes:
        found: bytes = retried(lambda: self._store.cat_file(self._path(name), start=start, end=end))
        return found

    def _asked(
        self,
        name: str,
        call: Callable[[], Result],
        *,
        is_write: bool = False,
        is_lasting: Callable[[BaseException], bool] = is_lasting,
    ) -> Result:
        try:
            return retried(call, is_lasting=is_lasting)
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not is_write:
                raise
            raise self._explained(name, error, is_write=is_write) from error

    def _explained(self, name: str, error: Exception, *, is_write: bool) -> Exception:
        """What went wrong, where, and what to do; what should pass stays an OSError, after which the unit is
        tried again."""
        place = f"{self.url}/{name}".rstrip("/")
        said = " ".join(str(error).split())[:300] or type(error).__name__
        if isinstance(error, RunError):
            return error
        if isinstance(error, UnreachableError):
            return UnreachableError(f"{place}: {said}; run the same command again to go on")
        if type(error).__name__ in LASTING_NAMES:
            return RunError(f"{place}: {said}; {CREDENTIALS}")
        if isinstance(error, PermissionError):
            what = "written" if is_write else "read"
            return RunError(f"{place}: may not be {what} ({said}); {CREDENTIALS}")
        if isinstance(error, FileNotFoundError):
            return RunError(f"{place}: {said}; make the bucket or container first, or correct its name")
        return RunError(f"{place}: {said}")
