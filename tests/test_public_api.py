"""The public names are these and no others; a change here goes into CHANGELOG.md."""

import subprocess
import sys
from pathlib import Path

import gristmill

PUBLIC = {
    "BadDocumentError",
    "BadFileError",
    "CausalLMConfig",
    "CausalLMTokenizer",
    "ConfigError",
    "CountConfig",
    "EncodeConfig",
    "GristmillError",
    "InputError",
    "LearnConfig",
    "LedgerError",
    "MissingPackageError",
    "PackConfig",
    "ReadConfig",
    "ResumeError",
    "RunConfig",
    "RunError",
    "RunResult",
    "TokenBatch",
    "TokenDataset",
    "TokenizeConfig",
    "Tokenizer",
    "TokenizerConfig",
    "TokenizerError",
    "TokenizerFormatError",
    "TrainConfig",
    "TrainResult",
    "UnsupportedTokenizerError",
    "WriteConfig",
    "__version__",
    "load_tokenizer",
    "mix",
    "open",
    "tokenize",
    "train",
}


def test_all_lists_the_public_names():
    assert set(gristmill.__all__) == PUBLIC


def test_every_public_name_exists():
    for name in PUBLIC:
        assert getattr(gristmill, name) is not None


def test_no_module_hides_a_public_name():
    """Importing gristmill.x sets the attribute x, whatever __getattr__ would have given."""
    package = Path(gristmill.__file__).parent
    modules = {path.stem for path in package.glob("*.py")} | {path.name for path in package.glob("*/")}
    assert set(gristmill.__all__) & modules == set()


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(gristmill, "no_such_name")


def test_every_error_is_a_gristmill_error():
    errors = [getattr(gristmill, name) for name in PUBLIC if name.endswith("Error")]
    assert all(issubclass(error, gristmill.GristmillError) for error in errors)


def test_importing_loads_no_optional_package():
    optional = ["tiktoken", "sentencepiece", "transformers", "pyarrow", "matplotlib", "huggingface_hub"]
    optional += ["yaml", "rich", "zstandard", "isal", "fsspec", "gristmill.run", "datasets", "torch"]
    code = f"import sys, gristmill; print([name for name in {optional} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
