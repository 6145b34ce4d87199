"""What a second thread brings: one pass over a text on one and on two, and what the machine has to give.

    python benchmarks/threads.py --tokenizer DIR --text FILE.jsonl [--max-mb 100] [--rounds 7] [--json FILE]

Every measurement is a fresh process that loads the tokenizer and the text, says so, and encodes when it is
told to. In a round come one thread, two threads, and two processes side by side that each encode all of the
text on one thread. Those share nothing but the machine: where it does not let both be as fast as one alone
(cores that are halves of one, memory, neighbours on the host), no second thread can bring twice the speed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from corpora import texts_of
from gristmill import load_tokenizer


class Pass(NamedTuple):
    """What a side says of its one pass."""

    seconds: float
    num_bytes: int
    digest: str


SIDES = {"one thread": [1], "two threads": [2], "two processes": [1, 1]}


def main() -> int:
    arguments = read_arguments()
    if arguments.threads:
        encode_when_told(arguments)
        return 0
    passes: dict[str, list[Pass]] = {name: [] for name in SIDES}
    for _ in range(arguments.rounds):
        for name, threads in SIDES.items():
            passes[name].append(time_side(threads, arguments))
    if len({one.digest for own in passes.values() for one in own}) != 1:
        print("ids differ", file=sys.stderr)
        return 1
    print(render(passes))
    if arguments.json:
        seconds = {name: [one.seconds for one in own] for name, own in passes.items()}
        arguments.json.write_text(json.dumps(seconds, indent=1) + "\n")
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="JSONL, field `text`")
    parser.add_argument("--max-mb", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="keep the raw seconds")
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def time_side(threads: list[int], arguments: argparse.Namespace) -> Pass:
    """A pass by one process for each of these numbers of threads, all at once; the mean of their seconds."""
    command = [sys.executable, __file__, "--tokenizer", arguments.tokenizer, "--text", arguments.text]
    command += ["--max-mb", arguments.max_mb, "--threads"]
    sides = [
        subprocess.Popen(
            [*map(str, command), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for count in threads
    ]
    said = []
    for asked in ("", "go\n"):  # all are ready, and then all begin
        for side in sides:
            side.stdin.write(asked)
            side.stdin.flush()
        said = [side.stdout.readline() for side in sides]
    for side in sides:
        side.communicate()
    if any(side.returncode for side in sides):
        raise SystemExit(f"a process of {len(sides)} failed")
    passes = [Pass(*json.loads(line)) for line in said]
    return passes[0]._replace(seconds=statistics.mean(one.seconds for one in passes))


def encode_when_told(arguments: argparse.Namespace) -> None:
    """One process of a side."""
    texts, num_bytes = [], 0
    for text in texts_of([arguments.text]):
        texts.append(text.encode())
        num_bytes += len(texts[-1])
        if num_bytes >= arguments.max_mb * 1e6:
            break
    tokenizer = load_tokenizer(arguments.tokenizer, engine="native")
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    tokens = tokenizer.encode_batch(texts, num_threads=arguments.threads)
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, num_bytes, hashlib.sha256(tokens.ids).hexdigest()]), flush=True)


def render(passes: dict[str, list[Pass]]) -> str:
    """A line a side: its rate, and how many times that of one thread all its work is, round by round."""
    lines = []
    for name, own in passes.items():
        times = [
            len(SIDES[name]) * one.seconds / pass_.seconds
            for one, pass_ in zip(passes["one thread"], own, strict=True)
        ]
        seconds = statistics.median(pass_.seconds for pass_ in own) / len(SIDES[name])
        lines.append(
            f"{name:14} {own[0].num_bytes / seconds / 1e6:7.1f} MB/s, {statistics.median(times):.2f} times "
            f"one thread (rounds {min(times):.2f} to {max(times):.2f})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
