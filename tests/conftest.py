"""What every test stands on: nothing is read from or left in the user's own folders."""

import fsspec
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


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folders of tokenizers by the names in `causal_places.KINDS`, each made when it is first asked for."""
    from causal_places import KINDS

    place, made = tmp_path_factory.mktemp("tokenizers"), {}

    def folder(kind):
        if kind not in made:
            made[kind] = KINDS[kind](place / kind)
        return made[kind]

    return folder


@pytest.fixture
def memory():
    """An empty place in memory."""
    store = fsspec.filesystem("memory")
    yield store
    for name in list(store.store):
        store.rm_file(name)
