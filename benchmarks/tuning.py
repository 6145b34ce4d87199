"""The defaults against workers, blocks and units set by hand: whole runs of one corpus, alternated.

    python benchmarks/tuning.py CORPUS -t TOKENIZER --eos-id ID [--rounds 3]

Nothing set by hand should be more than a tenth faster than the defaults. Times are from the start of the
process to its end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "tuning.json"
SWEEP: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "1 worker": ("run.workers=1",),
    "2 processes": ("run.workers=2", "run.backend=local"),
    "3 workers": ("run.workers=3",),
    "4 workers": ("run.workers=4",),
    "blocks of 1 MB": ("run.block_bytes=1MB",),
    "blocks of 16 MB": ("run.block_bytes=16MB",),
    "units of 2 MB": ("read.unit_bytes=2MB",),
    "units of 16 MB": ("read.unit_bytes=16MB",),
    "units of 64 MB": ("read.unit_bytes=64MB",),
    "3 workers, blocks of 1 MB, units of 16 MB": (
        "run.workers=3",
        "run.block_bytes=1MB",
        "read.unit_bytes=16MB",
    ),
    "preset extreme": ("run.preset=extreme",),
}


def main() -> None:
    """Run the sweep, print it, and keep the raw times."""
    as_it_stands = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_stands)
    parser.add_argument("corpus")
    parser.add_argument("-t", "--tokenizer", required=True)
    parser.add_argument("--eos-id", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in SWEEP}
    with tempfile.TemporaryDirectory(prefix="gristmill-tuning-") as place:
        for _ in range(arguments.rounds):
            for name, options in SWEEP.items():
                seconds[name].append(round(one_run(arguments, Path(place) / "run", options), 3))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in sorted(medians.items(), key=lambda item: item[1]):
        print(f"{median:8.2f} s  {medians['defaults'] / median:6.3f}x the defaults' rate  {name}")
    RESULTS.write_text(json.dumps({"seconds": seconds}, indent=1) + "\n")


def one_run(arguments: argparse.Namespace, output: Path, options: tuple[str, ...]) -> float:
    """Seconds of one run in a fresh process."""
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "gristmill", "tokenize", arguments.corpus, "-t", arguments.tokenizer]
    command += ["-o", str(output), "--eos-id", arguments.eos_id, "--quiet", *options]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
