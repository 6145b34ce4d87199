"""Compiled tokenizers kept on disk: a large one is there in a twentieth of the time that compiling it takes.

A file's name says all that decides what is in it: the tokenizer's own files, the options, this program, and
the libraries it was compared with. A damaged or missing file costs time, never the result."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from isal import isal_zlib

from gristmill import _native
from gristmill.engines.native import NativeEngine, Program
from gristmill.errors import GristmillError
from gristmill.files import write_whole
from gristmill.load import LoadOptions
from gristmill.load.folder import ROLE_FILES, TOKENIZER_JSON
from gristmill.load.reading import read_whole

if TYPE_CHECKING:
    from gristmill.load.loaded import Loaded

log = logging.getLogger(__name__)

T = TypeVar("T")
FOLDER = "compiled"
MAX_KEPT = 24
"""Files; the oldest go first. Each has some megabytes."""
MAX_BYTES = 1 << 28
CRC_BYTES = 4
PACKAGE = Path(__file__).parent
OWN_CODE = (".", "load", "pattern", "engines")
REFERENCES = ("tokenizers", "tiktoken", "sentencepiece")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a tokenizer beside its ids."""

    source: str
    fingerprint: str
    vocab_size: int
    specials: Mapping[str, int]
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    unk_id: int | None


class Known(NamedTuple):
    """A tokenizer that was compiled and compared with its reference before."""

    facts: Facts
    engine: NativeEngine


class _Table(msgspec.Struct, frozen=True, tag=True):
    dtype: str
    data: bytes


class _Model(msgspec.Struct, frozen=True, tag=True):
    data: bytes


class _Kept(msgspec.Struct, frozen=True):
    facts: Facts
    strips_prefix: bool
    steps: list[tuple[str, list[_Table | _Model | str | int | bool]]]


def facts_of(loaded: Loaded) -> Facts:
    """The facts of a tokenizer that was loaded whole."""
    return Facts(**{name: getattr(loaded, name) for name in Facts.__struct_fields__})


def recall(path: Path, options: LoadOptions) -> Known | None:
    """The tokenizer of a file as it was compiled before, or None."""
    return tried(lambda: _recall(path, options))


def remember(path: Path, options: LoadOptions, facts: Facts, engine: NativeEngine) -> None:
    """Keep a compiled tokenizer for the next time."""
    tried(lambda: _remember(path, options, facts, engine))


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


def own_versions() -> list[str]:
    """Size and times of every file that decides what is compiled: an editable installation changes them
    under one version number, and another installation has other times."""
    files = [Path(_native.__file__)]
    for folder in OWN_CODE:
        files += sorted((PACKAGE / folder).glob("*.py"))
    return [_state(file) for file in files]


def _recall(path: Path, options: LoadOptions) -> Known | None:
    kept = cache_folder() / FOLDER / _key(path, options)
    if not kept.exists():
        return None
    content = read_whole(kept, limit=MAX_BYTES)
    crc, body = content[:CRC_BYTES], memoryview(content)[CRC_BYTES:]
    if isal_zlib.crc32(body).to_bytes(CRC_BYTES, "little") != crc:
        log.info("%s: is damaged and not used", kept)
        return None
    entry = msgspec.msgpack.decode(body, type=_Kept)
    steps = [(name, tuple(map(_unpacked, arguments))) for name, arguments in entry.steps]
    facts = msgspec.structs.replace(entry.facts, source=str(path))
    return Known(facts, NativeEngine(Program(steps, entry.strips_prefix)))


def _remember(path: Path, options: LoadOptions, facts: Facts, engine: NativeEngine) -> None:
    steps = [(name, list(map(_packed, arguments))) for name, arguments in engine.program.steps]
    body = msgspec.msgpack.encode(_Kept(facts, engine.program.strips_prefix, steps))
    folder = cache_folder() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    crc = isal_zlib.crc32(body).to_bytes(CRC_BYTES, "little")
    write_whole(folder / _key(path, options), crc + body)
    _forget_oldest(folder)


def _forget_oldest(folder: Path) -> None:
    by_age = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in by_age[:-MAX_KEPT]:
        file.unlink(missing_ok=True)  # another process may be tidying too


def _key(path: Path, options: LoadOptions) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for part in _parts(path, options):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(path: Path, options: LoadOptions) -> Iterable[bytes]:
    yield path.name.encode("utf-8", "surrogateescape")  # the encoding of a rank file may follow from it
    yield read_whole(path)
    if path.name == TOKENIZER_JSON:
        for name in ROLE_FILES:
            roles = path.parent / name
            yield read_whole(roles) if roles.is_file() else b""
    yield msgspec.json.encode((options.encoding, options.pattern, options.special_tokens))
    yield "\0".join([*own_versions(), *map(_package_state, REFERENCES)]).encode("utf-8", "surrogateescape")


def _package_state(name: str) -> str:
    found = find_spec(name)
    return _state(Path(found.origin)) if found is not None and found.origin else f"no {name}"


def _state(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _packed(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return _Table(argument.dtype.str, argument.tobytes())
    return _Model(argument.pack()) if isinstance(argument, _native.Model) else argument


def _unpacked(argument: Any) -> Any:
    if isinstance(argument, _Table):
        return np.frombuffer(argument.data, dtype=argument.dtype)
    return _native.Model.unpack(argument.data) if isinstance(argument, _Model) else argument


def tried(call: Callable[[], T]) -> T | None:
    """The result of the call, or None: a cache that cannot be used costs time, never the result."""
    try:
        return call()
    except (OSError, RuntimeError, ValueError, GristmillError, msgspec.MsgspecError) as error:
        log.info("cache not used: %s", error)
        return None
