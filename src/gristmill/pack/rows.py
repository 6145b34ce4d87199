"""What passes through packing: stretches of documents in, rows of equal length out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.engines import Ids, Offsets

RowIds = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Segments:
    """Stretches of documents: the ids of segment i are `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids
    offsets: Offsets
    documents: Offsets
    """Of each segment: the key of its document, (unit << 32) + its number among the unit's documents."""
    starts: Offsets
    """Of each segment: its first token's place in the document."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one length, and the segments each was made of."""

    ids: NDArray[Any]
    """Shape (rows, sequence_length); uint16 or uint32; padding holds the pad id."""
    row_offsets: Offsets
    """Segments of row r are those from `row_offsets[r]` to `row_offsets[r + 1]`; they follow one another from
    the row's first token, and padding is what comes after the last."""
    lengths: Offsets
    """Of each segment: its number of tokens."""
    documents: Offsets
    starts: Offsets
    num_repeated: int
    """Tokens that stand in an earlier row too, by overlap."""
