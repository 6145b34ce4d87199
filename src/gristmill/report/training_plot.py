"""What a training did, as a chart: how often merged pairs occurred, and compression, by vocabulary size."""

from __future__ import annotations

import io
from pathlib import Path

from gristmill.files import write_whole
from gristmill.run.train import TrainResult


def write_training_plot(result: TrainResult, path: Path) -> None:
    """Draw both curves of a training above one another; the path was checked before the training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    above.plot(*zip(*result.merge_counts, strict=True) if result.merge_counts else ((), ()))
    above.set_yscale("log")
    above.set_ylabel("occurrences of the merged pair")
    if result.fit is not None:
        below.plot(*zip(*result.fit.curve, strict=True))
        below.set_ylabel(f"bytes a token, {'held out' if result.fit.is_held_out else 'sample of the text'}")
    else:
        below.set_ylabel("bytes a token: no sample, the counts were given")
    below.set_xlabel("vocabulary size")
    for axes in (above, below):
        axes.grid(visible=True, alpha=0.3)
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix[1:])
    write_whole(path, image.getvalue())
