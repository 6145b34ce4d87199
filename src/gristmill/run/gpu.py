"""The process that drives the GPU for the workers of a run on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from contextlib import suppress

import msgspec

from gristmill.config import TokenizerConfig
from gristmill.engines.cuda import RUN_BATCH_BYTES
from gristmill.errors import GristmillError, RunError
from gristmill.run.messages import Failed, Gpu, Load, as_error
from gristmill.run.process import WorkerProcess
from gristmill.run.resources import private_bytes

SHORT = "/dev/shm"
"""The path of a socket has 107 bytes at most, and not every file system can hold one."""


class GpuProcess:
    """Opens the GPU while workers have begun to encode, and serves them until it is ended."""

    def __init__(self, process: WorkerProcess, tokenizer: TokenizerConfig, batch_bytes: int) -> None:
        self._process = process
        self._failure: GristmillError | None = None
        self._folder = tempfile.mkdtemp(prefix="gristmill-", dir=SHORT if os.access(SHORT, os.W_OK) else None)
        self.gpu = Gpu(f"{self._folder}/gpu", min(batch_bytes, RUN_BATCH_BYTES))
        with suppress(BrokenPipeError):
            self._process.orders.write(msgspec.json.encode(Load(tokenizer, self.gpu)) + b"\n")

    @property
    def private_bytes(self) -> int:
        """Memory it holds beside what workers have too."""
        return private_bytes(self._process.pid)

    def failure(self) -> GristmillError | None:
        """What it ended with, where it did."""
        if self._failure is None and self._process.has_ended:
            answer = self._process.answers.read()
            failed = msgspec.json.decode(answer, type=Failed) if answer else None
            if failed is not None and failed.is_users:
                self._failure = as_error(failed)
            else:
                why = failed.message if failed is not None else self._process.last_words()
                self._failure = RunError(f"the process of the GPU: {why}; --engine native does without it")
        return self._failure

    def end(self) -> None:
        """Let it end now, and leave nothing behind."""
        self._process.end()
        shutil.rmtree(self._folder, ignore_errors=True)


def main() -> None:
    """Serve until standard input ends, or say what failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when to stop
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    threading.Thread(target=_wake, daemon=True).start()
    line = sys.stdin.buffer.readline()
    if not line:  # the run has ended before it began
        return
    load = msgspec.json.decode(line, type=Load)
    assert load.gpu is not None
    threading.Thread(target=_end_with_the_run, args=(load.gpu,), daemon=True).start()
    try:
        _serve(load)
    except Exception as error:
        from gristmill.run.worker import failure_of

        traceback.print_exc()
        answers.write(msgspec.json.encode(failure_of(error)))
        sys.stderr.flush()
        os._exit(1)  # a thread waits for standard input, which the interpreter cannot end beside


def _serve(load: Load) -> None:
    from gristmill.engines.cuda.serving import serve
    from gristmill.run.loading import load_configured
    from gristmill.tokenizer import lend_gpu

    assert load.tokenizer is not None
    assert load.gpu is not None
    on = lend_gpu(load_configured(load.tokenizer))
    serve(on, load.gpu.address, max_bytes=load.gpu.batch_bytes)


def _wake() -> None:
    """Begin with the GPU, which takes as long as the tokenizer; what is wrong with it will be met again."""
    with suppress(Exception):
        from gristmill.engines.cuda.cupy_device import wake

        wake()


def _end_with_the_run(gpu: Gpu) -> None:
    sys.stdin.buffer.read()
    shutil.rmtree(os.path.dirname(gpu.address), ignore_errors=True)  # a run that was killed could not
    os._exit(0)
