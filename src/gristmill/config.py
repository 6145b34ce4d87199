"""What a user can set, as frozen structs: every default lives here, and every value is checked here.

Annotations are types, not text, which msgspec would have to compile before a job can be checked."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

from gristmill.errors import ConfigError

Section = TypeVar("Section", bound=msgspec.Struct)
LARGEST = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
WholeNumber = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
VocabSize = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 2)]
ByteSize = str | int
"""Bytes: a number, or text such as 512MB or 1.5GB (powers of 1000) or 4MiB (powers of 1024)."""

DEFAULT_CACHE_BYTES = 64 << 20
"""Of pieces that each thread of the native engine remembers."""
MAX_THREADS = 1024
SMALL_BYTES = 512 << 20
"""Of input that is done by threads of one process: its start-up would be a tenth of the time of others."""

EngineChoice = Literal["auto", "native", "cuda", "tokenizers", "slow"]
SpecialTokenPolicy = Literal["text", "parse", "error"]
Errors = Literal["strict", "replace"]
"""What becomes of bytes that are no UTF-8."""
InputFormat = Literal["auto", "jsonl", "parquet", "arrow", "csv", "text"]
Compression = Literal["auto", "none", "gzip", "zstd", "bz2", "xz"]
PackMode = Literal["documents", "concat", "best_fit", "pad"]
OutputFormat = Literal[
    "megatron",
    "nanogpt",
    "llmc",
    "olmo",
    "datatrove",
    "arrow",
    "parquet",
    "mds",
    "litdata",
    "pt",
    "npy",
    "webdataset",
]
Column = Literal["input_ids", "labels", "attention_mask", "position_ids", "cu_seqlens"]
Backend = Literal["inline", "local", "ray"]
Preset = Literal["streaming", "ultra", "extreme"]


class BenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `gristmill bench` measures."""

    tokenizer: str | None = None
    """A path or hub name; absent: one trained on the embedded text."""
    texts: tuple[str, ...] = ()
    """Plain text or JSONL files; none: the embedded text."""
    text_field: str = "text"
    """Of JSONL, at the top of a record."""
    num_docs: Count = 1000
    rounds: Count = 3
    threads: Annotated[int, msgspec.Meta(ge=1, le=MAX_THREADS)] | None = None
    """Threads of the parallel methods; absent: all cores."""
    is_repeated: bool = False
    """Also time three more passes over the same documents in the same process."""


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokenizer, as `load_tokenizer` takes it."""

    source: str
    """File, folder or hub name."""
    engine: EngineChoice = "auto"
    """native: ours; cuda: the same ids on an NVIDIA GPU, in a run over much input; tokenizers: that library;
    slow: any other, through Python; auto: native where it gives the reference's ids."""
    encoding: str | None = None
    """Of a rank file, such as cl100k_base."""
    pattern: str | None = None
    """Split pattern of a rank file without an encoding."""
    revision: str | None = None
    """Of a hub name."""


class ReadConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which files, and how documents are found in them."""

    inputs: tuple[str, ...] = ()
    """Files, folders, globs or URLs."""
    dataset: str | None = None
    """Instead of inputs: a dataset of the Hugging Face hub, as owner/name, or fineweb, finewebedu, dolma, c4,
    openwebtext, wikipedia, the-stack, redpajama, slimpajama, tinystories."""
    dataset_config: str | None = None
    """Which config (subset) of the dataset; absent: its default."""
    split: str = "train"
    """Of the dataset."""
    revision: str | None = None
    """Branch, tag or commit of the dataset; absent: what is newest when the run is planned, and kept to its
    end."""
    cache_dir: str | None = None
    """Where files of the dataset are kept for this and later runs; absent: the cache of huggingface_hub."""
    streaming: bool = False
    """Read the dataset from the hub as it is tokenized, and keep no copy."""
    format: InputFormat = "auto"
    """auto: by suffix. Of a folder, files of this format are read; text takes every file."""
    compression: Compression = "auto"
    """Of JSON Lines, CSV and text; auto: by suffix."""
    text_field: str | tuple[str, ...] = "text"
    """Path of the text in a record, such as doc.body.text; several are joined. On the command line commas
    part them."""
    join: str = "\n"
    """Put between several text fields; \\n, \\r and \\t on the command line are those characters."""
    id_field: str | None = None
    """Path of the document's id in a record."""
    document: Literal["file", "line", "separator"] = "file"
    """What a document is in plain text."""
    separator: str = "\n\n\n"
    """Between the documents of plain text, where `document` is separator; \\n, \\r and \\t on the command
    line are those characters."""
    on_bad_document: Literal["quarantine", "skip", "fail"] = "quarantine"
    """A record that gives no document is counted and kept in the quarantine file (quarantine), only counted
    (skip), or ends the run (fail)."""
    on_bad_file: Literal["continue", "fail"] = "continue"
    """A file that cannot be read to its end is read as far as it goes and noted (continue), or ends the run
    (fail)."""
    max_document_bytes: ByteSize | None = None
    """A larger document is bad; absent: a sixteenth of the memory, or of a node's on Ray."""
    unit_bytes: ByteSize | None = None
    """Input that is processed and committed as a whole; absent: from the size of the inputs."""


class EncodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is put round the ids of a document."""

    add_bos: bool = False
    """BOS before every document."""
    add_eos: bool = True
    """EOS after every document; a tokenizer that names none is refused unless `eos_id` is given."""
    bos_id: WholeNumber | None = None
    """Absent: the tokenizer's."""
    eos_id: WholeNumber | None = None
    """Absent: the tokenizer's."""
    special_tokens: SpecialTokenPolicy = "text"
    """Text that spells a special token stays text, is the token (parse), or makes the document
    bad (error)."""


class PackConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How documents become rows."""

    mode: PackMode | None = None
    """Absent: documents for formats whose readers cut windows themselves (the first five, and litdata),
    concat for the others."""
    sequence_length: Annotated[int, msgspec.Meta(ge=2, le=1 << 24)] = 2048
    """Tokens in a row."""
    overlap: WholeNumber = 0
    """Tokens that neighbouring windows of a long document share."""
    tail: Literal["carry", "pad", "drop"] = "carry"
    """Tokens that fill no row at the end of a unit are packed together at the end of the run and the last row
    is padded (carry), are padded there and then (pad), or are packed together and the last row dropped
    (drop; of best_fit, every row at the end that would be less than 99% full)."""
    lookahead: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 8192
    """Documents that best_fit may choose from."""
    pad_id: WholeNumber | None = None
    """Absent: the tokenizer's, else EOS."""
    mask_first_token: bool = False
    """Labels of the first token of each document are -100."""


class WriteConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the shards go, and in which formats."""

    output: str = ""
    """The run folder: a path, or a URL of an object store (s3://, gs://, ...)."""
    format: OutputFormat | tuple[OutputFormat, ...] = "megatron"
    """One or several; packed rows only as arrow, parquet, mds, litdata, pt, npy or webdataset."""
    columns: tuple[Column, ...] = ("input_ids", "cu_seqlens")
    """Of rows; megatron and the like, and litdata, have none."""
    dtype: Literal["uint16", "uint32"] | None = None
    """Of ids; absent: the smallest that holds every id."""
    shard_bytes: ByteSize = "512MB"
    """A shard is closed before its ids would exceed this."""
    rows_per_shard: Count | None = None
    """A shard is closed after so many rows, or documents."""
    compression: Literal["none", "zstd", "snappy", "lz4"] = "none"
    """Of parquet."""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the work is done; nothing here but the limits changes what comes out."""

    preset: Preset = "ultra"
    """streaming: one process, under 500 MB; ultra: all cores; extreme: also memory-mapped input, read-ahead
    and write-behind threads and larger blocks. An option given explicitly wins."""
    backend: Backend | None = None
    """local: worker processes; inline: threads of this process; ray: the nodes of a Ray cluster. Absent:
    inline for the preset streaming, for memory:// inputs or output, for local input of less than 512 MiB
    where no memory is set, and for a training with up to 4 workers; else local."""
    ray_address: str | None = None
    """Of the backend ray: auto (the cluster that this machine is part of), ray://HOST:10001, HOST:6379, or
    local (one of its own, on this machine). Absent: auto where there is one, else local."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    """Processes, or threads of the one there is. Absent: physical cores this process may use, as far as the
    memory allows; one for the preset streaming and where inline is asked for; for ray the CPUs of all
    nodes."""
    memory: ByteSize | None = None
    """Of the whole run, all processes on all nodes; absent: half of what is available, or 80% where that is
    less than 500 MB. Never more than a container has."""
    block_bytes: ByteSize | None = None
    """Input read, encoded and packed at a time."""
    batch_size: Count | None = None
    """Documents encoded at a time, at most; absent: all of a block."""
    memory_map: bool | None = None
    """Map local plain files instead of reading them; absent: as the preset has it."""
    read_ahead: bool | None = None
    """A thread reads the next block while one is encoded; absent: as the preset has it."""
    write_behind: bool | None = None
    """A thread writes while the next block is encoded; absent: as the preset has it."""
    max_bad_fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """More bad documents than this stop the run."""
    max_rows: Count | None = None
    """Of tokenize: stop early after so many rows, or documents, with a prefix of what the full run would
    write."""
    max_tokens: Count | None = None
    """Likewise before more tokens than this, padding included."""


class TokenizeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole job: what `gristmill tokenize` does."""

    tokenizer: TokenizerConfig
    read: ReadConfig
    encode: EncodeConfig = EncodeConfig()
    pack: PackConfig = PackConfig()
    write: WriteConfig
    run: RunConfig = RunConfig()


class CountConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How training text is cut into pieces, and which of it is counted."""

    pattern: str | None = None
    """gpt2, gpt4, o200k, llama3, qwen2, tekken, bloom, none (a document is a piece), metaspace (as
    SentencePiece), or a regex; absent: that of `learn.extend`, else gpt2."""
    form: Literal["nfc", "nfkc"] | None = None
    """Text is brought into this Unicode form first; the tokenizer will do the same."""
    max_documents: Count | None = None
    """Count so many documents, the first ones."""
    sample: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Count about this share of the documents, chosen by `seed`."""
    seed: int = 0
    """Of `sample`, `held_out` and the report's sample: another one chooses other documents."""
    held_out: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """Leave about this share of the documents out of the counts, chosen by `seed`: the report's sample is
    then drawn from them alone."""
    weights: dict[str, WholeNumber] = {}
    """Documents of files that match a pattern, such as */code/*, count so many times; the first match
    decides, and 0 leaves them out."""
    when_full: Literal["spill", "forget"] = "spill"
    """What happens when the memory is full: sorted runs on disk (exact), or rare pieces are forgotten and the
    error is reported."""
    folder: str | None = None
    """The run folder; absent: beside the tokenizer, with .run after its name."""


class LearnConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tokenizer is made of the counts."""

    output: str = ""
    """The tokenizer.json; a name that ends in / is a folder, which also says what special tokens are for."""
    vocab_size: VocabSize | None = None
    """Special tokens and the alphabet included."""
    special_tokens: tuple[str, ...] = ("<|endoftext|>",)
    """They get the first ids."""
    min_frequency: WholeNumber = 0
    """Pairs that occur less often are not merged."""
    max_token_length: Count | None = None
    """Merged tokens have fewer characters of the alphabet; two of them are merged whatever it is, as in
    `tokenizers`."""
    initial_alphabet: Literal["bytes", "corpus"] = "bytes"
    """All 256 bytes are tokens, or those that occur."""
    max_alphabet: Count | None = None
    """Of pattern metaspace: the most frequent so many characters are tokens, and the others become bytes."""
    tie_break: Literal["tokenizers", "bytes"] = "tokenizers"
    """Of pairs that occur equally often, the one with the smaller ids, or with the smaller bytes."""
    min_count: Count = 1
    """Pieces that occur less often are left out; costs rare scripts much."""
    from_counts: tuple[str, ...] = ()
    """Inventories that were counted before; nothing is read then."""
    extend: str | None = None
    """A tokenizer.json, or a folder with one, whose merges and ids are kept, and continued."""


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole job: what `gristmill train` does."""

    read: ReadConfig
    count: CountConfig = CountConfig()
    learn: LearnConfig
    run: RunConfig = RunConfig()


RunJob = TokenizeConfig | TrainConfig


class CausalLMConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `gristmill.CausalLMTokenizer` does: the block `tokenizer` of a training script's YAML."""

    context_length: Annotated[int, msgspec.Meta(ge=2, le=1 << 24)]
    """Tokens in a row."""
    tokenizer_name: str
    """A path, a hub name, or an alias such as gpt2 or llama3."""
    overlap: WholeNumber = 0
    """Tokens that neighbouring windows of a document share; less than `context_length`."""
    mask_overlap: bool = False
    """Labels of the tokens that the window before has too are -100, so that no token is trained twice."""
    text_column: str = "text"
    """The column with the documents; the others are dropped."""
    add_bos: bool | None = None
    """BOS before every document; absent: where the tokenizer adds it when it is called."""
    add_eos: bool | None = None
    """EOS after every document; absent: where the tokenizer adds it when it is called."""
    bos_id: WholeNumber | None = None
    """Absent: the tokenizer's."""
    eos_id: WholeNumber | None = None
    """Absent: the tokenizer's."""
    pad_id: WholeNumber | None = None
    """Of padding, which is masked; absent: the tokenizer's, else EOS, else its special token that most likely
    ends documents, else 0."""
    special_tokens: SpecialTokenPolicy = "parse"
    """Text that spells a special token is the token, as transformers has it, stays text (text), or is refused
    (error)."""
    dtype: Literal["int64", "int32"] = "int64"
    """Of ids and labels; the mask is int8."""
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Documents taken at a time; absent: from the memory there is and the size of the documents."""
    num_proc: Annotated[int, msgspec.Meta(ge=1, le=32)] | None = None
    """Processes of a slow Python tokenizer; absent: half of the cores. Others use threads."""
    show_progress: bool = True
    """A bar for each split."""
    verbose_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What is logged."""


def check_section(kind: type[Section], values: Mapping[str, object], *, name: str) -> Section:
    """Build a config section from plain values, or say which of them is wrong."""
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error).replace("$", name)) from error
