"""Documents -> an inventory: pieces are counted in native code, and runs are spilled when memory is short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from gristmill import _native
from gristmill.drafts import Draft, reported
from gristmill.engines import Bytes, Offsets
from gristmill.errors import ConfigError, InputError
from gristmill.training.cut import Cut, build_cut, encode_cut
from gristmill.training.first_size import expected_pieces
from gristmill.training.inventory import Inventory, Pieces, Summary, merge_inventories, write_draft

LEAST_BYTES = 256 << 10
WhenFull = Literal["spill", "forget"]
OnPieces = Callable[[Pieces], None]
"""Called with all that was counted."""


class _Gathered(NamedTuple):
    pieces: Pieces
    dropped_count: int
    max_undercount: int


class PieceCounter:
    """Counts the pieces of documents below `max_bytes`, in one thread.

    spill: what does not fit goes to sorted runs in the folder, and the counts are exact.
    forget: the rarest pieces are dropped, and the inventory says by how much a count may be too low.

    Where `text_bytes`, about what will be counted, is told, memory is set aside for it at once. `begun` has
    counted some already, cut in the same way, and spills."""

    def __init__(
        self,
        cut: Cut,
        folder: Path,
        *,
        max_bytes: int,
        when_full: WhenFull = "spill",
        text_bytes: int = 0,
        begun: _native.PieceCounter | None = None,
    ) -> None:
        if max_bytes < LEAST_BYTES:
            raise ConfigError(f"{max_bytes} bytes of memory are too few to count; give {LEAST_BYTES} or more")
        if begun is not None:
            assert when_full == "spill"
            begun.allow(max_bytes)
        self._counter = begun or _native.PieceCounter(
            build_cut(cut), max_bytes, when_full == "forget", expected_pieces(text_bytes)
        )
        self._about = encode_cut(cut)
        self._folder = folder
        self._number = 0
        self.runs: list[Path] = []
        """Inventories spilled so far."""

    def add(self, text: Bytes, offsets: Offsets, *, weight: int = 1) -> None:
        """Count documents of one flat buffer; each piece counts `weight` times."""
        if weight < 0:
            raise ConfigError(f"a weight of {weight}; weights are not negative")
        try:
            self._counter.add(text, offsets, weight, self._spill)
        except (ValueError, OverflowError) as error:
            raise InputError(str(error)) from error

    def twin(self, number: int) -> PieceCounter:
        """An empty counter of the same kind for another thread; `number`, from 1, tells their runs apart."""
        twin = object.__new__(PieceCounter)
        twin.__dict__.update(self.__dict__, _counter=self._counter.twin(), _number=number, runs=[])
        return twin

    def finish(
        self, path: Path, twins: Sequence[PieceCounter] = (), *, on_pieces: OnPieces | None = None
    ) -> Summary:
        """Write everything that this and its twins have counted as one inventory, and remove the runs.

        Where there are no runs, `on_pieces` is told the pieces before they are written."""
        for twin in twins:
            self.runs += twin.runs
            twin.runs = []
        if not self.runs and on_pieces is not None:
            return self._tell_and_write(path, twins, on_pieces)
        if not self.runs:
            return write_draft(path, lambda draft: self._write(draft, twins))
        self._spill(twins)
        report = merge_inventories(self.runs, path)
        self.discard()
        return report.summary

    def take(self) -> Pieces:
        """Everything counted, in memory; nothing is counted after that."""
        if self.runs:
            path = self._folder / "all.pieces"
            self.finish(path)
            return Inventory(path).load()
        return self._gather(()).pieces

    def discard(self) -> None:
        """Remove the runs."""
        for run in self.runs:
            with reported(run):
                run.unlink(missing_ok=True)
        self.runs.clear()

    @property
    def memory_bytes(self) -> int:
        """What the counter holds now."""
        return self._counter.memory_bytes

    @property
    def num_pieces(self) -> int:
        """Distinct pieces in memory now."""
        return self._counter.num_pieces

    def _spill(self, twins: Sequence[PieceCounter] = ()) -> None:
        path = self._folder / f"run-{self._number}-{len(self.runs):05d}.pieces"
        write_draft(path, lambda draft: self._write(draft, twins))
        self.runs.append(path)

    def _gather(self, twins: Sequence[PieceCounter]) -> _Gathered:
        try:
            text, offsets, counts, *rest = self._counter.gather([twin._counter for twin in twins])
        except OverflowError as error:
            raise InputError(str(error)) from error
        return _Gathered(Pieces(text, offsets, counts), *rest)

    def _tell_and_write(self, path: Path, twins: Sequence[PieceCounter], on_pieces: OnPieces) -> Summary:
        pieces, dropped, undercount = self._gather(twins)
        on_pieces(pieces)

        def write(draft: Draft) -> Summary:
            return Summary(*_native.write_inventory(self._about, *pieces, dropped, undercount, draft.write))

        return write_draft(path, write)

    def _write(self, draft: Draft, twins: Sequence[PieceCounter]) -> Summary:
        try:
            return Summary(
                *self._counter.spill(self._about, draft.write, [twin._counter for twin in twins])
            )
        except OverflowError as error:
            raise InputError(str(error)) from error
