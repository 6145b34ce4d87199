"""The whole path in a minute: text found on the machine, jobs that train a tokenizer on it and use it, and
the commands that run them."""

from __future__ import annotations

import glob
import os
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gristmill.bench import first_difference
from gristmill.bench_methods import METHODS
from gristmill.bench_report import align
from gristmill.errors import InputError
from gristmill.files import write_whole
from gristmill.sample import made_documents, sample_documents
from gristmill.tokenizer import Tokenizer, load_tokenizer

FOLDER = "gristmill-demo"
"""In the current folder, where the user names no other."""
REFERENCE = "tokenizers batch 1000"
END = "<|endoftext|>"
VOCAB_SIZE = 4000
NUM_DOCS = 1000
COMPARED_BYTES = 1_500_000
"""Of text that is encoded by both: the reference takes about a second for it."""
NOT_CORPUS = ("site-packages", "dist-packages", "test", "tests", "__pycache__")

TRAINING = """\
# A byte-level BPE tokenizer, from all of the text.
read:
{read}
count:
  pattern: gpt2
learn:
  vocab_size: {vocab_size}
  special_tokens: ["{end}"]
  output: {tokenizer}
"""
PACKED = """\
# Rows of 1024 tokens, whole documents where they fit, for datasets and everything else that reads Parquet.
tokenizer: {tokenizer}
read:
{read}
pack:
  mode: best_fit
  sequence_length: 1024
write:
  output: {output}
  format: parquet
"""
DOCUMENTS = """\
# The same text as documents for Megatron-LM, whose reader cuts its own rows.
tokenizer: {tokenizer}
read:
{read}
write:
  output: {output}
  format: megatron
"""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Our ids and those of the reference library, on the same text."""

    tokenizer: Tokenizer
    num_docs: int
    num_bytes: int
    num_tokens: int
    first_tokens: list[str]
    ours_s: float
    reference_s: float
    wrong_document: int | None
    """The first one whose ids differ from the reference."""


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo has put into its folder, and what comes next."""

    folder: Path
    source: str
    """Where the text is from, for people."""
    documents: list[str]
    """Some of it, to compare."""
    training: list[str]
    """The command of `gristmill` that makes the tokenizer."""
    commands: list[list[str]]
    """Those that use it, in order."""

    @property
    def tokenizer(self) -> Path:
        """The folder that gets it."""
        return self.folder / "tokenizer"


def prepare_demo(folder: Path) -> Demo:
    """Find text, and write jobs that train a tokenizer on it and use that."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[Path, bytes] = {}
    if not (folder / "train.yaml").exists() and next(folder.iterdir(), None) is not None:
        raise InputError(f"{folder}: holds something else; name another folder (gristmill demo -o FOLDER)")
    patterns = library_patterns(Path(sysconfig.get_paths()["stdlib"]))
    documents = read_documents(patterns)
    source = "Python's standard library on this machine"
    if documents:
        read = "  format: text          # a file is a document\n  inputs:" + _listed(patterns)
    else:
        documents, source = sample_documents() + made_documents(NUM_DOCS), "embedded in this package"
        lines = b"".join(msgspec.json.encode({"text": document}) + b"\n" for document in documents)
        files[folder / "corpus.jsonl"] = lines
        read = "  inputs:" + _listed([str(folder / "corpus.jsonl")])
    demo = Demo(
        folder=folder,
        source=source,
        documents=_take(documents, COMPARED_BYTES),
        training=["train", "--config", str(folder / "train.yaml"), "--force"],
        commands=_commands(folder),
    )
    demo.tokenizer.mkdir(exist_ok=True)
    _write_once(_jobs(demo, read) | files)
    return demo


def _jobs(demo: Demo, read: str) -> dict[Path, bytes]:
    trained = _quoted(str(demo.tokenizer / "tokenizer.json"))
    training = TRAINING.format(read=read, vocab_size=VOCAB_SIZE, end=END, tokenizer=trained)
    files = {demo.folder / "train.yaml": training.encode()}
    for name, text in (("packed", PACKED), ("megatron", DOCUMENTS)):
        output = _quoted(str(demo.folder / name))
        job = text.format(tokenizer=_quoted(str(demo.tokenizer)), read=read, output=output)
        files[demo.folder / f"{name}.yaml"] = job.encode()
    # A tokenizer.json leaves it to this file to say which token ends a document.
    files[demo.tokenizer / "tokenizer_config.json"] = msgspec.json.encode({"eos_token": END})
    return files


def _write_once(files: Mapping[Path, bytes]) -> None:
    """All of them, in their order, unless one is there with another content: it may be the user's."""
    for path, content in files.items():
        if path.exists() and path.read_bytes() != content:
            remedy = "move it away, or name another folder (gristmill demo -o FOLDER)"
            raise InputError(
                f"{path}: is not as the demo writes it (this version), and would be written over; {remedy}"
            )
    for path, content in files.items():
        write_whole(path, content)


def library_patterns(root: Path) -> list[str]:
    """Patterns for the Python files of a library and of its packages; tests are left out, and names that
    begin with an underscore, many of which are empty."""
    if not root.is_dir():
        return []
    packages = sorted(
        entry.name
        for entry in os.scandir(root)
        if entry.is_dir() and entry.name.isidentifier() and entry.name not in NOT_CORPUS
    )
    names = ["[!_]*.py", *(f"{name}/[!_]*.py" for name in packages)]
    patterns = [os.path.join(glob.escape(str(root)), name) for name in names]
    return [pattern for pattern in patterns if glob.glob(pattern)]


def read_documents(patterns: list[str]) -> list[str]:
    """Texts of the files that patterns match; what is no text is left to the run to report."""
    texts = []
    for path in (path for pattern in patterns for path in sorted(glob.glob(pattern))):
        try:
            texts.append(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return [text for text in texts if text]


def compare(folder: Path, documents: list[str]) -> Comparison:
    """Encode documents by us and by the reference library."""
    path = folder / "tokenizer.json"
    tokenizer = load_tokenizer(folder)
    reference = METHODS[REFERENCE](str(path), 1)
    batch, ours_s = _timed(lambda: tokenizer.encode_batch(documents, num_threads=1))
    encoded, reference_s = _timed(lambda: reference.encode(documents))
    return Comparison(
        tokenizer=tokenizer,
        num_docs=len(documents),
        num_bytes=sum(len(document.encode()) for document in documents),
        num_tokens=len(batch.ids),
        first_tokens=[tokenizer.decode(batch.ids[i : i + 1]) for i in range(12)],
        ours_s=ours_s,
        reference_s=reference_s,
        wrong_document=first_difference(reference.flatten(encoded), (batch.ids, batch.offsets)),
    )


def render_comparison(seen: Comparison) -> str:
    """Our ids beside the reference's, for people."""
    rows = [("Engine", "Time", "Tokens/s", "MB/s")]
    ours = f"gristmill ({seen.tokenizer.engine_name})"
    for name, took_s in (("tokenizers", seen.reference_s), (ours, seen.ours_s)):
        rate, speed = seen.num_tokens / took_s, seen.num_bytes / took_s / 1e6
        rows.append((name, f"{took_s * 1e3:.1f} ms", f"{rate:,.0f}", f"{speed:.1f}"))
    verdict = "equal to the reference, every one"
    if seen.wrong_document is not None:
        verdict = f"DIFFERENT from the reference, first in document {seen.wrong_document}"
    lines = [
        f"tokenizer   byte-level BPE, {seen.tokenizer.vocab_size:,} tokens, trained just now",
        f"first       {' | '.join(map(repr, seen.first_tokens))}",
        f"ids         {seen.num_tokens:,} of {seen.num_docs:,} documents, {verdict}",
        "",
        *align(rows),
    ]
    if seen.tokenizer.why_not_native:
        lines += ["", f"native engine not used: {seen.tokenizer.why_not_native}"]
    return "\n".join(lines)


def _commands(folder: Path) -> list[list[str]]:
    packed, documents = str(folder / "packed"), str(folder / "megatron")
    return [
        ["plan", "--config", f"{packed}.yaml", "--force"],
        ["tokenize", "--config", f"{packed}.yaml", "--force"],
        ["tokenize", "--config", f"{documents}.yaml", "--force"],
        ["inspect", packed, "--row", "0"],
        ["verify", packed],
        ["verify", documents],
    ]


def _take(documents: list[str], num_bytes: int) -> list[str]:
    """Documents from the start that have so many bytes together, or a little more."""
    taken = []
    for document in documents:
        if num_bytes <= 0:
            break
        taken.append(document)
        num_bytes -= len(document.encode())
    return taken


def _listed(paths: list[str]) -> str:
    return "".join(f"\n    - {_quoted(path)}" for path in paths)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start
