"""Processes that encode with a Python tokenizer; each is a program of its own, so that nothing is forked and
nothing of the caller's is imported again."""

from __future__ import annotations

import io
import os
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, Any

import msgspec
import numpy as np

from gristmill import errors
from gristmill.batch import TokenBatch
from gristmill.engines import Bytes, Offsets, SpecialTokens
from gristmill.errors import InputError, RunError, TokenizerError
from gristmill.run.process import WorkerProcess

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from gristmill.causal.pool_worker import main; main()"
PARTS_EACH = 16
"""Parts of a batch for each process, so that none waits long for another at its end."""
MIN_PART_BYTES = 1 << 14


class Open(msgspec.Struct, frozen=True, tag="open"):
    """To a process, first."""

    source: str
    class_name: str


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """From a process: it is ready."""

    fingerprint: str


class Part(msgspec.Struct, frozen=True, tag="part"):
    """To a process: offsets and text follow."""

    num_documents: int
    num_bytes: int
    special_tokens: SpecialTokens


class Ids(msgspec.Struct, frozen=True, tag="ids"):
    """From a process: offsets and ids follow."""

    num_documents: int
    num_ids: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From a process: it could not be done."""

    kind: str
    message: str


Answer = Opened | Ids | Failed


class Pool:
    """So many processes with the same tokenizer; parts of a batch are joined in their order."""

    def __init__(self, source: str, class_name: str, fingerprint: str, *, num_processes: int) -> None:
        self._threads = ThreadPoolExecutor(num_processes)
        self._processes = [WorkerProcess(is_frugal=False, program=PROGRAM) for _ in range(num_processes)]
        self._idle: queue.SimpleQueue[_Talk] = queue.SimpleQueue()
        self._source, self._fingerprint = source, fingerprint
        self._owner = os.getpid()
        for process in self._processes:
            talk = _Talk(process)
            talk.send(Open(source, class_name))
            self._idle.put(talk)

    def encode(self, text: Bytes, offsets: Offsets, *, special_tokens: SpecialTokens) -> TokenBatch:
        """Ids of all documents."""
        parts = list(cut_parts(offsets, len(self._processes) * PARTS_EACH))
        encode = partial(self._encode_part, text, offsets, special_tokens)
        done = list(self._threads.map(encode, parts))
        ids = [np.empty(0, np.uint32), *(one.ids for one in done)]
        lengths = [np.zeros(1, np.int64), *(np.diff(one.offsets) for one in done)]
        return TokenBatch(np.concatenate(ids), np.cumsum(np.concatenate(lengths)))

    def end(self) -> None:
        """Kill the processes; who waits for an answer gets an error."""
        if os.getpid() != self._owner:  # a fork's copy of this pool has no say over them
            return
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.end()

    def _encode_part(
        self, text: Bytes, offsets: Offsets, special_tokens: SpecialTokens, part: tuple[int, int]
    ) -> TokenBatch:
        start, stop = part
        own = offsets[start : stop + 1]
        talk = self._idle.get()
        try:
            if not talk.is_open:
                self._check(talk.receive())
                talk.is_open = True
            talk.send(
                Part(stop - start, int(own[-1] - own[0]), special_tokens),
                np.ascontiguousarray(own - own[0]),
                np.ascontiguousarray(text[own[0] : own[-1]]),
            )
            answer = talk.receive()
            assert isinstance(answer, Ids)
            ends = talk.read(answer.num_documents + 1, np.int64)
            return TokenBatch(talk.read(answer.num_ids, np.uint32), ends)
        finally:
            self._idle.put(talk)

    def _check(self, answer: Answer) -> None:
        assert isinstance(answer, Opened)
        if answer.fingerprint != self._fingerprint:
            raise TokenizerError(f"{self._source}: changed while it was used; start again")


def cut_parts(offsets: Offsets, num_parts: int) -> Iterator[tuple[int, int]]:
    """First and last document of parts of about the same size."""
    size = max(MIN_PART_BYTES, int(offsets[-1] - offsets[0]) // num_parts)
    start, num_documents = 0, len(offsets) - 1
    while start < num_documents:
        stop = int(np.searchsorted(offsets, offsets[start] + size, side="left"))
        stop = min(max(stop, start + 1), num_documents)
        yield start, stop
        start = stop


class _Talk:
    """What is said to a process and what it answers."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._answers = io.BufferedReader(process.answers)  # type: ignore[type-var]
        self.is_open = False

    def send(self, message: Open | Part, *arrays: Any) -> None:
        """A line, and what follows it."""
        try:
            write_all(self._process.orders, msgspec.json.encode(message) + b"\n")
            for array in arrays:
                write_all(self._process.orders, array.data.cast("B"))
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error

    def receive(self) -> Answer:
        """The next answer; a failure is raised."""
        line = self._answers.readline()
        if not line:
            raise self._gone()
        answer: Answer = msgspec.json.decode(line, type=Answer)
        if isinstance(answer, Failed):
            kind = getattr(errors, answer.kind, None)
            raise (kind if isinstance(kind, type) else InputError)(answer.message)
        return answer

    def read(self, count: int, dtype: Any) -> Any:
        """So many numbers."""
        content = self._answers.read(count * np.dtype(dtype).itemsize)
        if len(content) < count * np.dtype(dtype).itemsize:
            raise self._gone()
        return np.frombuffer(content, dtype)

    def _gone(self) -> RunError:
        return RunError(f"{self._process.last_words()}; num_proc: 1 encodes in this process instead")


def write_all(stream: IO[bytes], content: Any) -> None:
    """All of it: a raw pipe may take less than it is given."""
    view = memoryview(content)
    while view:
        view = view[stream.write(view) :]
