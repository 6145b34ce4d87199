"""A folder that `convert` has written: every file is there as it was written, and the counts agree."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from gristmill.records import Manifest
from gristmill.report.words import of_bytes
from gristmill.run.folder import MANIFEST
from gristmill.verify.findings import Findings
from gristmill.verify.hashes import check_file


def check_conversion(folder: Path, manifest: Manifest, on_step: Callable[[str], None]) -> Findings:
    """Hash every file that the manifest names, look for others, and add its shards up."""
    files = [file for shard in manifest.shards for files in shard.files.values() for file in files]
    files += manifest.sidecars
    faults = []
    for file in files:
        on_step(f"files: {file.path}")
        if re.fullmatch(r"[\w-][\w.-]*", file.path) is None:
            faults.append(f"{folder / MANIFEST}: names {file.path!r}, which is no file of this folder")
        elif fault := check_file(folder, file):
            faults.append(fault)
    unknown = set(os.listdir(folder)) - {file.path for file in files} - {MANIFEST}
    faults += [f"{folder / name}: is not in {MANIFEST}" for name in sorted(unknown)]
    ledger, shards = manifest.ledger, manifest.shards
    said, there = ledger.tokens_written + ledger.tokens_repeated, sum(shard.num_tokens for shard in shards)
    if said != there:
        faults.append(f"{folder / MANIFEST}: its ledger says {said} tokens, its shards {there}")
    total = of_bytes(sum(file.num_bytes for file in files))
    return Findings(f"size and BLAKE3 of {len(files):,} files of a conversion, {total}", faults)
