"""The documents of a finished run, whole or as windows of one stream."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.dataset.items import Cache, SourceRun
from gristmill.engines import Offsets
from gristmill.errors import ConfigError, RunError
from gristmill.formats import FORMATS, PayloadFormat
from gristmill.formats.payload import PayloadView
from gristmill.formats.protocol import ShardView

MAX_OPEN_SHARDS = 128
"""Each holds up to three files open."""


class DocumentItems:
    """Whole documents, each with its own length."""

    length = None
    columns: frozenset[str] = frozenset()

    def __init__(self, run: SourceRun) -> None:
        shards = run.manifest.shards
        self._starts = [0, *itertools.accumulate(shard.num_documents for shard in shards)]
        self._opened: Cache[int, ShardView] = Cache(lambda at: _view(run, at), MAX_OPEN_SHARDS)
        self.num_items = self._starts[-1]

    def ids(self, item: int) -> NDArray[Any]:
        """BOS and EOS included."""
        at = bisect_right(self._starts, item) - 1
        return self._opened[at].ids(item - self._starts[at])

    def stored(self, name: str, item: int) -> NDArray[Any]:
        raise AssertionError("documents have no columns")

    def may_pad(self, item: int) -> bool:
        """Documents are not padded."""
        return False

    def any_may_pad(self, items: Offsets) -> bool:
        """Documents are not padded."""
        return False

    def borders(self, item: int) -> NDArray[Any]:
        """One segment."""
        return np.array([0, len(self.ids(item))], np.int32)

    def starts(self, item: int) -> Offsets:
        """One segment, from the start."""
        return np.zeros(1, np.int64)


class _Piece(NamedTuple):
    """A part of a document in a window."""

    start: int
    """Its first token's place in the document."""
    length: int


class WindowItems:
    """Windows of one length over all documents, one after the other in the order of the run; tokens at the
    end that fill no window are left out."""

    columns: frozenset[str] = frozenset()

    def __init__(self, run: SourceRun, length: int) -> None:
        if not isinstance(FORMATS[run.format], PayloadFormat):
            raise ConfigError(
                f"{run.store}: documents in {run.format} are no stream to cut into rows of {length}; "
                f"gristmill convert {run.store} --to megatron, or tokenize with pack.mode concat"
            )
        self._starts = [0, *itertools.accumulate(shard.num_tokens for shard in run.manifest.shards)]
        self._opened: Cache[int, PayloadView] = Cache(lambda at: _stream(run, at), MAX_OPEN_SHARDS)
        self.length = length
        self.num_items = self._starts[-1] // length

    def ids(self, item: int) -> NDArray[Any]:
        """Of one shard where they lie; those of several are joined."""
        parts = [view.stream(start, stop) for view, start, stop in self._spans(item)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def stored(self, name: str, item: int) -> NDArray[Any]:
        raise AssertionError("documents have no columns")

    def may_pad(self, item: int) -> bool:
        """Windows are full."""
        return False

    def any_may_pad(self, items: Offsets) -> bool:
        """Windows are full."""
        return False

    def borders(self, item: int) -> NDArray[Any]:
        """Where documents end in the window, and where it ends."""
        lengths = [piece.length for piece in self._pieces(item)]
        return np.array([0, *itertools.accumulate(lengths)], np.int32)

    def starts(self, item: int) -> Offsets:
        """Of each part of a document: its place there."""
        return np.array([piece.start for piece in self._pieces(item)], np.int64)

    def _spans(self, item: int) -> Iterator[tuple[PayloadView, int, int]]:
        """The shards a window lies in, and from where to where in each."""
        begin, end = item * self.length, (item + 1) * self.length
        at = bisect_right(self._starts, begin) - 1
        while begin < end:
            first, last = self._starts[at], self._starts[at + 1]
            if last > begin:
                yield self._opened[at], begin - first, min(end, last) - first
            begin, at = max(begin, min(end, last)), at + 1

    def _pieces(self, item: int) -> Iterator[_Piece]:
        for view, begin, end in self._spans(item):
            document = bisect_right(range(view.num_items), begin, key=lambda i: view.span(i)[1])
            while begin < end:
                start, stop = view.span(document)
                yield _Piece(begin - start, min(stop, end) - begin)
                begin, document = min(stop, end), document + 1


def _view(run: SourceRun, at: int) -> ShardView:
    shard = run.manifest.shards[at]
    view = FORMATS[run.format].read(run.stem(shard), run.layout)
    if view.num_items != shard.num_documents:
        raise RunError(
            f"{run.store}: shard {shard.name} holds {view.num_items} documents, its record says "
            f"{shard.num_documents}; gristmill verify says more"
        )
    return view


def _stream(run: SourceRun, at: int) -> PayloadView:
    view = _view(run, at)
    assert isinstance(view, PayloadView)
    num_tokens = run.manifest.shards[at].num_tokens
    if len(view.tokens) != num_tokens or (num_tokens and view.span(view.num_items - 1)[1] != num_tokens):
        raise RunError(
            f"{run.store}: shard {run.manifest.shards[at].name} is damaged; gristmill verify says more"
        )
    return view
