"""The cuda engine on a machine with a GPU: exactness first, then speed; raw results as JSON.

    python benchmarks/gpu.py --tokenizers DIR --texts DIR [--gb 2] [--only gpt2]
        [--stages exact resident pinned rivals]

A text is NAME.json or NAME.json.xz, a list of documents; `mix` is all of them. Each is cut into two parts
by document: the tables learn from one, all figures are of the other. To get gigabytes, its documents are
drawn in shuffled rounds. exact: base texts, fuzz and hostile texts against the native engine, ids and
offsets. resident: text and ids stay on the GPU; every id is compared before and after timing. pinned:
from pinned host memory to pinned host memory. rivals: gigatoken and the native engine on all cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

import cupy
import numpy as np

from gpu_side import NUM_CORES, Resident, Side, learn, prepared, same
from gpu_texts import expand, hostile_sets, read_sets
from gristmill.batch import flatten_texts
from gristmill.engines.cuda.batch import NUM_LONG, NUM_LONGER, NUM_SECTIONS
from gristmill.engines.cuda.tables import WORD_BITS
from sources import tokenizer_sources

RESULTS = Path(__file__).parent / "results" / "gpu"
STAGES = ("exact", "resident", "pinned", "rivals")


def exact(side, sets, hostile):
    texts = {f"{name}, test part": docs for name, (_, docs) in sets.items() if name != "mix"}
    rows = []
    for name, docs in {**texts, **hostile}.items():
        first = same(side, docs)
        again = same(side, docs)
        size = sum(len(doc) if isinstance(doc, bytes) else len(doc.encode()) for doc in docs)
        rows.append(
            {
                "set": name,
                "documents": len(docs),
                "bytes": size,
                "is_equal": first[0] and again[0],
                "fallback_rate": first[1],
                "gb_per_s_on_gpu": size / on_gpu_ms(side, docs) / 1e6,
                "gb_per_s_once": size / first[2] / 1e9,
                "gb_per_s_again": size / again[2] / 1e9,
            }
        )
        print("  exact", rows[-1], flush=True)
    return rows


def on_gpu_ms(side, docs):
    """Milliseconds of the kernels alone, the best of three."""
    buffer, offsets = flatten_texts([doc for doc in docs if doc])
    room = Resident(side, max(len(buffer) + 4096, 8 * len(offsets)))
    room.load(buffer, offsets)
    return min(room.total_ms(is_learning=True) for _ in range(3))


def resident(side, sets, num_bytes, *, is_cold):
    """Text in the GPU's memory to ids in the GPU's memory."""
    room = Resident(side, num_bytes + 4096)
    rows = []
    for name, (_, docs) in sets.items():
        buffer, offsets, order, ids, counts = prepared(side, name, docs, num_bytes)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        room.load(buffer, offsets)
        room.poison()
        room.timed(is_learning=False)
        before = room.is_equal(ids, starts)
        rounds = [room.timed(is_learning=not is_cold)[0] for _ in range(3)]
        total = statistics.median(room.total_ms(is_learning=not is_cold) for _ in range(7))
        after = room.is_equal(ids, starts)
        rows.append(
            {
                "set": name,
                "is_cold": is_cold,
                "bytes": len(buffer),
                "documents": len(order),
                "ids": len(ids),
                "is_equal": before and after,
                "gb_per_s": len(buffer) / total / 1e6,
                "missed_per_1000_bytes": 1000 * int(room.batch._counters[0]) / len(buffer),
                "long": int(room.batch._counters[NUM_LONG]),
                "longer": int(room.batch._counters[NUM_LONGER]),
                "sections": int(room.batch._counters[NUM_SECTIONS]),
                "ms": {k: round(statistics.median(r[k] for r in rounds), 3) for k in rounds[0]},
            }
        )
        print("  resident", rows[-1], flush=True)
    return rows


def pinned(side, sets, num_bytes, *, batch_bytes, num_slots):
    """Pinned host memory to pinned host memory, in a ring of batches; ids of more than 16 bits come as three
    bytes each, in two arrays a batch."""
    slots = [side.new_batch(batch_bytes + (1 << 20)) for _ in range(num_slots)]
    text = side.device.pinned(num_bytes + 4096)
    out = side.device.pinned(2 * num_bytes)
    rows = []
    for name, (_, docs) in sets.items():
        buffer, offsets, order, ids, counts = prepared(side, name, docs, num_bytes)
        text[: len(buffer)] = buffer
        cuts = cut_batches(offsets, batch_bytes)
        starts = side.device.pinned(4 * len(order)).view(np.uint32)
        for a, b in pairwise(cuts):
            starts[a:b] = offsets[a:b] - offsets[a]
        doc_ids = side.device.pinned(4 * len(order) + 64)
        took = []
        for number in range(6):
            if number == 5:
                out[: 3 * len(ids) + 4 * len(cuts)] = 0xEE
                doc_ids[:] = 0xEE
            began = time.perf_counter()
            found = through_ring(side, slots, cuts, (text, offsets, starts), (out, doc_ids))
            took.append(time.perf_counter() - began)
        rows.append(
            {
                "set": name,
                "bytes": len(buffer),
                "batch_bytes": batch_bytes,
                "slots": num_slots,
                "is_equal": is_same(found, cuts, ids, counts, doc_ids),
                "gb_per_s": len(buffer) / statistics.median(took[1:]) / 1e9,
                "gb_per_s_best": len(buffer) / min(took) / 1e9,
                "out_bytes_per_byte": sum(_num_bytes(part) for part in found) / len(buffer),
            }
        )
        print("  pinned", rows[-1], flush=True)
    return rows


def cut_batches(offsets, batch_bytes):
    cuts = [0]
    while cuts[-1] < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[cuts[-1]] + batch_bytes, side="right")) - 1
        cuts.append(min(max(last, cuts[-1] + 1), len(offsets) - 1))
    return cuts


def through_ring(side, slots, cuts, given, taken):
    """All batches, as many at a time as there are slots; where the ids of each are."""
    text, offsets, starts = given
    out, doc_ids = taken
    found, at, num_batches, behind = [], 0, len(cuts) - 1, len(slots) - 1
    for i in range(num_batches + behind):
        if i < num_batches:
            a, b = cuts[i], cuts[i + 1]
            slots[i % len(slots)].submit(
                text[offsets[a] : offsets[b]], starts[a:b], side.added, is_learning=True, is_split=True
            )
        if i >= behind:
            j = i - behind
            found.append(slots[j % len(slots)].fetch(out[at:], doc_ids[4 * cuts[j] : 4 * cuts[j + 1]]))
            at += -(-_num_bytes(found[-1]) // 4) * 4
    slots[(num_batches - 1) % len(slots)].complete()
    return found


def _num_bytes(result):
    return result.ids.nbytes + (0 if result.high is None else result.high.nbytes)


def is_same(found, cuts, ids, counts, doc_ids):
    """Every id and where every document's begin."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    begins = doc_ids.view(np.uint32)[: len(counts)]
    is_equal = sum(len(result.ids) for result in found) == len(ids)
    for result, (a, b) in zip(found, pairwise(cuts), strict=True):
        low = ids[starts[a] : starts[b]]
        if result.high is not None:
            is_equal &= bool(np.array_equal(result.high, (low >> 16).astype(np.uint8)))
            low = low & 0xFFFF
        is_equal &= bool(np.array_equal(result.ids, low.astype(result.ids.dtype)))
        is_equal &= bool(np.array_equal(begins[a:b], (starts[a:b] - starts[a]).astype(np.uint32)))
    return is_equal


def rivals(side, sets, num_bytes):
    """The CPU on all cores, from a list of documents as gigatoken takes it, and from one buffer."""
    rows = []
    for name, (_, docs) in sets.items():
        buffer, offsets, order = expand(docs, num_bytes, 5)
        row = {"set": name, "bytes": len(buffer), "cores": NUM_CORES}
        row["native_gb_per_s"] = len(buffer) / best(lambda b=buffer, o=offsets: side.reference(b, o)) / 1e9
        row["cuda_gb_per_s"] = (
            len(buffer)
            / best(
                lambda b=buffer, o=offsets: side.engine.encode_batch(
                    b, o, special_tokens="text", num_threads=NUM_CORES
                )
            )
            / 1e9
        )
        try:
            import gigatoken

            path = Path(side.source)
            theirs = (
                gigatoken.Tokenizer.from_tiktoken(path)
                if path.suffix == ".tiktoken"
                else gigatoken.Tokenizer(str(path / "tokenizer.json" if path.is_dir() else path))
            )
            listed = [docs[i] for i in order]
            row["gigatoken_gb_per_s"] = (
                len(buffer) / best(lambda d=listed, t=theirs: t.encode_batch(d, parallel=True)) / 1e9
            )
        except Exception as error:
            row["gigatoken"] = repr(error)[:200]
        rows.append(row)
        print("  rivals", row, flush=True)
    return rows


def best(call):
    took = []
    for _ in range(3):
        started = time.perf_counter()
        call()
        took.append(time.perf_counter() - started)
    return min(took)


def measured(side, sets, hostile, arguments):
    """The figures of every stage that was asked for; what the tables learned comes between cold and warm."""
    stages, num_bytes, found = arguments.stages, int(arguments.gb * 1e9), {}
    if arguments.cold and "resident" in stages:
        found["cold"] = resident(side, sets, num_bytes, is_cold=True)
    for known, _ in sets.values():
        learn(side, known)
    found["learned"] = side.on.known["learned"].array.view(np.uint32)[:2].get().tolist()
    print("  learned", found["learned"], flush=True)
    if "resident" in stages:
        found["resident"] = resident(side, sets, num_bytes, is_cold=False)
    if "pinned" in stages:
        found["pinned"] = pinned(
            side, sets, num_bytes, batch_bytes=arguments.batch_mb << 20, num_slots=arguments.slots
        )
    if "rivals" in stages:
        found["rivals"] = rivals(side, sets, min(num_bytes, 1_000_000_000))
    if "exact" in stages:
        found["exact"] = exact(side, sets, hostile)
    return found


def parsed_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--fuzz", type=int, default=100_000)
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=STAGES)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--cold", action="store_true", help="also time with tables of the vocabulary alone")
    parser.add_argument("--define", nargs="*", default=[], help="for the kernels, such as MIN_BLOCKS=5")
    parser.add_argument("--word-bits", type=int, default=WORD_BITS)
    parser.add_argument("--batch-mb", type=int, default=96)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> int:
    arguments = parsed_arguments()
    arguments.results.mkdir(parents=True, exist_ok=True)
    sets = read_sets(arguments.texts)
    if arguments.sets:
        sets = {name: sets[name] for name in arguments.sets}
    hostile = hostile_sets(arguments.fuzz) if "exact" in arguments.stages else {}
    is_equal = True
    for name, source in tokenizer_sources(arguments.tokenizers, only=arguments.only or ()).items():
        side = Side(str(source), arguments.define, arguments.word_bits)
        print(name, "opened in", round(side.open_s, 2), "s", side.tables.sizes, flush=True)
        found = {"tokenizer": name, "gpu": gpu_name(), "cores": NUM_CORES, "open_s": side.open_s}
        found |= measured(side, sets, hostile, arguments)
        rows = [row for stage in (*STAGES, "cold") for row in found.get(stage, []) if "is_equal" in row]
        is_equal &= all(row["is_equal"] for row in rows)
        path = arguments.results / f"{name}.json"
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        cupy.get_default_memory_pool().free_all_blocks()
        del side
    print("ALL EQUAL" if is_equal else "NOT EQUAL", flush=True)
    return 0 if is_equal else 1


def gpu_name() -> str:
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return str(properties["name"].decode())


if __name__ == "__main__":
    sys.exit(main())
