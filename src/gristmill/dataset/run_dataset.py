"""A finished run as a dataset: columns that are stored are read where they lie, the others are derived."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gristmill.config import OutputFormat
from gristmill.dataset import one_row
from gristmill.dataset.batch_rows import Empty, Kinds, Row, Taken, narrow_labels, narrower
from gristmill.dataset.documents import DocumentItems, WindowItems
from gristmill.dataset.items import Items, RowItems, SourceRun, find_run
from gristmill.dataset.token_dataset import DatasetColumn, TokenDataset, choose_columns
from gristmill.engines import Offsets
from gristmill.errors import ConfigError, RunError
from gristmill.formats.mapped import BORDERS
from gristmill.job import byte_size
from gristmill.pack import columns as derived
from gristmill.pack.rows import Rows, offsets_of
from gristmill.store import CachedFolder, open_finished

IdType = Literal["int64", "int32"]
DERIVED: dict[str, Callable[[Rows], NDArray[Any]]] = {
    "attention_mask": derived.attention_mask,
    "position_ids": derived.position_ids,
    "segment_ids": derived.segment_ids,
}
ONE_ROW: dict[str, Callable[[list[int], int], NDArray[Any]]] = {
    "attention_mask": one_row.attention_mask,
    "position_ids": one_row.position_ids,
    "segment_ids": one_row.segment_ids,
}
DTYPES: dict[str, np.dtype[Any]] = {
    "attention_mask": np.dtype(np.int8),
    "position_ids": np.dtype(np.int32),
}


def open_dataset(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    sequence_length: int | None = None,
    dtype: IdType | None = "int64",
    format: OutputFormat | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
) -> RunDataset:
    """A finished run, or a conversion, as a dataset of its rows, of its documents, or, of documents with
    `sequence_length`, of windows over all of them; `dtype` is that of ids and labels, None is as they are
    stored. A run in a store is named by its URL; its files are fetched when they are first needed, and copies
    of at most `cache_bytes` kept in `cache_dir`."""
    limit = None if cache_bytes is None else byte_size(cache_bytes, name="cache_bytes")
    store = open_finished(path, cache_dir=cache_dir, cache_bytes=limit)
    run = find_run(store, format)
    if dtype not in (None, "int64", "int32"):
        raise ConfigError(f"{path}: dtype is {dtype!r}; it is int64, int32 or None, as they are stored")
    items = _find_items(run, sequence_length)
    return RunDataset(run, items, columns=columns, dtype=dtype, sequence_length=sequence_length)


def _find_items(run: SourceRun, sequence_length: int | None) -> Items:
    if sequence_length is not None and sequence_length < 1:
        raise ConfigError(f"{run.store}: sequence_length is {sequence_length}; it is a number of tokens")
    if run.layout.sequence_length is None:
        return DocumentItems(run) if sequence_length is None else WindowItems(run, sequence_length)
    if sequence_length not in (None, run.layout.sequence_length):
        raise ConfigError(
            f"{run.store}: its rows have {run.layout.sequence_length} tokens, not {sequence_length}; only a "
            "run of documents (pack.mode documents) can be cut when it is opened"
        )
    return RowItems(run)


class RunDataset(TokenDataset):
    """A run as a dataset; pickled as its path and options, and opened again where it is unpickled."""

    def __init__(
        self,
        run: SourceRun,
        items: Items,
        *,
        columns: Sequence[str] | None,
        dtype: IdType | None,
        sequence_length: int | None,
    ) -> None:
        self._run = run
        self._items = items
        self._dtype = dtype
        self._id_type = run.layout.id_type if dtype is None else np.dtype(dtype)
        # As `pack.columns.labels` has them: -100 must fit.
        stored_labels = np.dtype(np.int32 if run.layout.dtype == "uint16" else np.int64)
        self._label_type = stored_labels if dtype is None else self._id_type
        self._sequence_length = sequence_length
        default: list[DatasetColumn] = ["input_ids", "labels"]
        default += [name for name in ("attention_mask", "position_ids") if name in items.columns]
        self.columns = choose_columns(columns, default, what=str(run.store))
        self.row_length = items.length
        self.identity = f"{run.identity}:{items.length or 0}"
        self.fingerprint = run.manifest.fingerprint
        self.vocab_size = run.manifest.vocab_size
        self._is_masked = run.layout.mask_first_token and "labels" not in items.columns
        self._is_paired = "labels" in self.columns and self._label_type == self._id_type

    def __len__(self) -> int:
        return self._items.num_items

    def __repr__(self) -> str:
        what = "documents" if self.row_length is None else f"rows of {self.row_length}"
        return f"<gristmill.open({str(self._run.store)!r}): {len(self):,} {what}, {', '.join(self.columns)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        options = {
            "columns": self.columns,
            "sequence_length": self._sequence_length,
            "dtype": self._dtype,
            "format": self._run.format,
        }
        store = self._run.store
        if isinstance(store, CachedFolder):
            cached = {"cache_dir": store.cache_dir, "cache_bytes": store.cache_bytes}
            return _reopen, (store.url, options | cached, self.identity)
        return _reopen, (os.path.abspath(store.path), options, self.identity)

    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[Any]) -> Row:
        # One row is the most frequent of all calls; `take` gives the same.
        if type(index) is int and self.row_length is not None:
            return self._one(self._place(index))
        return super().__getitem__(index)

    def _one(self, place: int) -> Row:
        """All columns of one row."""
        ids = self._items.ids(place).astype(self._id_type, copy=self._dtype is not None)
        row: Row = {"input_ids": ids}
        is_full = not self._items.may_pad(place)
        borders: list[int] | None = None
        for name in self.columns[1:]:
            if name in self._items.columns and name != BORDERS:
                row[name] = self._items.stored(name, place).astype(self._kind(name))
            elif is_full and name == "labels" and not self._is_masked:
                row[name] = ids.astype(self._label_type)
            elif is_full and name == "attention_mask":
                row[name] = np.ones(len(ids), np.int8)
            else:
                borders = borders or self._borders(place, len(ids))
                row[name] = self._one_column(name, ids, borders, place)
        return row

    def _one_column(self, name: str, ids: NDArray[Any], borders: list[int], place: int) -> NDArray[Any]:
        if name == BORDERS:
            return np.array(borders, np.int32)
        if name == "labels":
            starts = self._items.starts(place).tolist() if self._is_masked else []
            return one_row.labels(ids, self._label_type, borders, starts)
        return ONE_ROW[name](borders, len(ids))

    def _borders(self, place: int, length: int) -> list[int]:
        borders: list[int] = self._items.borders(place).tolist()
        is_from_0 = borders[:1] == [0]
        if not is_from_0 or borders[-1] > length or any(a >= b for a, b in itertools.pairwise(borders)):
            raise self._bad_borders()
        return borders

    def _bad_borders(self) -> RunError:
        return RunError(
            f"{self._run.store}: borders of a row do not rise from 0 to its length; "
            "gristmill verify says more"
        )

    def _kind(self, name: str) -> np.dtype[Any]:
        return self._label_type if name == "labels" else DTYPES[name]

    def take(self, items: Offsets, empty: Empty = np.empty) -> Taken:
        """Columns of some items."""
        places = items.tolist()
        if self.row_length is None:
            found = [
                self._derive(self._items.ids(place)[None].astype(self._id_type), items[at : at + 1])
                for at, place in enumerate(places)
            ]
            return {name: [columns[name][0] for columns in found] for name in self.columns}
        # In the order of the shards, so that each is opened once where there are more than can be open.
        order = np.argsort(items, kind="stable").tolist()
        # Ids and labels in one piece: the C library gives two of them back to the system each time, and to
        # touch new pages costs more than to read the rows.
        both = empty((2 if self._is_paired else 1, len(places), self.row_length), self._id_type)
        ids = both[0]
        for at in order:
            ids[at] = self._items.ids(places[at])
        return self._derive(ids, items, both[1] if self._is_paired else None)

    def take_narrow(self, items: Offsets, empty: Empty) -> tuple[Taken, Kinds]:
        """Ids as they lie in the shards; labels that are the ids share their memory."""
        ids = self._narrow_ids(items, empty) if self.row_length is not None and len(items) else None
        if ids is None:
            return self.take(items, empty), {}
        taken = self._derive(ids, items, ids)
        wanted = {"input_ids": self._id_type, "labels": self._label_type}
        return taken, narrower(taken, {name: kind for name, kind in wanted.items() if name in taken})

    def _narrow_ids(self, items: Offsets, empty: Empty) -> NDArray[Any] | None:
        """As they are stored, side by side; None where that is of two kinds."""
        found = self._items.gather(items, empty) if isinstance(self._items, RowItems) else None
        if found is not None:
            return found
        order, places = np.argsort(items, kind="stable").tolist(), items.tolist()
        kind = self._items.ids(places[order[0]]).dtype
        ids = empty((len(places), self.row_length or 0), kind)
        for at in order:
            own = self._items.ids(places[at])
            if own.dtype != kind:  # a file that is not as the others are
                return None
            ids[at] = own
        return ids

    def _derive(self, ids: NDArray[Any], items: Offsets, spare: NDArray[Any] | None = None) -> Taken:
        """All columns of items of one length, whose ids these are; `spare` is room for labels, or the ids
        where labels need no room of their own."""
        taken: Taken = {"input_ids": ids}
        is_full = not self._items.any_may_pad(items)
        places: list[int] = items.tolist()
        rows: Rows | None = None
        for name in self.columns[1:]:
            if name == BORDERS:
                taken[name] = [np.array(self._borders(place, ids.shape[1]), np.int32) for place in places]
            elif name in self._items.columns:
                taken[name] = self._stored(name, places)
            elif is_full and name == "labels" and not self._is_masked:
                taken[name] = np.empty(ids.shape, self._label_type) if spare is None else spare
                if spare is not ids:
                    taken[name][:] = ids
            elif is_full and name == "attention_mask":
                taken[name] = np.ones(ids.shape, np.int8)
            else:
                rows = rows or self._rows(ids, places)
                taken[name] = self._derive_column(name, rows, is_narrow=spare is ids)
        return taken

    def _stored(self, name: str, places: list[int]) -> NDArray[Any]:
        assert self.row_length is not None
        column = np.empty((len(places), self.row_length), self._kind(name))
        for at, place in enumerate(places):
            column[at] = self._items.stored(name, place)
        return column

    def _derive_column(self, name: str, rows: Rows, *, is_narrow: bool) -> NDArray[Any]:
        if name == "labels":
            labels = derived.labels(rows, mask_first_token=self._is_masked)
            kind = narrow_labels(rows.ids, self._label_type) if is_narrow else self._label_type
            return labels.astype(kind, copy=False)
        return DERIVED[name](rows)

    def _rows(self, ids: NDArray[Any], places: list[int]) -> Rows:
        """The items as rows with segments, as packing has them."""
        borders = [self._items.borders(place) for place in places]
        if not all(len(own) and own[0] == 0 for own in borders):
            raise self._bad_borders()
        flat = np.concatenate([np.empty(0, np.int64), *borders])
        lengths = np.diff(flat)[flat[1:] != 0] if len(flat) else flat
        counts = np.array([len(own) - 1 for own in borders], np.int64)
        starts = [self._items.starts(place) for place in places] if self._is_masked else []
        firsts = (
            np.concatenate([np.empty(0, np.int64), *starts]) if starts else np.zeros(len(lengths), np.int64)
        )
        ends = [int(own[-1]) for own in borders]
        if np.any(lengths <= 0) or max(ends, default=0) > ids.shape[1] or len(firsts) != len(lengths):
            raise self._bad_borders()
        nothing = np.zeros(len(lengths), np.int64)
        return Rows(ids, offsets_of(counts), lengths, nothing, firsts, np.zeros(len(ids), np.int64))


def _reopen(path: str, options: dict[str, Any], identity: str) -> RunDataset:
    dataset = open_dataset(path, **options)
    if dataset.identity != identity:
        raise RunError(f"{path}: is not the run any more that was pickled; open it again")
    return dataset
