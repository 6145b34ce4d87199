"""What changes nothing about a run, but may not be what was meant, in words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from gristmill.config import (
    CountConfig,
    EncodeConfig,
    LearnConfig,
    PackConfig,
    ReadConfig,
    RunJob,
    TokenizeConfig,
    TrainConfig,
    WriteConfig,
)
from gristmill.errors import BadFileError
from gristmill.ledger import count_bad
from gristmill.plan import Plan
from gristmill.read import Blocks, InputFile, Listing, is_remote, read_slice, slice_file
from gristmill.records import Ledger, Manifest
from gristmill.run.process import choose_backend, encodes_on_gpu
from gristmill.run.quarantine import explain_fault, first_bad_file
from gristmill.run.resources import num_cores

MAX_NAMES_SHOWN = 3
BAD_SHARE = 0.05
"""Of all documents: with more bad ones, it is said."""
FIRST_BYTES = 64 << 10
"""Of an input, which are looked into."""
ALPHABET_SHARE = 0.25
"""Of a vocabulary: with more, little is left for words."""
MOST_COPIES = 2
"""Of a token in windows that overlap, before it is said."""
WHILE_READING = ("max_documents", "sample", "seed", "held_out", "weights", "when_full")
ROW_OPTIONS = ("sequence_length", "overlap", "tail", "lookahead", "pad_id", "mask_first_token")


def option_warnings(config: TokenizeConfig) -> list[str]:
    """Options that do nothing in this job, or not what their name says, each with the reason."""
    from gristmill.formats import default_mode, formats_of, formats_with_columns  # a training has none

    formats = formats_of(config.write)
    mode = config.pack.mode or default_mode(formats)
    tables = [name for name in formats if default_mode((name,)) != "documents"]
    found = _workers(config) + _engine(config) + _unused_address(config)
    if mode == "documents":
        why = f"whole documents are written as {', '.join(formats)}, not rows"
        found += [_unused(f"pack.{key}", why) for key in _changed(config.pack, PackConfig(), ROW_OPTIONS)]
    elif mode != "best_fit":
        why = f"only pack.mode best_fit chooses documents, and it is {mode}"
        found += [_unused(f"pack.{key}", why) for key in _changed(config.pack, PackConfig(), ("lookahead",))]
    if mode == "pad":
        why = "every document has rows of its own"
        found += [_unused(f"pack.{key}", why) for key in _changed(config.pack, PackConfig(), ("tail",))]
    found += _overlap(config.pack) if mode != "documents" else []
    if tables and len(tables) < len(formats) and config.pack.mode is None:
        others = ", ".join(name for name in formats if name not in tables)
        found.append(
            f"{', '.join(tables)} holds whole documents, because {others} asked for beside it does; "
            "for packed rows write it in a run of its own"
        )
    if not formats_with_columns(formats) or mode == "documents":
        why = f"{', '.join(formats)} holds ids alone" if mode != "documents" else "it is of rows"
        found += [_unused(f"write.{key}", why) for key in _changed(config.write, WriteConfig(), ("columns",))]
    if "parquet" not in formats and config.write.compression != "none":
        found.append(_unused("write.compression", "it is of parquet"))
    return found + _unused_ids(config.encode)


def _overlap(pack: PackConfig) -> list[str]:
    new = max(pack.sequence_length - pack.overlap, 1)  # none is refused elsewhere
    times = -(-pack.sequence_length // new)
    if times <= MOST_COPIES:
        return []
    return [
        f"pack.overlap {pack.overlap} of {pack.sequence_length} tokens writes most tokens of a long document "
        f"{times:,} times"
    ]


def training_warnings(config: TrainConfig) -> list[str]:
    """The same of a training; what would have made another tokenizer is refused elsewhere."""
    read, count, learn = config.read, config.count, config.learn
    found = _unused_address(config)
    if learn.from_counts:
        why = "learn.from_counts is counted already, and nothing is read"
        options = [f"read.{key}" for key in ("inputs", "dataset") if getattr(read, key)]
        options += [f"count.{key}" for key in _changed(count, CountConfig(), WHILE_READING)]
        found += [_unused(option, why) for option in options]
    if learn.extend is not None:
        keys = ("initial_alphabet", "max_alphabet")
        why = "learn.extend has its alphabet"
        found += [_unused(f"learn.{key}", why) for key in _changed(learn, LearnConfig(), keys)]
    elif learn.max_alphabet is not None and count.pattern != "metaspace" and not learn.from_counts:
        found.append(_unused("learn.max_alphabet", "only pattern metaspace has characters for an alphabet"))
    return found


def vocabulary_warnings(learn: LearnConfig, tokens: Sequence[str]) -> list[str]:
    """What a new vocabulary tells that a user should not miss."""
    assert learn.vocab_size is not None
    found = []
    if len(tokens) < learn.vocab_size:
        limits = _changed(learn, LearnConfig(), ("min_frequency", "max_token_length", "min_count"))
        names = " and ".join(f"learn.{key}" for key in limits)
        found.append(
            f"{len(tokens):,} tokens, fewer than the {learn.vocab_size:,} asked for: no pair is left to merge"
            + (f" that {names} would allow" if limits else "; more text has more")
        )
    num_single = sum(len(token) == 1 for token in tokens)
    if num_single > len(tokens) * ALPHABET_SHARE and num_single > 256 and learn.extend is None:
        found.append(
            f"{num_single:,} of the {len(tokens):,} tokens are single characters; learn.max_alphabet keeps "
            "the most frequent ones, and the others become bytes"
        )
    return found


def input_warnings(config: ReadConfig, listing: Listing) -> list[str]:
    """Files that are not read, or were named twice, and options that do nothing for those that are read."""
    found = []
    if listing.skipped:
        names = ", ".join(
            f"{count:,} {suffix or 'without a suffix'}"
            for suffix, count in sorted(listing.skipped.items(), key=lambda item: (-item[1], item[0]))
        )
        number = sum(listing.skipped.values())
        what, them = ("1 file", "it") if number == 1 else (f"{number:,} files", "them")
        found.append(f"{what} not read: {names}; name {them}, or set read.format (--input-format)")
    if listing.run_folders:
        found.append(f"left out, because they hold runs: {_few(listing.run_folders)}")
    if listing.repeated:
        found.append(f"named more than once, and read once: {_few(listing.repeated)}")
    if listing.folders:
        found.append(f"folders that a pattern matches, and ** would look into: {_few(listing.folders)}")
    found += _absent_fields(config, listing.files)
    return found + _unused_reading(config, {file.format for file in listing.files})


def outcome_warnings(plan: Plan, folder: Path, manifest: Manifest) -> list[str]:
    """What a finished run tells that a user should not miss."""
    config, ledger = plan.config, manifest.ledger
    found = bad_file_warnings(folder, ledger)
    names = sum(file.num_bytes for file in manifest.sidecars if file.path.endswith(".names"))
    has_fields = any(file.format != "text" for file in plan.files)
    if config.read.id_field is not None and has_fields and ledger.documents_encoded and not names:
        found.append(f"read.id_field is {config.read.id_field}, which is in no record")
    bad = count_bad(ledger)
    if bad > BAD_SHARE * ledger.documents_read:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in ledger.documents_dropped.items())
        found.append(f"{bad:,} of {ledger.documents_read:,} documents are bad: {reasons}")
    if ledger.rows == 0 and (config.run.max_rows or config.run.max_tokens):
        limit = "run.max_tokens" if config.run.max_tokens else "run.max_rows"
        found.append(f"nothing was written: the first row or document is larger than {limit} allows")
    return found


def bad_file_warnings(folder: Path, ledger: Ledger) -> list[str]:
    """Files that were not read to their end: how many, and what is wrong with the first."""
    bad = {reason: count for reason, count in ledger.bad_files.items() if reason != "empty_file"}
    if not bad:
        return []
    first = first_bad_file(folder, set(bad))
    number = sum(bad.values())
    text = "1 file was" if number == 1 else f"{number:,} files were"
    return [f"{text} not read to the end; {explain_fault(first) if first else ', '.join(bad)}"]


def _absent_fields(config: ReadConfig, files: Sequence[InputFile]) -> list[str]:
    """Of several fields that are joined one may be misspelt: then no record has it, and nothing is bad."""
    if isinstance(config.text_field, str) or not files or files[0].format == "text":
        return []
    if is_remote(files[0].path):  # what is asked for once more costs time, and a finished run needs no store
        return []
    blocks = Blocks(FIRST_BYTES, FIRST_BYTES, memory_map=False, read_ahead=False)
    found = []
    for field in config.text_field:
        alone = msgspec.structs.replace(config, text_field=field, id_field=None)
        part = next(iter(slice_file(0, files[0], alone, FIRST_BYTES)))
        try:
            with closing(read_slice(files[0], part, alone, blocks)) as batches:
                first = next(batches, None)
            reasons = {bad.reason for bad in first.bad} if first is not None and not len(first) else set()
        except BadFileError as error:
            reasons = {error.reason}
        if reasons == {"missing_field"}:
            found.append(f"read.text_field {field} is in none of the first records of {files[0].path}")
    return found


def _workers(config: TokenizeConfig) -> list[str]:
    cores = num_cores()
    if (config.run.workers or 1) > cores and choose_backend(config) != "ray":
        what = f"the {cores} cores do" if cores > 1 else "one core does"
        return [f"run.workers is {config.run.workers}; more than {what} not help"]
    if (config.run.workers or 1) == 1 or choose_backend(config) != "inline":
        return []
    if config.run.preset != "streaming":
        return []
    return [f"run.workers: preset streaming is one process; it has {config.run.workers} threads"]


def _unused_address(config: RunJob) -> list[str]:
    if config.run.ray_address is None or choose_backend(config) == "ray":
        return []
    return [_unused("run.ray_address", "it is of --backend ray")]


def _engine(config: TokenizeConfig) -> list[str]:
    if config.tokenizer.engine != "cuda" or choose_backend(config) == "ray" or encodes_on_gpu(config):
        return []
    return ["engine cuda: native encodes, which is done with so little input before a GPU is open"]


def _unused_ids(encode: EncodeConfig) -> list[str]:
    pairs = (("eos_id", "add_eos", encode.add_eos), ("bos_id", "add_bos", encode.add_bos))
    return [
        _unused(f"encode.{key}", f"encode.{switch} is false")
        for key, switch, is_added in pairs
        if getattr(encode, key) is not None and not is_added
    ]


def _unused_reading(config: ReadConfig, formats: set[str]) -> list[str]:
    found = []
    if formats == {"text"}:
        changed = _changed(config, ReadConfig(), ("text_field", "id_field"))
        found += [_unused(f"read.{key}", "plain text has no fields") for key in changed]
    if "text" not in formats:
        changed = _changed(config, ReadConfig(), ("document", "separator"))
        found += [_unused(f"read.{key}", "no input is plain text") for key in changed]
    elif config.document != "separator" and config.separator != ReadConfig().separator:
        found.append(_unused("read.separator", f"read.document is {config.document}, not separator"))
    if isinstance(config.text_field, str) and config.join != ReadConfig().join:
        found.append(_unused("read.join", "there is one text field"))
    return found


def _changed(section: msgspec.Struct, default: msgspec.Struct, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if getattr(section, key) != getattr(default, key)]


def _unused(option: str, why: str) -> str:
    return f"{option} does nothing here: {why}"


def _few(names: list[str]) -> str:
    more = len(names) - MAX_NAMES_SHOWN
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
