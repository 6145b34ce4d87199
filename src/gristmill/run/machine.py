"""The machine a run is done on, and the versions of what does it: for its report."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from gristmill.run.resources import available_memory, num_cores
from gristmill.versions import version_of

PACKAGES = ("gristmill", "numpy", "tokenizers", "pyarrow", "msgspec")


def describe_machine() -> dict[str, object]:
    """Processor, cores, memory, system and versions; nothing that names the machine or its user."""
    return {
        "processor": processor_name(),
        "cores": num_cores(),
        "processors": os.cpu_count() or 1,
        "available_bytes": available_memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := version_of(name))},
    }


def processor_name() -> str:
    """What the processor is sold as, or of what kind it is."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, None) or platform.processor() or sys.platform  # the second may start a process
