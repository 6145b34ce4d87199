"""What every test stands on: nothing is read from or left in the user's own folders."""

import pytest

from gristmill.sample import train_sample_tokenizer


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRISTMILL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A small tokenizer file, which nobody changes."""
    return train_sample_tokenizer(tmp_path_factory.mktemp("tokenizer"))
