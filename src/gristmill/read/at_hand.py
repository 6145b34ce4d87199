"""Where the bytes of a file are: of a dataset, its copy in the cache, which is fetched first, or the hub."""

from __future__ import annotations

import msgspec

from gristmill.config import ReadConfig
from gristmill.hub.names import is_pinned
from gristmill.read.inputs import InputFile


def at_hand(file: InputFile, config: ReadConfig) -> InputFile:
    """The file as it is opened; what is said about it keeps the name in the plan, wherever it is read."""
    if config.dataset is None or not is_pinned(file.path):
        return file
    from gristmill.hub.cache import cached_copy
    from gristmill.hub.fetch import fetch

    wanted = (file.path, file.num_bytes, file.version, config.cache_dir)
    copy = cached_copy(*wanted) if config.streaming else fetch(*wanted)
    return file if copy is None else msgspec.structs.replace(file, path=copy)
