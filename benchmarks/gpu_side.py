"""A tokenizer with both engines for the benchmarks on a GPU, and a large batch whose kernels are timed."""

from __future__ import annotations

import os
import time
from itertools import pairwise

import cupy
import numpy as np

from gpu_texts import expand, gather
from gristmill.batch import flatten_texts
from gristmill.engines.cuda.batch import Batch, scratch_bytes
from gristmill.engines.cuda.cupy_device import CupyDevice
from gristmill.engines.cuda.engine import Stretch, engine_on, flagged_documents, put_on_device
from gristmill.engines.cuda.tables import build_tables
from gristmill.engines.native import compile_model, compile_native
from gristmill.load import LoadOptions, load_source

NUM_CORES = os.cpu_count() or 1


class Side:
    """A tokenizer with both engines."""

    def __init__(self, source, defines, word_bits):
        started = time.perf_counter()
        loaded = load_source(source, LoadOptions())
        self.source = source
        self.native = compile_native(loaded.spec)
        self.tables = build_tables(loaded.spec, compile_model(loaded.spec), word_bits=word_bits)
        self.device = CupyDevice(self.tables, defines=defines)
        self.on = put_on_device(loaded.spec, self.tables, self.device)
        self.engine = engine_on(self.on, self.native)
        self.asked = engine_on(self.on, self.native, num_spared=0)  # for all of the text
        self.spec = loaded.spec
        self.prepared = {}
        self.open_s = time.perf_counter() - started

    def reference(self, buffer, offsets):
        return self.native.encode_batch(buffer, offsets, special_tokens="text", num_threads=NUM_CORES)

    def new_batch(self, num_bytes):
        scratch = {"scratch": self.device.allocate(scratch_bytes(self.tables, num_bytes))}
        return Batch(self.device, self.tables, self.on.known | scratch, num_bytes=num_bytes)

    @property
    def added(self):
        return self.on.added["text"].work


def same(side, docs):
    """Both engines on the documents: (equal, share on the CPU, seconds of the cuda engine)."""
    buffer, offsets = flatten_texts(docs)
    engine = side.asked
    engine.num_documents = engine.num_fallbacks = 0
    started = time.perf_counter()
    ids, ends = engine.encode_batch(buffer, offsets, special_tokens="text", num_threads=NUM_CORES)
    took = time.perf_counter() - started
    their_ids, their_ends = side.reference(buffer, offsets)
    return (
        bool(np.array_equal(ids, their_ids) and np.array_equal(ends, their_ends)),
        engine.fallback_rate,
        took,
    )


def learn(side, docs):
    for _ in range(3):
        buffer, offsets = flatten_texts(docs)
        side.engine.encode_batch(buffer, offsets, special_tokens="text", num_threads=NUM_CORES)


def kept_documents(side, docs):
    """Those that the GPU does by itself."""
    buffer, offsets = flatten_texts(docs)
    batch = side.new_batch(len(buffer) + 4096)
    batch.submit(buffer, offsets[:-1].astype(np.uint32), side.added, is_learning=False)
    ids = side.device.pinned(4 * len(buffer) + 64)
    starts = side.device.pinned(4 * len(docs) + 64)
    result = batch.fetch(ids, starts)
    batch.complete()
    bad = set(flagged_documents(offsets, Stretch(0, len(docs)), result.flagged).tolist())
    return [doc for i, doc in enumerate(docs) if i not in bad], result.num_missed


def prepared(side, name, docs, num_bytes):
    """Documents that the GPU does by itself, up to so many bytes, with their ids and how many each has."""
    if (name, num_bytes) not in side.prepared:
        docs, _ = kept_documents(side, docs)
        buffer, offsets, order = expand(docs, num_bytes, 3)
        ids, counts = gather(*side.reference(*flatten_texts(docs)), order)
        side.prepared[name, num_bytes] = buffer, offsets, order, ids, counts
    return side.prepared[name, num_bytes]


class Resident:
    """A large batch on the GPU, with each kernel timed."""

    def __init__(self, side, num_bytes):
        self.side = side
        self.batch = side.new_batch(num_bytes)

    def load(self, buffer, offsets):
        self.batch.submit(buffer, offsets[:-1].astype(np.uint32), self.side.added, is_learning=False)
        self.side.device.reach(self.batch._computed)

    def timed(self, *, is_learning):
        batch, stream = self.batch, self.side.device._streams["compute"]
        launches = batch.launches(is_learning=is_learning)
        events = [cupy.cuda.Event() for _ in range(len(launches) + 1)]
        events[0].record(stream)
        for i, launch in enumerate(launches):
            self.side.device.run([launch], batch._work)
            events[i + 1].record(stream)
        events[-1].synchronize()
        names = [kernel for kernel, _, _ in launches]
        between = [cupy.cuda.get_elapsed_time(a, b) for a, b in pairwise(events)]
        self.side.device.read(batch._memory["counters"], batch._counters, "compute")
        self.side.device.reach(self.side.device.mark("compute"))
        return dict(zip(names, between, strict=True)), cupy.cuda.get_elapsed_time(events[0], events[-1])

    def total_ms(self, *, is_learning):
        """All kernels, timed as a whole: marks between them take as long as some of them."""
        batch, stream = self.batch, self.side.device._streams["compute"]
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record(stream)
        batch._run(is_learning=is_learning)
        last.record(stream)
        last.synchronize()
        return cupy.cuda.get_elapsed_time(first, last)

    def poison(self):
        for name in ("out", "doc_ids", "stage", "arena"):
            self.batch._memory[name].array.fill(0xEE)
        cupy.cuda.Device().synchronize()

    def is_equal(self, ids, starts):
        count = int(self.batch._counters[3])
        if count != len(ids):
            return False
        out = self.batch._memory["out"].array[: count * self.batch.id_type.itemsize].view(self.batch.id_type)
        docs = self.batch._memory["doc_ids"].array[: 4 * len(starts)].view(np.uint32)
        wanted = cupy.asarray(ids.astype(self.batch.id_type)), cupy.asarray(starts.astype(np.uint32))
        return bool((out == wanted[0]).all()) and bool((docs == wanted[1]).all())
