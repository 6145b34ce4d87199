"""Finds the tokenizers in a folder that the user names."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


def tokenizer_sources(folder: Path, *, only: Collection[str] = ()) -> dict[str, Path]:
    """Map names to the tokenizers in a folder and its subfolders, of every kind of file."""
    sources: dict[str, Path] = {}
    for place in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
        name = place.resolve().name
        if (place / "tokenizer.json").is_file():
            sources[name] = place
        files = sorted([*place.glob("*.tiktoken"), *place.glob("*.model"), *place.glob("tekken*.json")])
        for file in files:
            sources[file.stem if file.suffix == ".tiktoken" else f"{name}-{file.name}"] = file
    return {name: source for name, source in sources.items() if not only or name in only}
