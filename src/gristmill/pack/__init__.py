"""How documents become rows of one length: a packer a mode, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from gristmill.config import PackConfig
from gristmill.errors import ConfigError
from gristmill.pack.best_fit import BestFitPacker
from gristmill.pack.concat import ConcatPacker
from gristmill.pack.pad import PadPacker
from gristmill.pack.rows import Rows, Segments


class Packer(Protocol):
    """Takes documents in order and gives rows; the rows do not depend on how many come at a time."""

    def add(self, segments: Segments) -> Rows:
        """Rows that are made now that these segments, whose ids have the rows' dtype, have come too."""
        ...

    def finish(self, *, is_last: bool) -> tuple[Rows, Segments]:
        """The last rows, and what fills none: a tail for the packer that ends the run, or, from that one
        (`is_last`), what is dropped; only tokens that stand in no row. The packer is then as new."""
        ...


PACKERS: dict[str, Callable[..., Packer]] = {
    "concat": ConcatPacker,
    "best_fit": BestFitPacker,
    "pad": PadPacker,
}
"""`documents` has none: there are no rows."""


def make_packer(config: PackConfig, *, pad_id: int, dtype: DTypeLike) -> Packer:
    """A packer for `config.mode`, which is one of PACKERS."""
    if config.overlap >= config.sequence_length:
        raise ConfigError(
            f"pack.overlap is {config.overlap}, which leaves nothing new in a row of "
            f"{config.sequence_length} tokens; set it below pack.sequence_length"
        )
    kind: np.dtype[Any] = np.dtype(dtype)
    assert kind in (np.uint16, np.uint32)
    assert config.mode in PACKERS
    if not 0 <= pad_id <= np.iinfo(kind).max:
        raise ConfigError(f"pack.pad_id is {pad_id}, which {kind} does not hold; set write.dtype to uint32")
    return PACKERS[config.mode](config, pad_id=pad_id, dtype=kind)
