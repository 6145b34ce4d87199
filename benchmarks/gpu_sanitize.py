"""The kernels under compute-sanitizer, on a machine with a GPU: memcheck and racecheck for every tokenizer.

    python benchmarks/gpu_sanitize.py --tokenizers DIR --texts DIR [--only gpt2] [--kb 300]

A little of the mix and hostile texts that reach every kernel are encoded twice, the second time by what was
learned, and compared with the native engine's ids. The summaries are kept as `sanitizer.txt`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path

from gpu import RESULTS
from gpu_side import Side, same
from gpu_texts import adversarial, read_sets
from sources import tokenizer_sources

TOOLS = ("memcheck", "racecheck")


def small_texts(folder, num_bytes):
    """Documents of all sets, and pieces of all lengths."""
    chance, documents = random.Random(9), []
    for name, (_, docs) in read_sets(folder).items():
        total = 0
        for doc in docs if name != "mix" else []:
            documents.append(doc.decode())
            total += len(doc)
            if total > num_bytes // 4:
                break
    sizes = (33, 64, 65, 200, 257, 700, 3000, 9000)
    letters = ["".join(chance.choices("abcdeghilmnorst", k=size)) for size in sizes]
    runs = [run * 2500 for run in (" ", "a", ".", "\n", "水", "ก", "1", "ab")]
    return [*documents, *adversarial.TEXTS, *letters, *runs, *"one-character documents", "", ""]


def encode(source, texts):
    """What the sanitizer watches: both passes must be equal."""
    side = Side(source, [], 18)
    passes = [same(side, texts)[0] for _ in range(2)]
    print("ids equal", passes, flush=True)
    return 0 if all(passes) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--kb", type=int, default=300)
    parser.add_argument("--here", action="store_true", help="encode in this process: it is being watched")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    sources = tokenizer_sources(arguments.tokenizers, only=arguments.only)
    if arguments.here:
        texts = small_texts(arguments.texts, arguments.kb * 1000)
        return max(encode(str(source), texts) for source in sources.values())
    started = {(name, tool): start(name, tool, arguments) for name in sources for tool in TOOLS}
    lines = [f"compute-sanitizer over all kernels, {arguments.kb} KB of text and hostile texts, twice"]
    status = 0
    for (name, tool), process in started.items():
        output = process.communicate()[0]
        words = [line for line in output.splitlines() if "SUMMARY" in line or "ids equal" in line]
        lines.append(f"{tool}.{name}: {' '.join(words)} (status {process.returncode})")
        print(lines[-1], flush=True)
        if process.returncode:
            print(output[-3000:], flush=True)
        status |= process.returncode
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "sanitizer.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return status


def start(name, tool, arguments):
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable, __file__]
    command += ["--here", "--only", name, "--kb", str(arguments.kb)]
    command += ["--tokenizers", str(arguments.tokenizers), "--texts", str(arguments.texts)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


if __name__ == "__main__":
    sys.exit(main())
