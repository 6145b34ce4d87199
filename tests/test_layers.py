"""Imports point one way: a module imports from the layers below its own, or from its own folder."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "gristmill"

# Bottom first. A folder is one layer, whatever its files import from one another.
LAYERS = (
    {"errors", "signals"},
    {"retry"},
    {
        *("config", "direct_file", "files", "plain_arrays", "records", "sample", "scripts", "spec"),
        *("stopwatch", "unicode_data", "versions", "yaml_text", "_native"),
    },
    {"hub"},
    {"drafts", "job", "layout", "ledger", "limits"},
    {"pattern"},
    {"engines"},
    {"batch", "special_text"},
    {"text_sample"},
    {"load"},
    {"engine_cache"},
    {"engine_choice"},
    {"tokenizer"},
    {"read", "pack", "training"},
    {"encode", "measure", "plan", "formats", "sidecars", "head_start"},
    {"store"},
    {"write", "unit_input"},
    {"write_behind"},
    {"pipeline"},
    {"count_pipeline"},
    {"run"},
    {"finished", "causal"},
    {"dataset"},
    {"report"},
    {"call", "dash", "verify"},
    {"convert"},
    {"__init__"},
    {"bench_methods"},
    {"bench_worker"},
    {"bench"},
    {"bench_report"},
    {"demo"},
    {"cli_dash"},
    {"cli_run", "cli_output"},
    {"cli_train"},
    {"cli"},
    {"__main__"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    """Names of the layers a module imports from; its own folder's relative imports are its own layer."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write imports in full"
            names = [
                f"{node.module}.{alias.name}" if node.module == "gristmill" else str(node.module)
                for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, *rest = name.split(".")
            if package == "gristmill":
                found.add(rest[0] if rest and rest[0] in LEVEL else "__init__")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    own = layer_of(path)
    assert own in LEVEL, f"{own} has no place in LAYERS"
    upward = {name for name in imported_layers(path) - {own} if LEVEL[name] >= LEVEL[own]}
    assert not upward


def test_only_the_bindings_include_python_headers():
    native = PACKAGE.parents[1] / "native"
    sources = {path for ending in ("cpp", "hpp", "inc") for path in native.rglob(f"*.{ending}")}
    bindings = set(native.glob("bindings/*"))
    assert bindings
    # The emulator of a GPU is a module of its own, for the tests.
    for path in sorted(sources - bindings - {native / "emulator" / "bindings.cpp"}):
        text = path.read_text(encoding="utf-8")
        for header in ("Python.h", "nanobind", '"bindings/'):
            assert header not in text, path
