"""The process that drives a GPU, with a device that is emulated: each batch adds a line to a file, if one is
named. And a worker that waits for it."""

import os

from emulated_device import EmulatedDevice
from gristmill.engines.cuda import engine, serving, shared
from gristmill.engines.cuda.tables import build_tables
from gristmill.run import gpu, worker

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; import emulated_gpu; emulated_gpu.main()"
WAITING_WORKER = PROGRAM.replace("main()", "wait_for_gpu()")
LOG = "EMULATED_GPU_LOG"


class LoggingDevice(EmulatedDevice):
    def run(self, launches, work):
        super().run(launches, work)
        if LOG in os.environ and work["num_bytes"] != serving.FIRST_BYTES:
            with open(os.environ[LOG], "a") as log:
                log.write(f"{work['num_bytes']} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")


def build_on_emulated(spec, native):
    tables = build_tables(spec, native.model, word_bits=18, is_padded=True)
    return engine.put_on_device(spec, tables, LoggingDevice(tables))


def main():
    engine.build_on_gpu = build_on_emulated
    gpu.main()


def wait_for_gpu():
    def is_ready(self):
        if not self._is_ready:
            shared.receive(self._connection, len(shared.READY))
            self._is_ready = True
        return True

    shared.SharedSlot.is_ready = is_ready
    worker.main()
