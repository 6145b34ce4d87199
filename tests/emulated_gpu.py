"""The process that drives a GPU, with a device that is emulated; each batch adds a line to a file, if one is
named."""

import os

from emulated_device import EmulatedDevice
from gristmill.engines.cuda import engine
from gristmill.engines.cuda.tables import build_tables
from gristmill.run import gpu

PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; import emulated_gpu; emulated_gpu.main()"
LOG = "EMULATED_GPU_LOG"


class LoggingDevice(EmulatedDevice):
    def run(self, launches, work):
        super().run(launches, work)
        if LOG in os.environ:
            with open(os.environ[LOG], "a") as log:
                log.write(f"{work['num_bytes']}\n")


def put_on_emulated(spec, native):
    tables = build_tables(spec, native.model, word_bits=16, is_padded=True)
    return engine.put_on_device(spec, tables, LoggingDevice(tables))


def main():
    engine.put_on_gpu = put_on_emulated
    gpu.main()
