"""Small corpora, jobs over them, and what a run folder holds: shared by the tests of the run."""

import hashlib
import json
from pathlib import Path

import numpy as np

from gristmill.job import make_job
from gristmill.run.folder import read_manifest
from gristmill.run.tokenize import tokenize
from gristmill.sample import made_documents

NOT_OUTPUT = {"events.jsonl", "report.html", "config.yaml", "plan.json", ".lock"}


def write_jsonl(path: Path, documents, **fields) -> Path:
    lines = [
        json.dumps({"text": text, "id": f"doc-{i}"} | fields, ensure_ascii=False)
        for i, text in enumerate(documents)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_corpus(folder: Path, *, num_files=3, num_docs=120) -> list[str]:
    """Write JSON Lines files; return all documents in order."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = []
    for number in range(num_files):
        texts = made_documents(num_docs, seed=number)
        write_jsonl(folder / f"part-{number}.jsonl", texts)
        documents += texts
    return documents


def make_config(tokenizer, corpus, output, **options):
    """A job; options are section__key=value."""
    values = {
        "tokenizer": str(tokenizer),
        "read": {"inputs": [str(corpus)], "unit_bytes": 20_000},
        "encode": {"eos_id": 0},
        "write": {"output": str(output)},
        "run": {"backend": "inline"},
    }
    overrides = [(*name.split("__"), value) for name, value in options.items()]
    return make_job(values, overrides)


def run(tokenizer, corpus, output, **options):
    return tokenize(make_config(tokenizer, corpus, output, **options))


def output_bytes(folder: Path) -> dict[str, str]:
    """A hash of every file that must be the same each time; unit records less their times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or name in NOT_OUTPUT:
            continue
        content = path.read_bytes()
        if path.parent.name == "units" and path.suffix == ".json":
            content = json.dumps({k: v for k, v in json.loads(content).items() if k != "stage_s"}).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def payload_documents(folder: Path) -> list[list[int]]:
    """Every document of a megatron run, in order, by the index alone."""
    manifest = read_manifest(folder)
    documents = []
    for shard in manifest.shards:
        stem = folder / "megatron" / f"shard-{shard.name}"
        index = stem.with_suffix(".idx").read_bytes()
        count = int(np.frombuffer(index, "<u8", count=1, offset=18)[0])
        lengths = np.frombuffer(index, "<i4", count=count, offset=34)
        ids = np.fromfile(stem.with_suffix(".bin"), dtype=manifest.dtype)
        ends = np.cumsum(lengths)
        documents += [ids[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]
    return documents
