"""What every test stands on: nothing is read from or left in the user's own folders."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRISTMILL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
