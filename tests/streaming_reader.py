"""The `streaming` package as tests import it: MosaicML's readers, without those of images.

`import streaming` imports `streaming.vision`, which imports torchvision, whose wheels on PyPI are built for
CUDA and do not load beside a torch for the CPU. Nothing that reads tokens uses it, so an empty module stands
in its place; all else is the package as it is."""

import sys
import types

sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))

from streaming import MDSWriter, StreamingDataset  # noqa: E402

__all__ = ["MDSWriter", "StreamingDataset"]
