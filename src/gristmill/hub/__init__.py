"""Datasets of the Hugging Face hub: a name becomes a commit and its files, and a file becomes a copy here.

Everything is pinned: a file is `hf://datasets/owner/name@commit/path`, with the size and the digest that the
hub lists, whether it is read from the cache or from the hub.
"""

from __future__ import annotations

from gristmill.hub.cache import cached_copy, is_pinned, to_fetch
from gristmill.hub.fetch import fetch
from gristmill.hub.listing import HubFile, HubListing, list_dataset
from gristmill.hub.names import ALIASES, default_field, look_up

__all__ = [
    "ALIASES",
    "HubFile",
    "HubListing",
    "cached_copy",
    "default_field",
    "fetch",
    "is_pinned",
    "list_dataset",
    "look_up",
    "to_fetch",
]
