"""The small files of a run in a store, as copies in a folder of this machine that follow it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from gristmill.records import FileRecord
from gristmill.store.objects import Objects
from gristmill.store.remote import SMALL

EVERY_S = 2.0
"""Between two looks at the store, at least; more where a look takes long."""
TOLD_LAST = ("events.jsonl", "manifest.json")
"""What they tell of is there before them."""
MAX_QUARANTINE_BYTES = 1 << 20
"""Of a unit; of more, nothing is shown."""


class _Record(msgspec.Struct):
    """Of a unit's record, what names its files."""

    sidecars: tuple[FileRecord, ...] = ()


class Mirror:
    """A run in a store, to be looked at; nothing of it is changed."""

    def __init__(self, url: str) -> None:
        import tempfile

        self.objects = Objects(url)
        self.url = self.objects.url
        self._place = tempfile.TemporaryDirectory(prefix="gristmill-mirror-")
        self.path = Path(self._place.name) / (PurePosixPath(self.url).name or "run")
        self.path.mkdir()
        self._sizes: dict[str, int] = {}
        self._due_at = 0.0

    def refresh(self) -> None:
        """Bring what is new, unless that was done a moment ago."""
        if time.monotonic() >= self._due_at:
            self.bring()

    def bring(self) -> None:
        """Bring what is new, and forget what is gone."""
        began = time.monotonic()
        sizes = {name: size for name, size in self.objects.sizes().items() if SMALL.fullmatch(name)}
        for name in self._sizes.keys() - sizes.keys():
            (self.path / name).unlink(missing_ok=True)
        changed = [name for name, size in sizes.items() if self._sizes.get(name) != size]
        self.objects.bring([name for name in changed if name not in TOLD_LAST], self.path)
        self.objects.each(self._bring_quarantine, [name for name in changed if name.startswith("units/")])
        self.objects.bring([name for name in TOLD_LAST if name in changed], self.path)
        self._sizes = sizes
        took = time.monotonic() - began
        self._due_at = time.monotonic() + max(EVERY_S, 4 * took)

    def _bring_quarantine(self, record_name: str) -> None:
        """What a unit has set apart, under the name that it has in a folder of this machine."""
        with suppress(OSError, msgspec.MsgspecError):  # a damaged record is told of elsewhere
            record = msgspec.json.decode((self.path / record_name).read_bytes(), type=_Record)
            for file in record.sidecars:
                if file.path.endswith(".quarantine") and file.num_bytes <= MAX_QUARANTINE_BYTES:
                    target = (self.path / record_name).with_suffix(".quarantine")
                    self.objects.download(file, target)
