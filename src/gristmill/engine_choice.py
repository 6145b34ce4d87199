"""Which engine encodes: native where it compiles the tokenizer and agrees with the reference on the probe
text."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from gristmill import _native
from gristmill.batch import flatten_texts
from gristmill.engines import Engine, SpecialTokens
from gristmill.engines.native import compile_native
from gristmill.errors import GristmillError, InputError, UnsupportedTokenizerError
from gristmill.files import write_whole
from gristmill.load.loaded import Loaded
from gristmill.load.probe import PROBE, probe_documents
from gristmill.load.reading import read_whole

log = logging.getLogger(__name__)

PACKAGE = Path(__file__).parent


def choose_engine(loaded: Loaded, choice: str) -> tuple[Engine, str | None]:
    """The engine, and a sentence on why it is not the native one."""
    if choice in ("auto", "native"):
        try:
            return open_native(loaded), None
        except UnsupportedTokenizerError as error:
            if choice == "native":
                raise UnsupportedTokenizerError(f"{loaded.source}: native cannot run it: {error}") from error
            log.info("%s: native cannot run it: %s", loaded.source, error)
            return loaded.build_reference(), str(error)
    if choice != loaded.reference_name:
        raise UnsupportedTokenizerError(
            f"{loaded.source}: has no engine {choice!r}; its reference is {loaded.reference_name!r}"
        )
    return loaded.build_reference(), f"the engine asked for is {choice!r}"


def open_native(loaded: Loaded) -> Engine:
    """The native engine, known to agree with the reference; `UnsupportedTokenizerError` says why there is
    none."""
    if loaded.spec is None:
        raise UnsupportedTokenizerError(loaded.why_not_native)
    native = compile_native(loaded.spec)
    key = _check_key(loaded)
    if not _is_remembered(key):
        check_agreement(native, loaded)
        _remember(key)
    return native


def check_agreement(native: Engine, loaded: Loaded) -> None:
    """Raise unless both engines give the same ids for the probe, special tokens as text and as tokens."""
    assert loaded.spec is not None
    reference = loaded.build_check()
    documents = probe_documents(token.content for token in loaded.spec.added_tokens)
    buffer, offsets = flatten_texts(documents)
    policies: tuple[SpecialTokens, ...] = ("text", "parse")
    for policy in policies:
        ours, our_ends = native.encode_batch(buffer, offsets, special_tokens=policy, num_threads=1)
        try:
            theirs, their_ends = reference.encode_batch(buffer, offsets, special_tokens=policy, num_threads=1)
        except InputError as error:
            raise UnsupportedTokenizerError(f"its reference fails on the probe text: {error}") from error
        for i, document in enumerate(documents):
            if not np.array_equal(
                ours[our_ends[i] : our_ends[i + 1]], theirs[their_ends[i] : their_ends[i + 1]]
            ):
                raise UnsupportedTokenizerError(
                    f"its ids differ from the reference's on a probe text, {document[:40]!r} "
                    f"(special tokens as {policy})"
                )


# A passed check is remembered on disk, so that loading need not build the reference: half a second for a
# large vocabulary. The name of the file says all that was compared; its content is the name again, so a
# damaged one counts for nothing.


def cache_folder() -> Path:
    """Where results that can be computed again are kept: $GRISTMILL_CACHE, or the platform's folder for
    such."""
    if chosen := os.environ.get("GRISTMILL_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "gristmill" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gristmill"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gristmill"


def _check_key(loaded: Loaded) -> str:
    parts = [loaded.fingerprint, loaded.reference_version, *_own_versions(), PROBE]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def _own_versions() -> list[str]:
    """Size and time of every file that the native engine is made of: an editable installation changes them
    under one version number."""
    try:
        number = version("gristmill")
    except PackageNotFoundError:
        number = "source"
    files = [Path(_native.__file__), *sorted(PACKAGE.rglob("*.py"))]
    states = [(path.name, path.stat()) for path in files if path.exists()]
    return [number, *(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)]


def _is_remembered(key: str) -> bool:
    return _tried(lambda: read_whole(cache_folder() / "checks" / key, limit=1024) == key.encode()) is True


def _remember(key: str) -> None:
    def write() -> None:
        folder = cache_folder() / "checks"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / key, key.encode())

    _tried(write)


def _tried(call: Callable[[], bool | None]) -> bool | None:
    # A cache that cannot be used costs time, never the result.
    try:
        return call()
    except (OSError, RuntimeError, GristmillError) as error:
        log.info("cache not used: %s", error)
        return None
