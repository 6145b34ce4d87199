"""What the shards of a run look like: settled once, the same for all of them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from gristmill.config import OutputFormat, PackMode


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for every shard of a run, settled once the tokenizer is known."""

    mode: PackMode
    sequence_length: int | None
    """Absent where documents are written."""
    formats: tuple[OutputFormat, ...]
    dtype: Literal["uint16", "uint32"]
    bos_id: int | None
    """Put before each document; absent: none is."""
    eos_id: int | None
    """Put after each document; absent: none is."""
    pad_id: int | None
    tokenizer: str
    """Its name, for people."""
    fingerprint: str
    vocab_size: int
    mask_first_token: bool
    """Labels of the first token of each document are -100."""

    @property
    def id_type(self) -> np.dtype[Any]:
        """As stored: little-endian everywhere."""
        return np.dtype("<u2" if self.dtype == "uint16" else "<u4")
