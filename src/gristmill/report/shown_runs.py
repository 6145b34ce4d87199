"""Which runs are shown: those at folders and URLs, and those that begin in a folder of runs later on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from gristmill.errors import RunError
from gristmill.read.storage import is_remote, local_path
from gristmill.report.run_watch import RunWatch
from gristmill.report.words import plural
from gristmill.run.folder import PLAN
from gristmill.store import Mirror

LOOK_EVERY_S = 2.0


class ShownRuns:
    """Runs by number; a number once given stays that run's."""

    def __init__(self, places: Iterable[str]) -> None:
        self.watches: list[RunWatch] = []
        self._folders: list[Path] = []
        self._num_of: dict[Path, int] = {}
        for place in dict.fromkeys(map(local_path, places)):
            if is_remote(place):
                self.watches.append(RunWatch(Mirror(place)))
                continue
            folder = Path(place)
            if folder.exists() and not folder.is_dir():
                raise RunError(f"{folder}: is no folder; name the folder of a run")
            self._folders.append(folder)
            self._look_into(folder)
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """Add the runs that have begun since."""
        for folder in self._folders:
            self._look_into(folder)
        self._looked_at = time.monotonic()

    def look_again(self) -> None:
        """Look, unless that was done a moment ago."""
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self.look()

    def describe(self) -> list[str]:
        """Of each folder that was named, what is shown and what is waited for."""
        return [_describe(folder) for folder in self._folders]

    def _look_into(self, folder: Path) -> None:
        """A folder that holds no run yet is shown as one that is waited for."""
        for found in runs_in(folder) or [folder]:
            if found not in self._num_of:
                self._add(found, folder)

    def _add(self, run: Path, folder: Path) -> None:
        """The first run in a folder takes the place of the folder, which was waited for."""
        number = self._num_of.get(folder) if run != folder else None
        if number is None or self.watches[number].folder != folder:
            number = len(self.watches)
            self.watches.append(RunWatch(run))
        else:
            self.watches[number] = RunWatch(run)
        self._num_of[run] = number


def runs_in(folder: Path) -> list[Path]:
    """The folder itself, where it holds a run; else those in it that do."""
    if (folder / PLAN).exists():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{PLAN}"))


def _describe(folder: Path) -> str:
    found = runs_in(folder)
    if found == [folder]:
        return f"{folder}: a run"
    if found:
        return f"{folder}: {plural(len(found), 'run')}; new ones are shown as they begin"
    if folder.exists():
        return f"{folder}: holds no run and no folder of one yet; waiting for one to begin"
    near = folder.absolute().parent
    names = [path.name for path in near.iterdir() if path.is_dir()] if near.is_dir() else []
    close = get_close_matches(folder.name, names, 1)
    meant = f" (did you mean {folder.parent / close[0]}?)" if close else ""
    return f"{folder}: is not there yet{meant}; waiting for a run to begin"
