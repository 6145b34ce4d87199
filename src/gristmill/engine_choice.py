"""Which engine encodes: native where it compiles the tokenizer and agrees with the reference on the probe
text."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from gristmill.batch import flatten_texts
from gristmill.engine_cache import cache_folder, own_versions, tried
from gristmill.engines import Engine, SpecialTokens
from gristmill.engines.native import NativeEngine, compile_native
from gristmill.errors import InputError, UnsupportedTokenizerError
from gristmill.files import write_whole
from gristmill.load.loaded import Loaded
from gristmill.load.probe import PROBE, probe_documents
from gristmill.load.reading import read_whole

if TYPE_CHECKING:
    from gristmill.engines.cuda.late import LateEngine
    from gristmill.engines.cuda.slots import OnDevice

log = logging.getLogger(__name__)

MAX_CHECK_S = 5.0
"""A hundred times what the references in use take; a hostile pattern takes minutes."""


def choose_engine(loaded: Loaded, choice: str) -> tuple[Engine, str | None]:
    """The engine, and a sentence on why it is not the native one."""
    if choice == "cuda":
        return open_on_gpu(loaded), None
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


def open_native(loaded: Loaded) -> NativeEngine:
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


def open_on_gpu(loaded: Loaded, native: NativeEngine | None = None) -> Engine:
    """The native engine's tables on a GPU, with the native engine beside them for what a GPU cannot do."""
    from gristmill.engines.cuda.engine import open_cuda

    with _refused_by_gpu(loaded):
        native = native or open_native(loaded)
        assert loaded.spec is not None
        return open_cuda(loaded.spec, native)


def open_for_others(loaded: Loaded, native: NativeEngine) -> OnDevice:
    """The native engine's tables on a GPU, for other processes."""
    from gristmill.engines.cuda import engine

    with _refused_by_gpu(loaded):
        assert loaded.spec is not None
        return engine.build_on_gpu(loaded.spec, native)


@contextmanager
def _refused_by_gpu(loaded: Loaded) -> Iterator[None]:
    try:
        yield
    except UnsupportedTokenizerError as error:
        raise UnsupportedTokenizerError(f"{loaded.source}: cuda cannot run it: {error}") from error


def open_on_gpu_later(native: NativeEngine, load: Callable[[], Loaded]) -> LateEngine:
    """The native engine, and the same ids from a GPU as soon as one is open."""
    from gristmill.engines.cuda.late import LateEngine

    return LateEngine(native, lambda: open_on_gpu(load(), native))


def check_agreement(native: Engine, loaded: Loaded) -> None:
    """Raise unless both engines give the same ids for the probe, special tokens as text and as tokens."""
    assert loaded.spec is not None
    reference = loaded.build_check()
    documents = probe_documents(token.content for token in loaded.spec.added_tokens)
    buffer, offsets = flatten_texts(documents)
    policies: tuple[SpecialTokens, ...] = ("text", "parse")
    spent_s = 0.0
    shortest_first = sorted(enumerate(documents), key=lambda item: len(item[1]))
    for policy in policies:
        ours, ends = native.encode_batch(buffer, offsets, special_tokens=policy, num_threads=1)
        for i, document in shortest_first:
            if spent_s > MAX_CHECK_S:
                raise UnsupportedTokenizerError(f"its reference takes over {MAX_CHECK_S:.0f} s for a page")
            one = buffer[offsets[i] : offsets[i + 1]], offsets[i : i + 2] - offsets[i]
            start = time.process_time()  # no matter how busy the machine is
            try:
                theirs, _ = reference.encode_batch(*one, special_tokens=policy, num_threads=1)
            except InputError as error:
                raise UnsupportedTokenizerError(f"its reference fails on the probe text: {error}") from error
            spent_s += time.process_time() - start
            if not np.array_equal(ours[ends[i] : ends[i + 1]], theirs):
                raise UnsupportedTokenizerError(
                    f"its ids differ from the reference's on a probe text, {document[:40]!r} "
                    f"(special tokens as {policy})"
                )


# A passed check is remembered on disk beside the compiled tokenizers of files, for those that come from
# elsewhere: building the reference takes half a second for a large vocabulary. The name of the file says all
# that was compared; its content is the name again, so a damaged one counts for nothing.


def _check_key(loaded: Loaded) -> str:
    parts = [loaded.fingerprint, loaded.digest, loaded.reference_version, *own_versions(), PROBE]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def _is_remembered(key: str) -> bool:
    return tried(lambda: read_whole(cache_folder() / "checks" / key, limit=1024) == key.encode()) is True


def _remember(key: str) -> None:
    def write() -> None:
        folder = cache_folder() / "checks"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / key, key.encode())

    tried(write)
