"""Training on a JSONL file against gigatoken and tokenizers: merges compared, then time and peak memory.

    python benchmarks/train.py --corpus mixed.jsonl [--vocab-size 32000] [--rounds 3] [--json FILE]

Each side is a fresh process (and its children), held to one core by its affinity; ours, which is the command
as it is installed, also runs on two. Time is that of the whole process. Memory is the largest sum of resident
memory of all its processes, watched in a first round that is not timed. Rounds alternate, medians are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memory import look

EOS = "<|endoftext|>"
POLL_S = 0.02
OURS = "tokenizer.json"


def main() -> int:
    arguments = read_arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled where a user installs them
    if arguments.side:
        pairs = SIDES[arguments.side](arguments.corpus, arguments.vocab_size)
        (arguments.output / "merges.json").write_text(json.dumps(pairs))
        return 0
    sides = {"gristmill": 1, "gristmill, 2 cores": 2} | dict.fromkeys(arguments.against.split(","), 1)
    timings: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="gristmill-train-") as folder:
        merges: dict[str, Any] = {}
        for round_ in range(arguments.rounds + 1):
            for name, cores in sides.items():
                output = Path(folder) / name.replace(" ", "-").replace(",", "")
                side = name.split(",")[0]
                timings[name].append(run_side(side, cores, arguments, output, is_watched=round_ == 0))
                merges[name] = read_merges(output)
                print(f"round {round_}, {name}: {timings[name][-1]}", file=sys.stderr)
        differing = [name for name in merges if merges[name] != merges["gristmill"]]
    print(render(timings, differing))
    if arguments.json:
        report = {"vocab_size": arguments.vocab_size, "timings": timings, "differing": differing}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if differing else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL with a field text")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", default=",".join(SIDES), metavar="NAME,...", help=", ".join(SIDES))
    parser.add_argument("--json", type=Path, help="keep the raw results")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_side(
    name: str, cores: int, arguments: argparse.Namespace, output: Path, *, is_watched: bool
) -> dict[str, float]:
    """Time of one side in a fresh process, or its peak memory: who watches takes from a core."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = [sys.executable, __file__, "--side", name, "--output", str(output)]
    command += ["--corpus", str(arguments.corpus), "--vocab-size", str(arguments.vocab_size)]
    if name == "gristmill":
        command = [sys.executable, "-m", "gristmill", "train", str(arguments.corpus), "--quiet"]
        command += ["-o", str(output / OURS), "--vocab-size", str(arguments.vocab_size)]
        command += ["--workers", str(cores)]
    allowed = set(sorted(os.sched_getaffinity(0))[:cores])
    # Installed packages are compiled: a source tree is too, after its first run.
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=settings | {"RAYON_NUM_THREADS": str(cores)},
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while is_watched and process.poll() is None:
        peak = max(peak, look(process.pid, with_pss=False).rss)
        time.sleep(POLL_S)
    process.wait()
    took = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"{name} failed with status {process.returncode}")
    return {"peak_mb": round(peak / 1e6, 1)} if is_watched else {"seconds": round(took, 3)}


def read_merges(output: Path) -> list[list[str]]:
    """What a side has learned."""
    if (output / OURS).exists():
        return [list(pair) for pair in json.loads((output / OURS).read_text())["model"]["merges"]]
    merges: list[list[str]] = json.loads((output / "merges.json").read_text())
    return merges


def train_tokenizers(corpus: Path, vocab_size: int) -> list[list[str]]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[EOS], initial_alphabet=alphabet, show_progress=False
    )
    with corpus.open(encoding="utf-8") as lines:
        tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer=trainer)
    return [list(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def train_gigatoken(corpus: Path, vocab_size: int) -> list[list[str]]:
    import gigatoken

    from gristmill.training.start import token_text

    source = gigatoken.JsonlFileSource([str(corpus)], field="text")
    _, merges = gigatoken.train_bpe(source, vocab_size, [EOS])
    return [[token_text(left, "bytes"), token_text(right, "bytes")] for left, right in merges]


SIDES = {"gigatoken": train_gigatoken, "tokenizers": train_tokenizers}


def render(timings: dict[str, list[dict[str, float]]], differing: list[str]) -> str:
    """Medians, and how many times as long and as large as ours on one core."""
    medians = {
        name: (
            statistics.median(run["seconds"] for run in runs if "seconds" in run),
            max(run.get("peak_mb", 0.0) for run in runs),
        )
        for name, runs in timings.items()
    }
    ours_s, ours_mb = medians["gristmill"]
    lines = [f"{'trainer':<20} {'seconds':>8} {'times ours':>10} {'peak MB':>8} {'times ours':>10}  merges"]
    for name, (seconds, peak) in medians.items():
        verdict = "DIFFER" if name in differing else "equal"
        times = f"{seconds:8.2f} {seconds / ours_s:10.2f} {peak:8.0f} {peak / ours_mb:10.2f}"
        lines.append(f"{name:<20} {times}  {verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
