"""Memory for one batch of documents on a device, and the kernels that run over it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.engines.cuda.device import Device, Launch, Memory
from gristmill.engines.cuda.tables import Tables

SOURCE = Path(__file__).parent
TILE = 992
GROUP = 1024
STAGE = 1008
FRONT = 32
"""Bytes of zeros before the text; tiles read a little past its ends."""
BEHIND = 4096
NUM_COUNTERS = 16
NUM_MISSED, NUM_LONG, NUM_LONGER, NUM_TOKENS, NUM_FLAGGED, NUM_SECTIONS = range(6)


def work_type() -> np.dtype[Any]:
    """`struct Work` of work.h: pointers first, then numbers."""
    source = (SOURCE / "work.h").read_text(encoding="utf-8")
    body = source[source.index("struct Work {") :]
    fields = re.findall(r"^    u\d+(\*?) (\w+);", body, re.M)
    return np.dtype([(name, np.uint64 if star else np.uint32) for star, name in fields], align=True)


class Result(NamedTuple):
    """Ids of a batch's documents, in memory that the next batch will overwrite."""

    num_ids: int
    ids: NDArray[Any]
    """Empty where they were not asked for; their lower 16 bits where `high` has the others."""
    high: NDArray[np.uint8] | None
    starts: NDArray[np.uint32]
    """Where the ids of every document begin."""
    flagged: NDArray[np.int64]
    """Where something is for the CPU: first bytes of parts of 32 bytes."""
    num_missed: int


class Batch:
    """Takes batches of up to so many bytes, one after the other."""

    def __init__(self, device: Device, tables: Tables, known: dict[str, Memory], *, num_bytes: int) -> None:
        self.max_bytes = num_bytes
        self.max_documents = max_documents(num_bytes)
        self.id_type = np.dtype(np.uint16 if tables.is_narrow else np.uint32)
        self._device = device
        sizes = _sizes(num_bytes, self.max_documents, self.id_type.itemsize)
        self._known = known  # the kernels have addresses only: what they point to must stay
        self._memory = {name: device.allocate(size) for name, size in sizes.items()}
        self._work = np.zeros((), work_type())
        for name, memory in (known | self._memory).items():
            self._work[name] = memory.address
        for name, number in (tables.numbers | {"max_missed": num_bytes // 2 + 64}).items():
            self._work[name] = number
        self._work["text"] += np.uint64(FRONT)
        self._counters = device.pinned(4 * NUM_COUNTERS).view(np.uint32)
        self._is_split = False
        self._computed: Any = None
        self._fetched: Any = None

    def submit(
        self,
        text: NDArray[np.uint8],
        starts: NDArray[np.uint32],
        added: dict[str, int],
        *,
        is_learning: bool,
        is_split: bool = False,
    ) -> None:
        """Begin with documents, none of them empty; `added` is what finds added tokens in text. Ids of more
        than 16 bits may be split, so that they can be fetched as three bytes each."""
        device, memory, work = self._device, self._memory, self._work
        self._is_split = is_split and self.id_type.itemsize > 2
        numbers = {"num_bytes": len(text), "num_docs": len(starts), "num_tiles": len(text) // TILE + 1}
        numbers["out_high"] = memory["out"].address + 2 * self.max_bytes if self._is_split else 0
        for name, value in (numbers | added).items():
            work[name] = value
        if self._computed is not None:
            device.wait("in", self._computed)
        device.write(memory["text"], FRONT, text)
        device.write(memory["starts"], 0, starts)
        device.wait("compute", device.mark("in"))
        if self._fetched is not None:
            device.wait("compute", self._fetched)
        self._run(is_learning=is_learning)
        device.read(memory["counters"], self._counters, "compute")
        self._computed = device.mark("compute")

    def fetch(self, ids: NDArray[np.uint8], starts: NDArray[np.uint8], *, with_ids: bool = True) -> Result:
        """What the documents submitted last have become; the arrays are filled when `complete` returns."""
        device, memory = self._device, self._memory
        device.reach(self._computed)
        num_ids, num_docs = int(self._counters[NUM_TOKENS]), int(self._work["num_docs"])
        num_wanted = num_ids if with_ids else 0
        width = 2 if self._is_split else self.id_type.itemsize
        found = ids[: num_wanted * width].view(np.uint16 if self._is_split else self.id_type)
        high = ids[num_wanted * 2 : num_wanted * 3] if self._is_split else None
        begins = starts.view(np.uint32)[:num_docs]
        device.read(memory["out"], found)
        if high is not None:
            device.read(memory["out"], high, at=2 * self.max_bytes)
        device.read(memory["doc_ids"], begins)
        flagged = np.empty(0, np.int64)
        if self._counters[NUM_FLAGGED]:
            flags = np.empty(int(self._work["num_tiles"]), np.uint32)
            device.read(memory["tile_flags"], flags)
            device.reach(device.mark("out"))
            tiles = np.flatnonzero(flags)
            bits = np.unpackbits(flags[tiles].view(np.uint8), bitorder="little").reshape(-1, 32)
            rows, parts = np.nonzero(bits)
            flagged = tiles[rows] * TILE + 32 * parts
        self._fetched = device.mark("out")
        return Result(num_ids, found, high, begins, flagged, int(self._counters[NUM_MISSED]))

    def complete(self) -> None:
        """Return when what was fetched is there."""
        self._device.reach(self._fetched)

    def copy_ids(self) -> Any:
        """The ids as an array of the device, where they were not split."""
        self._device.reach(self._computed)
        return self._device.as_array(self._memory["out"], self.id_type, int(self._counters[NUM_TOKENS]))

    def _run(self, *, is_learning: bool) -> None:
        self._device.run(self.launches(is_learning=is_learning), self._work)

    def launches(self, *, is_learning: bool) -> list[Launch]:
        """The kernels in order."""
        num_tiles, num_docs = int(self._work["num_tiles"]), int(self._work["num_docs"])
        by_group = -(-num_tiles // (8 * GROUP))  # 8 warps a block, a group each
        at_once = self._device.num_processors
        every = [
            ("clear", min(num_tiles // 8 + 1, 8 * at_once), 256),
            ("mark_documents", num_docs // 256 + 1, 256),
            ("summarize_tiles", -(-num_tiles // 128), 128),
            ("join_groups", by_group, 256),
            ("scan_groups", 1, 32),
            ("settle_tiles", by_group, 256),
            ("encode_tiles", min(-(-num_tiles // 8), 16 * at_once), 256),
            ("merge_missed", min(num_tiles // 16 + 1, 12 * at_once), 128),
            ("merge_long_pieces", min(num_tiles // 4 + 1, 16 * at_once), 128),
            ("merge_sections", min(num_tiles // 4 + 1, 12 * at_once), 128),
            ("join_sections", min(num_tiles // 4 + 1, 8 * at_once), 256),
            ("merge_longer_pieces", min(num_tiles // 2 + 1, 4 * at_once), 512),
            ("learn", min(num_tiles // 64 + 1, 8 * at_once), 256),
            ("sum_groups", by_group, 256),
            ("scan_ids", 1, 32),
            ("place_tiles", by_group, 256),
            ("pack", -(-num_tiles // 8), 256),
            ("place_sections", min(num_tiles // 4 + 1, 8 * at_once), 256),
        ]
        return [Launch(*launch) for launch in every if is_learning or launch[0] != "learn"]


def max_documents(num_bytes: int) -> int:
    """How many documents a batch of so many bytes takes."""
    return num_bytes // 8 + 1024


def scratch_bytes(tables: Tables, num_bytes: int) -> int:
    """Memory in which long pieces of a batch are merged; batches that run one after the other share it."""
    return 2 * num_bytes * (4 if tables.is_narrow else 8) + 64


def _sizes(num_bytes: int, num_documents: int, id_bytes: int) -> dict[str, int]:
    """Bytes of every array."""
    num_tiles = num_bytes // TILE + 2
    num_groups = num_tiles // GROUP + 1
    bits = (num_tiles * TILE + 2 * BEHIND) // 8
    return {
        "text": FRONT + num_bytes + 2 * BEHIND,
        "starts": 4 * num_documents + 64,
        "doc_bits": bits,
        "first_doc": 4 * num_tiles,
        "forward_tile": num_tiles,
        "backward_tile": num_tiles,
        "forward_group": num_groups,
        "backward_group": num_groups,
        "piece_bits": bits,
        "stage": 4 * num_tiles * STAGE,
        "staged": 4 * num_tiles,
        "num_ids": 4 * num_tiles,
        "id_offset": 4 * num_tiles,
        "group_ids": 4 * num_groups,
        "miss_base": 4 * num_tiles,
        "missed": 2 * num_bytes + 512,
        "miss_ids": 2 * num_bytes + 512,
        "long_items": num_bytes // 8 + 64,
        "longer_items": num_bytes // 64 + 64,
        "longer_bytes": num_bytes // 64 + 64,
        "longer_section": num_bytes // 64 + 64,
        "section_piece": num_bytes // 32 + 64,
        "section_from": num_bytes // 32 + 64,
        "section_ids": num_bytes // 32 + 64,
        "arena": 4 * num_bytes + 4 * BEHIND,
        "tile_flags": 4 * num_tiles,
        "counters": 4 * NUM_COUNTERS,
        "out": id_bytes * num_bytes + 4 * BEHIND,
        "doc_ids": 4 * num_documents + 64,
    }
