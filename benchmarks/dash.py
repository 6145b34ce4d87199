"""The page under load: a made run of many units and hours of events; and what the page costs a real run.

python benchmarks/dash.py scale                       first paint, answers and memory of the server
python benchmarks/dash.py cost CORPUS -t TOKENIZER    rates of runs with and without the page, alternated
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

from large_run import make_run

RESULTS = Path(__file__).parent / "results" / "dash.json"
SEEN = "() => document.querySelector('[data-figure=\"state\"]')?.textContent"
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
"""There a moment after figures are, at times: what is in the page is not yet on the screen."""
FLAGS = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def main() -> None:
    as_it_stands = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_stands)
    parser.add_argument("what", choices=("scale", "cost"))
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("-t", "--tokenizer")
    parser.add_argument("--eos-id", default="50256")
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--hours", type=float, default=10)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help="for the raw figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gristmill-dash-") as place:
        found = scale(arguments, Path(place)) if arguments.what == "scale" else cost(arguments, Path(place))
    print(json.dumps(found, indent=1))
    before = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    arguments.output.write_text(json.dumps(before | {arguments.what: found}, indent=1) + "\n")


def scale(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Open a finished made run, and one still at work."""
    names = ("units", "hours", "workers")
    found: dict[str, float] = {name: getattr(arguments, name) for name in names}
    for name, is_finished in (("finished", True), ("live", False)):
        make_run(
            folder / name,
            num_units=arguments.units,
            hours=arguments.hours,
            num_workers=arguments.workers,
            is_finished=is_finished,
        )
        found |= {f"{name} {key}": value for key, value in open_run(folder / name).items()}
        shutil.rmtree(folder / name)
    return found


def open_run(folder: Path) -> dict[str, float]:
    """What a user who opens the page waits for, and what the server takes."""
    command = [sys.executable, "-m", "gristmill", "dash", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split()[0]
    try:
        with sync_playwright() as playwright:
            flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
            browser = playwright.chromium.launch(executable_path=chromium(), args=flags)
            page = browser.new_page()
            start = time.perf_counter()
            page.goto(address)
            page.wait_for_function(SEEN)
            figures_s = time.perf_counter() - start
            paint = page.wait_for_function(PAINT).json_value() / 1000
            answers = []
            while True:
                asked = time.perf_counter()
                with urllib.request.urlopen(f"{address}api/runs/0") as answer:
                    overview = json.load(answer)
                answers.append(time.perf_counter() - asked)
                assert not overview["error"], overview["error"]
                if overview["is_complete"]:
                    break
            complete_s = time.perf_counter() - start
            page.reload()
            start = time.perf_counter()
            page.wait_for_function(SEEN)
            again_s = time.perf_counter() - start
            browser.close()
        status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak = next(line for line in status if "VmHWM" in line)
    finally:
        process.terminate()
        process.wait()
    return {
        "first_paint_s": round(paint, 3),
        "figures_s": round(figures_s, 3),
        "all_units_s": round(complete_s, 3),
        "slowest_answer_s": round(max(answers), 3),
        "page_again_s": round(again_s, 3),
        "peak_memory_mb": round(int(peak.split()[1]) * 1024 / 1e6, 1),
        "events_mb": round((folder / "events.jsonl").stat().st_size / 1e6, 1),
    }


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = (path for name in names if (path := shutil.which(name)))
    return os.environ.get("GRISTMILL_CHROMIUM") or next(found, None)


def cost(arguments: argparse.Namespace, place: Path) -> dict[str, object]:
    """Runs without the page, and with it and a connection to it, by turns: seconds of the units, CPU seconds
    of the run, and of the page beside it, which is what it takes away where all cores are busy."""
    sides: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for number in range(arguments.rounds * 2):
        side = ("without", "with")[(number + number // 2) % 2]
        sides[side].append(one_run(arguments, place / "run", with_page=side == "with"))

    def median(side: str, name: str) -> float:
        return statistics.median(run[name] for run in sides[side])

    return {
        "runs": sides,
        "wall_ratio": round(median("with", "units_s") / median("without", "units_s"), 4),
        "cpu_ratio": round(median("with", "cpu_s") / median("without", "cpu_s"), 4),
        "page_share": round(median("with", "page_cpu_s") / median("with", "cpu_s"), 4),
    }


def one_run(arguments: argparse.Namespace, output: Path, *, with_page: bool) -> dict[str, float]:
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "gristmill", "tokenize", arguments.corpus, "-t", arguments.tokenizer]
    command += ["-o", str(output), "--eos-id", arguments.eos_id, "--quiet"]
    command += ["--dash-port", "0"] if with_page else []
    before = cpu_s()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    page = PageTime(process.pid)
    if with_page:
        address = process.stderr.readline().split()[-1]
        threading.Thread(target=listen, args=(address,), daemon=True).start()
        page.start()
    process.wait()
    last = json.loads((output / "events.jsonl").read_bytes().splitlines()[-1])
    return {
        "units_s": float(last["elapsed_s"]),
        "cpu_s": round(cpu_s() - before, 3),
        "page_cpu_s": page.seconds(),
    }


def cpu_s() -> float:
    """Of processes that were started from here and have ended, and of those they waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class PageTime(threading.Thread):
    """Watches the CPU time of the page beside a run, for whose end nobody waits."""

    def __init__(self, run: int) -> None:
        super().__init__(daemon=True)
        self._run = run
        self._ticks = 0

    def run(self) -> None:
        page = None
        while page is None:
            page = next((pid for pid in children(self._run) if is_page(pid)), None)
        while (ticks := ticks_of(page)) is not None:
            self._ticks = ticks
            time.sleep(0.05)

    def seconds(self) -> float:
        """To its end, if it has begun."""
        if self.ident is not None:
            self.join()
        return self._ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_page(pid: int) -> bool:
    try:
        return b"serve_beside" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def ticks_of(pid: int) -> int | None:
    """User and system time; None where the process is gone, or has ended and is not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[11]) + int(fields[12])


def listen(address: str) -> None:
    """Take every event, as an open page does."""
    with urllib.request.urlopen(f"{address}api/events") as stream:
        for _ in stream:
            pass


if __name__ == "__main__":
    main()
