"""The jobs as Python calls: `gristmill.tokenize` and `gristmill.train`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gristmill.config import TokenizeConfig, TrainConfig
from gristmill.job import as_job, as_training
from gristmill.report.html import write_report
from gristmill.run import tokenize as run
from gristmill.run import train as training
from gristmill.run.learn import OnLearning
from gristmill.run.progress import OnProgress
from gristmill.run.tokenize import RunResult
from gristmill.run.train import TrainResult


def tokenize(
    config: TokenizeConfig | Mapping[str, Any] | str | os.PathLike[str],
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> RunResult:
    """Do a job: from the files it names to shards in its run folder.

    The job is a TokenizeConfig, a dict with the sections of the YAML, or the path of a YAML file. The same
    call again takes up a run that was cut short, and answers at once where it was finished; `force` starts
    over. `on_progress` is called with a snapshot a few times a second. Units that could not be done are in
    `failed` of what is returned; then there is no manifest."""
    result = run.tokenize(as_job(config), force=force, on_progress=on_progress)
    write_report(result.folder, is_new=result.last is not None)
    return result


def train(
    config: TrainConfig | Mapping[str, Any] | str | os.PathLike[str],
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
    on_learning: OnLearning | None = None,
) -> TrainResult:
    """Do a job: from the files it names to a tokenizer.json.

    The job is a TrainConfig, a dict with the sections of the YAML, or the path of a YAML file. The same call
    again takes up a count or a learning that was cut short; `force` counts anew. `on_progress` is called with
    a snapshot a few times a second while pieces are counted, `on_learning` with the tokens there are and the
    tokens wanted."""
    job = as_training(config)
    result = training.train(job, force=force, on_progress=on_progress, on_learning=on_learning)
    write_report(result.folder, is_new=True)
    return result
