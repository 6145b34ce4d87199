"""Versions found by folder names are those that importlib.metadata knows."""

import sys
from importlib.metadata import distributions, version

import gristmill
from gristmill.versions import version_of


def test_every_installed_package_has_the_version_that_its_metadata_gives():
    names = sorted({found.metadata["Name"] for found in distributions() if found.metadata["Name"]})
    assert len(names) > 10
    assert {name: version_of(name) for name in names} == {name: version(name) for name in names}


def test_what_is_not_installed_has_none():
    assert version_of("a-package-that-nobody-made") is None


def test_a_package_that_comes_later_on_the_path_is_found(tmp_path, monkeypatch):
    (tmp_path / "Some_Package-1.2.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert version_of("some-package") == "1.2"


def test_our_own_version_is_told():
    assert gristmill.__version__ == version("gristmill")
