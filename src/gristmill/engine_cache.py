"""Compiled tokenizers and patterns kept on disk: large ones are there in a twentieth of the time that
compiling takes.

A file's name says all that decides what is in it: the tokenizer's own files, the options, this program, and
the libraries it was compared with. A damaged or missing file costs time, never the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from blake3 import blake3
from isal import isal_zlib

from gristmill import _native
from gristmill.config import DEFAULT_CACHE_BYTES
from gristmill.errors import GristmillError
from gristmill.files import write_whole
from gristmill.load import LoadOptions
from gristmill.load.folder import ROLE_FILES, TOKENIZER_JSON
from gristmill.load.reading import digest_whole, read_whole

if TYPE_CHECKING:  # engines need NumPy, which takes as long to import as most of this
    from gristmill.engines.native import NativeEngine
    from gristmill.load.loaded import Loaded

T = TypeVar("T")
Steps = list[tuple[str, list[Any]]]
"""Calls of a native build, with their arguments."""
FOLDER = "compiled"
MAX_KEPT = 24
"""Files; the oldest go first. Each has some megabytes."""
MAX_BYTES = 1 << 28
CRC_BYTES = 4
PACKAGE = os.path.dirname(__file__)
OWN_CODE = ("", "load", "pattern", "engines", "training")
VIEWS: dict[str, Literal["B", "H"]] = {"|u1": "B", "<u2": "H"}
"""Of tables, as Python's own arrays have them."""
REFUSALS = (
    *(OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    MemoryError,
)
"""Of native code and of Python, where what was kept is not what is expected."""
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


class Known(msgspec.Struct, frozen=True):
    """A tokenizer that was compiled and compared with its reference before."""

    facts: Facts
    steps: Steps
    strips_prefix: bool
    native: _native.Engine
    """What encodes, as the native core has it."""

    def engine(self) -> NativeEngine:
        """The same, as the rest of the program has it."""
        from gristmill.engines.native import NativeEngine, Program

        steps = [(name, tuple(map(_with_table, arguments))) for name, arguments in self.steps]
        return NativeEngine(Program(steps, self.strips_prefix), native=self.native)


class _Table(msgspec.Struct, frozen=True, tag=True):
    dtype: str
    data: bytes


class _Model(msgspec.Struct, frozen=True, tag=True):
    data: memoryview
    """Of what was read: most of it."""


_KeptSteps = list[tuple[str, list[_Table | _Model | str | int | bool]]]


class _Kept(msgspec.Struct, frozen=True):
    facts: Facts
    strips_prefix: bool
    steps: _KeptSteps


def facts_of(loaded: Loaded) -> Facts:
    """The facts of a tokenizer that was loaded whole."""
    return Facts(**{name: getattr(loaded, name) for name in Facts.__struct_fields__})


def recall(path: Path, options: LoadOptions, *, state: str | None = None) -> Known | None:
    """The tokenizer of a file as it was compiled before, or None.

    With `state`, which is `program_state()`, it is native for the most part and needs no NumPy, so that a
    thread can do it while modules are imported."""
    return tried(lambda: _recall(path, options, state))


def remember(path: Path, options: LoadOptions, facts: Facts, engine: NativeEngine) -> None:
    """Keep a compiled tokenizer for the next time."""
    tried(lambda: _remember(path, options, facts, engine))


def recall_cut(*names: str | None) -> Steps | None:
    """How text is cut, as it was compiled before for what the user calls it, or None; needs no NumPy."""
    return tried(lambda: _recall_cut(names))


def remember_cut(*names: str | None, steps: Steps) -> None:
    """Keep it for the next time, unless it is kept already."""
    tried(lambda: _remember_cut(names, steps))


def build_of(steps: Steps) -> _native.Build:
    """What the calls put together."""
    build = _native.Build()
    for name, arguments in steps:
        if name.startswith("_"):
            raise ValueError(f"{name} is no step of a build")
        getattr(build, name)(*map(_with_view, arguments))
    return build


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
    files = [_native.__file__]
    for folder in OWN_CODE:
        with suppress(FileNotFoundError), os.scandir(os.path.join(PACKAGE, folder)) as entries:
            files += sorted(entry.path for entry in entries if entry.name.endswith(".py"))
    return [_state(file) for file in files]


def program_state() -> str:
    """Of this program and the libraries it is compared with: what decides how a tokenizer is compiled."""
    return "\0".join([*own_versions(), *map(_package_state, REFERENCES)])


def _recall(path: Path, options: LoadOptions, state: str | None) -> Known | None:
    num_threads = 2 if state is None else 1  # the thread that imports has a core of its own
    body = _read_kept(_key(_parts(path, options, program_state() if state is None else state)))
    if body is None:
        return None
    entry = msgspec.msgpack.decode(body, type=_Kept)
    steps = [
        (name, [_with_model(argument, num_threads) for argument in arguments])
        for name, arguments in entry.steps
    ]
    facts = msgspec.structs.replace(entry.facts, source=str(path))
    return Known(facts, steps, entry.strips_prefix, _native.Engine(build_of(steps), DEFAULT_CACHE_BYTES))


def _remember(path: Path, options: LoadOptions, facts: Facts, engine: NativeEngine) -> None:
    kept = _Kept(facts, engine.program.strips_prefix, _packed_steps(engine.program.steps))
    _write_kept(_key(_parts(path, options, program_state())), msgspec.msgpack.encode(kept))


def _recall_cut(names: tuple[str | None, ...]) -> Steps | None:
    body = _read_kept(_key(_parts_of_cut(names)))
    if body is None:
        return None
    entry = msgspec.msgpack.decode(body, type=_KeptSteps)
    steps = [(name, list(map(_with_view, arguments))) for name, arguments in entry]
    build_of(steps)  # tried here, where what is wrong with them costs time alone
    return steps


def _remember_cut(names: tuple[str | None, ...], steps: Steps) -> None:
    key = _key(_parts_of_cut(names))
    if not (cache_folder() / FOLDER / key).exists():
        _write_kept(key, msgspec.msgpack.encode(_packed_steps(steps)))


def _packed_steps(steps: Iterable[tuple[str, Iterable[Any]]]) -> _KeptSteps:
    return [(name, list(map(_packed, arguments))) for name, arguments in steps]


def _read_kept(key: str) -> memoryview | None:
    kept = cache_folder() / FOLDER / key
    if not kept.exists():
        return None
    content = read_whole(kept, limit=MAX_BYTES)
    crc, body = content[:CRC_BYTES], memoryview(content)[CRC_BYTES:]
    if _crc_of(key, body) != crc:
        _note("%s: is damaged and not used", kept)
        kept.unlink(missing_ok=True)
        return None
    return body


def _write_kept(key: str, body: bytes) -> None:
    folder = cache_folder() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / key, _crc_of(key, body) + body)
    _forget_oldest(folder)


def _crc_of(key: str, body: bytes | memoryview) -> bytes:
    """Of the name too: a file that was put under another is damaged."""
    return isal_zlib.crc32(body, isal_zlib.crc32(key.encode())).to_bytes(CRC_BYTES, "little")


def _forget_oldest(folder: Path) -> None:
    by_age = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in by_age[:-MAX_KEPT]:
        file.unlink(missing_ok=True)  # another process may be tidying too


def _key(parts: Iterable[bytes]) -> str:
    digest = blake3()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(path: Path, options: LoadOptions, state: str) -> Iterable[bytes]:
    yield path.name.encode("utf-8", "surrogateescape")  # the encoding of a rank file may follow from it
    yield digest_whole(path)
    if path.name == TOKENIZER_JSON:
        for name in ROLE_FILES:
            roles = path.parent / name
            yield read_whole(roles) if roles.is_file() else b""
    yield msgspec.json.encode((options.encoding, options.pattern, options.special_tokens))
    yield state.encode("utf-8", "surrogateescape")


def _parts_of_cut(names: tuple[str | None, ...]) -> Iterable[bytes]:
    yield b"a cut"
    yield msgspec.json.encode(names)
    yield "\0".join(own_versions()).encode("utf-8", "surrogateescape")


def _package_state(name: str) -> str:
    found = find_spec(name)
    return _state(found.origin) if found is not None and found.origin else f"no {name}"


def _state(file: str) -> str:
    status = os.stat(file)
    return f"{file} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _packed(argument: Any) -> Any:
    import numpy as np

    if isinstance(argument, np.ndarray):
        return _Table(argument.dtype.str, argument.tobytes())
    return _Model(memoryview(argument.pack())) if isinstance(argument, _native.Model) else argument


def _with_model(argument: Any, num_threads: int) -> Any:
    return _native.Model.unpack(argument.data, num_threads) if isinstance(argument, _Model) else argument


def _with_table(argument: Any) -> Any:
    import numpy as np

    return np.frombuffer(argument.data, argument.dtype) if isinstance(argument, _Table) else argument


def _with_view(argument: Any) -> Any:
    if isinstance(argument, _Table):
        return memoryview(argument.data).cast(VIEWS[argument.dtype])
    return argument


def tried(call: Callable[[], T]) -> T | None:
    """The result of the call, or None: a cache that cannot be used costs time, never the result."""
    try:
        return call()
    except (*REFUSALS, GristmillError, msgspec.MsgspecError) as error:
        _note("cache not used: %s", error)
        return None


def _note(text: str, *values: object) -> None:
    import logging  # takes longer than all of this module, and is seldom needed before the rest of it

    logging.getLogger(__name__).info(text, *values)
