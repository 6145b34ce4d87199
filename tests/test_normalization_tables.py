"""The normalisation tables of the native core say what the installed `tokenizers` does."""

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).parent.parent / "scripts" / "generate_normalization.py"


def test_normalization_tables_match_the_installed_library() -> None:
    finished = subprocess.run(
        [sys.executable, GENERATOR, "--verify"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
