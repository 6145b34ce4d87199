"""The demo: the standard library of this machine, or the embedded text, from files to shards."""

import json
import re

import msgspec
import pytest

from gristmill import cli, demo
from gristmill.run.folder import read_manifest


def test_the_demo_goes_from_files_to_shards_with_the_reference_ids(tmp_path, capsys):
    folder = tmp_path / "a folder: with 'quotes'"
    assert cli.main(["demo", "--output", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "standard library" in shown
    assert "equal to the reference" in shown
    assert "datasets.load_dataset" in shown
    packed, documents = read_manifest(folder / "packed"), read_manifest(folder / "megatron")
    assert packed.ledger.documents_encoded == documents.ledger.documents_encoded > 100
    assert packed.ledger.tokens_encoded == packed.ledger.tokens_written == documents.ledger.tokens_written
    assert packed.mode == "best_fit"
    assert not packed.ledger.bad_files
    assert len(shown.splitlines()) < 150
    trained = json.loads((folder / "tokenizer" / "tokenizer.json").read_text())
    assert len(trained["model"]["vocab"]) == demo.VOCAB_SIZE
    assert (folder / "tokenizer" / "tokenizer.json.run" / "counts.json").exists()


def test_the_demo_can_be_shown_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "library_patterns", lambda _root: [])
    for _ in range(2):
        assert cli.main(["demo", "--output", str(tmp_path / "demo")]) == 0
        assert "embedded in this package" in capsys.readouterr().out
    assert read_manifest(tmp_path / "demo" / "packed").ledger.documents_encoded > demo.NUM_DOCS


def test_the_demo_writes_over_nothing_of_the_users(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "library_patterns", lambda _root: [])
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text('{"text": "a"}\n')
    assert cli.main(["demo", "--output", str(tmp_path / "corpus")]) == 2
    assert "holds something else; name another folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "corpus").iterdir()] == ["a.jsonl"]
    demo.prepare_demo(tmp_path / "demo")
    (tmp_path / "demo" / "packed.yaml").write_text("# mine\n")
    assert cli.main(["demo", "--output", str(tmp_path / "demo")]) == 2
    assert "packed.yaml: is not as the demo writes it" in capsys.readouterr().err
    assert (tmp_path / "demo" / "packed.yaml").read_text() == "# mine\n"


@pytest.mark.parametrize("command", ["train", "plan", "tokenize"])
def test_every_command_is_shown_before_it_runs(tmp_path, capsys, monkeypatch, command):
    monkeypatch.setattr(demo, "library_patterns", lambda _root: [])
    assert cli.main(["demo", "--output", str(tmp_path / "demo")]) == 0
    assert f"$ gristmill {command} " in capsys.readouterr().out


def test_tests_and_installed_packages_are_no_corpus(tmp_path):
    for name in ("one.py", "package/two.py", "test/three.py", "site-packages/four.py", "empty/readme.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    patterns = demo.library_patterns(tmp_path)
    assert [pattern.removeprefix(str(tmp_path)) for pattern in patterns] == ["/[!_]*.py", "/package/[!_]*.py"]
    assert demo.read_documents(patterns) == ["text", "text"]
    assert demo.library_patterns(tmp_path / "nowhere") == []


def test_a_wrong_id_ends_the_demo_with_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "library_patterns", lambda _root: [])
    right = demo.compare
    monkeypatch.setattr(
        demo, "compare", lambda *given: msgspec.structs.replace(right(*given), wrong_document=3)
    )
    assert cli.main(["demo", "--output", str(tmp_path / "demo")]) == 1
    shown = capsys.readouterr().out
    assert "DIFFERENT from the reference, first in document 3" in shown
    assert re.findall(r"\$ gristmill (\w+)", shown) == ["train"]
