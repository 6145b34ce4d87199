"""Types of the compiled core (native/bindings)."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Error = tuple[str, int, int] | None

class ModelError(ValueError): ...

class Model:
    def token(self, id: int) -> bytes: ...
    def is_reachable(self, id: int) -> bool: ...
    @property
    def num_ids(self) -> int: ...
    def pack(self) -> bytes: ...
    @staticmethod
    def unpack(bytes: bytes | memoryview, num_threads: int = 2) -> Model: ...
    @property
    def whole_piece_first(self) -> bool: ...
    def token_bytes(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    def reachable(self) -> NDArray[np.uint8]: ...
    def merges(self) -> NDArray[np.uint32]: ...
    def merge_slowly(self, text: bytes) -> list[int]: ...
    def merge_fast(self, text: bytes) -> list[int]: ...

class Build:
    def __init__(self) -> None: ...
    def set_model(self, model: Model) -> None: ...
    def set_form(self, form: str) -> None: ...
    def set_spaces_as_marks(self) -> None: ...
    def set_prefix(self, where: str, unless_present: bool, before_normalized_tokens: bool) -> None: ...
    def set_word_class(self, stage1: NDArray[np.uint16], stage2: NDArray[np.uint8]) -> None: ...
    def set_transducer(
        self,
        stage1: NDArray[np.uint16],
        stage2: NDArray[np.uint8],
        table: NDArray[np.uint16],
        num_classes: int,
    ) -> None: ...
    def set_word_transducer(self) -> None: ...
    def add_splitter(
        self,
        stage1: NDArray[np.uint16],
        stage2: NDArray[np.uint8],
        next_state: NDArray[np.uint16],
        match: NDArray[np.uint8],
        num_classes: int,
        keep_matches: bool,
        keep_gaps: bool,
    ) -> None: ...
    def add_token(
        self,
        id: int,
        content: str,
        special: bool,
        normalized: bool,
        single_word: bool,
        lstrip: bool,
        rstrip: bool,
    ) -> None: ...

class Engine:
    def __init__(self, build: Build, cache_bytes: int) -> None: ...
    @property
    def state_bytes(self) -> int: ...
    def encode_list(
        self,
        texts: list[Any],
        special_tokens: str,
        replace_invalid: bool,
        count_only: bool,
        num_threads: int,
    ) -> tuple[Any, Any, _Error]: ...
    def encode_flat(
        self,
        buffer: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        special_tokens: str,
        replace_invalid: bool,
        count_only: bool,
        num_threads: int,
    ) -> tuple[Any, Any, _Error]: ...
    def decode(self, ids: NDArray[np.uint32]) -> bytes: ...

class EncodedStart:
    def __init__(
        self, path: bytes, text_field: bytes, special_tokens: str, block_bytes: int, most_bytes: int
    ) -> None: ...
    def run(self, engine: Engine) -> None: ...
    def end(self) -> None: ...
    def take(self) -> list[tuple[tuple[Any, ...], tuple[Any, Any]]]: ...

_Summary = tuple[int, int, int, int, int, int]

class InventoryError(ValueError): ...

class PieceCounter:
    def __init__(self, build: Build, max_bytes: int, forgets: bool, num_expected: int = ...) -> None: ...
    def add(
        self,
        buffer: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        weight: int,
        on_full: Callable[[], object],
    ) -> None: ...
    def twin(self) -> PieceCounter: ...
    def spill(
        self, about: bytes, write: Callable[[bytes], object], twins: list[PieceCounter] = ...
    ) -> _Summary: ...
    def gather(
        self, twins: list[PieceCounter] = ...
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64], int, int]: ...
    def allow(self, max_bytes: int) -> None: ...
    @property
    def num_pieces(self) -> int: ...
    @property
    def total_count(self) -> int: ...
    @property
    def max_undercount(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

class CountedStart:
    def __init__(
        self,
        path: bytes,
        text_field: bytes,
        build: Build,
        max_bytes: int,
        num_expected: int,
        block_bytes: int,
        most_bytes: int,
    ) -> None: ...
    def take(self) -> tuple[list[tuple[tuple[Any, ...], int]], PieceCounter] | None: ...

class InventoryReader:
    def __init__(self, path: str) -> None: ...
    @property
    def about(self) -> bytes: ...
    @property
    def summary(self) -> _Summary: ...
    def read(self, max_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]: ...

class RowTable:
    def __init__(self, starts: NDArray[np.int64], row_bytes: int) -> None: ...
    def put(
        self,
        shard: int,
        content: NDArray[np.uint8],
        starts: NDArray[np.int64],
        begins: NDArray[np.int64],
    ) -> None: ...
    def drop(self, shard: int) -> None: ...
    def take(
        self, rows: NDArray[np.int64], order: NDArray[np.int64] | None, begin: int, out: NDArray[np.uint8]
    ) -> int: ...

def write_inventory(
    about: bytes,
    bytes: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    counts: NDArray[np.uint64],
    dropped_count: int,
    max_undercount: int,
    write: Callable[[bytes], object],
) -> _Summary: ...
def merge_inventories(
    paths: list[str], min_count: int, write: Callable[[bytes], object]
) -> tuple[_Summary, int, int, int]: ...
def compile_merges(
    vocab: dict[str, int],
    merges: list[Any],
    token_text: str,
    byte_fallback: bool,
    whole_piece_first: bool,
) -> Model: ...
def compile_ranks(ranks: dict[bytes, int], id_offset: int) -> Model: ...
def compile_scores(pieces: list[str], ids: list[int], ranks: list[int], byte_ids: list[int]) -> Model: ...
def limit_idle_blocks(max_bytes: int) -> None: ...
def drop_idle_blocks() -> None: ...
def find_invalid(buffer: NDArray[np.uint8], offsets: NDArray[np.int64]) -> tuple[int, int] | None: ...
def pack(texts: list[Any], replace_invalid: bool) -> tuple[Any, Any]: ...
def parse_json_lines(
    buffer: NDArray[np.uint8],
    text_paths: list[list[bytes]],
    join: bytes,
    id_path: list[bytes] | None,
    max_bad: int | None = None,
) -> tuple[
    NDArray[np.uint8],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    tuple[NDArray[np.uint8], NDArray[np.int64]] | None,
    list[tuple[int, int, str, str]],
    int,
]:
    """Documents of JSON Lines: text, offsets, lines, positions, names and their offsets, bad lines, and how
    many lines were gone through.

    A bad line is (line, position, reason, detail). With `max_bad`, the last line gone through is the one that
    brings so many."""

def normalize(form: str, text: bytes) -> bytes: ...
def launch(launch: int, kernels: NDArray[np.uint64], stream: int, argument: int) -> int:
    """Start kernels, each a row of function, grid and block, by the driver's call at an address: its status,
    of the first that fails."""

def empty_ids(count: int) -> NDArray[np.uint32]:
    """Of undefined content, in memory that was used for other arrays before."""

def widen_ids(low: NDArray[np.uint16], high: NDArray[np.uint8], out: NDArray[np.uint32]) -> None:
    """Write ids into an array, from their lower 16 bits and the 8 bits above them."""

def lay_out(
    ids: NDArray[np.uint32], offsets: NDArray[np.int64], bos: int, eos: int, width: int
) -> tuple[Any, NDArray[np.int64]]: ...
def plan_rows(
    lengths: NDArray[np.int64], num_pooled: int, row_length: int, max_pieces: int, max_tokens: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
def plan_rest(
    lengths: NDArray[np.int64], row_length: int, least_tokens: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
def gather_rows(
    first: NDArray[Any],
    second: NDArray[Any],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    row_offsets: NDArray[np.int64],
    row_length: int,
    pad: int,
) -> Any: ...

class Learner:
    def model(self, whole_piece_first: bool, num_threads: int) -> Model: ...
    def __init__(
        self,
        bytes: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        counts: NDArray[np.uint64],
        symbols: str,
        alphabet: NDArray[np.uint32],
        alphabet_ids: NDArray[np.uint32],
        tokens: list[bytes],
        known: NDArray[np.uint32],
        vocab_size: int,
        min_frequency: int,
        max_token_length: int | None,
        tie_break: str,
        num_threads: int,
        first_floor: int,
    ) -> None: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_rules(self) -> int: ...
    @property
    def num_rescans(self) -> int: ...
    @property
    def text_bytes(self) -> int: ...
    def advance(self, seconds: float) -> bool: ...
    def forget_pieces(self) -> None: ...
    def tokens(self, begin: int) -> tuple[bytes, NDArray[np.int64]]: ...
    def rules(self, begin: int = 0) -> NDArray[np.uint32]: ...
    def counts(self, begin: int = 0) -> NDArray[np.int64]: ...

def count_symbols(
    bytes: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.uint64], symbols: str
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]: ...
def take_back_rules(rules: NDArray[np.uint32], used: NDArray[np.int64]) -> NDArray[np.int64]: ...
def training_memory(num_pieces: int, num_symbols: int, vocab_size: int, num_threads: int) -> int: ...
