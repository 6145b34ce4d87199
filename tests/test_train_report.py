"""What a training tells at its end: a fit that can be checked by encoding, and files that know their EOS."""

import io
import json
import random
import re
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from gristmill import _native, load_tokenizer
from gristmill.cli import main
from gristmill.config import TrainConfig
from gristmill.job import make_training
from gristmill.load.hf_pipeline import BEHAVIORS
from gristmill.report.training import describe_counts, render_counts, render_training
from gristmill.run.count import read_counted
from gristmill.run.folder import INVENTORY, REPORT
from gristmill.run.train import TrainResult, train
from gristmill.spec import Split
from gristmill.training.inventory import Inventory
from gristmill.training.tokenizer_json import split_json
from made_runs import make_corpus, write_jsonl
from test_count_run import count_plainly


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files with documents of their own, all in the sample because they are few."""
    folder = tmp_path_factory.mktemp("corpus")
    documents = make_corpus(folder, num_files=1, num_docs=300)
    for path in folder.iterdir():
        path.unlink()
    parts = {"a.jsonl": documents[:200], "b.jsonl": documents[200:]}
    for name, part in parts.items():
        write_jsonl(folder / name, part)
    return folder, parts


def make_config(corpus, output, **options) -> TrainConfig:
    values = {
        "read": {"inputs": [str(corpus)], "unit_bytes": 30_000},
        "learn": {"output": str(output), "vocab_size": 900},
        "run": {"workers": 1},
    }
    return make_training(values, [(*name.split("__"), value) for name, value in options.items()])


def tokens_of(path, documents):
    tokenizer = Tokenizer.from_file(str(path))
    return [tokenizer.encode(document).ids for document in documents]


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "metaspace"])
def test_the_fit_is_what_encoding_the_sample_gives(corpus, tmp_path, pattern):
    folder, parts = corpus
    vocab_size = 4000 if pattern == "metaspace" else 900
    options = {"count__pattern": pattern, "learn__vocab_size": vocab_size}
    result = train(make_config(folder, tmp_path / "t.json", **options))
    fit = result.fit
    assert fit is not None
    encoded = {name: tokens_of(tmp_path / "t.json", part) for name, part in parts.items()}
    assert {name: share.num_tokens for name, share in fit.sources.items()} == {
        name: sum(map(len, ids)) for name, ids in encoded.items()
    }
    assert fit.text.num_tokens == sum(share.num_tokens for share in fit.scripts.values())
    used = {id_ for part in encoded.values() for ids in part for id_ in ids}
    assert fit.num_unused == result.vocab_size - 1 - len(used)
    assert fit.num_documents == 300
    assert not fit.is_held_out


def test_merges_are_taken_back_as_a_plain_loop_does_it():
    choose = random.Random(9)
    rules = np.array([(choose.randrange(i), choose.randrange(i), i) for i in range(3, 400)], np.uint32)
    used = np.array([choose.randrange(1000) for _ in range(400)], np.int64)
    left, taken = used.tolist(), []
    for a, b, token in rules.tolist()[::-1]:
        taken.append(left[token])
        left[a] += left[token]
        left[b] += left[token]
    assert _native.take_back_rules(rules, used).tolist() == taken[::-1]
    with pytest.raises(ValueError, match="no token has"):
        _native.take_back_rules(rules, used[:-1])


def test_the_curve_is_what_smaller_vocabularies_give(corpus, tmp_path):
    curve = dict(train(make_config(corpus[0], tmp_path / "large.json")).fit.curve)
    size = sorted(curve)[len(curve) // 2]
    smaller = train(make_config(corpus[0], tmp_path / "small.json", learn__vocab_size=size))
    assert smaller.fit.text.bytes_per_token == pytest.approx(curve[size], abs=1e-4)
    assert sorted(curve)[0] == 257
    assert curve[257] == pytest.approx(1.0)


def test_what_is_held_out_is_not_counted_and_is_the_sample(corpus, tmp_path):
    folder, parts = corpus
    result = train(make_config(folder, tmp_path / "t.json", count__held_out=0.3))
    ledger = result.counted.ledger
    assert result.fit.is_held_out
    assert 50 < result.fit.num_documents == ledger.documents_dropped["held out"] < 130
    assert ledger.documents_encoded == 300 - result.fit.num_documents
    again = train(make_config(folder, tmp_path / "u.json", count__held_out=0.3, run__workers=3))
    assert again.fit == result.fit
    everything = [document for part in parts.values() for document in part]
    counted = dict(Inventory(tmp_path / "t.json.run" / INVENTORY))
    whole = count_plainly(everything, tmp_path)
    held_out_bytes = sum(len(piece) * count for piece, count in whole.items()) - sum(
        len(piece) * count for piece, count in counted.items()
    )
    assert held_out_bytes == result.fit.text.num_bytes


def test_documents_left_out_on_purpose_are_not_bad(corpus, tmp_path):
    options = {"count__sample": 0.5, "count__held_out": 0.2, "run__max_bad_fraction": 0.0}
    result = train(make_config(corpus[0], tmp_path / "t.json", **options))
    assert set(result.counted.ledger.documents_dropped) == {"not sampled", "held out"}


def test_the_report_is_kept_in_the_run_folder(corpus, tmp_path):
    result = train(make_config(corpus[0], tmp_path / "t.json", learn__min_count=2))
    kept = (tmp_path / "t.json.run" / REPORT).read_bytes()
    assert msgspec.json.decode(kept, type=TrainResult) == result
    assert sum(result.left_out_bytes.values()) == result.left_out.dropped_bytes
    assert set(result.stage_s) == set(result.stage_peak_bytes) == {"count", "learn", "assess"}
    assert min(result.stage_peak_bytes.values()) > 10**6
    vocab = json.loads((tmp_path / "t.json").read_text())["model"]["vocab"]
    longest = max(len(token) for token in vocab if token != "<|endoftext|>")  # a character is a byte there
    assert len(result.longest_tokens[0].encode()) == longest


def test_a_folder_is_loaded_by_transformers_and_knows_its_eos(corpus, tmp_path):
    specials = ["<|endoftext|>", "<|pad|>"]
    result = train(make_config(corpus[0], f"{tmp_path}/model/", learn__special_tokens=specials))
    assert result.folder == str(tmp_path / "model.run")
    fast = AutoTokenizer.from_pretrained(tmp_path / "model")
    ours = load_tokenizer(tmp_path / "model")
    assert (fast.eos_token_id, fast.pad_token_id, fast.bos_token_id) == (0, 1, None)
    assert ours.eos_id == 0
    text = "Some text, with  spaces\n"
    assert fast(text)["input_ids"] == ours.encode(text).tolist()
    assert fast.decode(fast(text)["input_ids"]) == text


def test_an_extended_folder_keeps_the_roles_of_the_old_one(corpus, tmp_path):
    train(make_config(corpus[0], f"{tmp_path}/old/"))
    extend = str(tmp_path / "old" / "tokenizer.json")
    result = train(
        make_config(corpus[0], f"{tmp_path}/new/", learn__vocab_size=1100, learn__extend=extend)
    )
    new = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert (new.eos_token, len(new)) == ("<|endoftext|>", 1100)
    encoded = tokens_of(tmp_path / "new" / "tokenizer.json", [d for part in corpus[1].values() for d in part])
    assert result.fit.text.num_tokens == sum(map(len, encoded))


def test_a_base_without_a_folder_of_its_own_has_roles_by_the_names_of_its_tokens(corpus, tmp_path):
    train(make_config(corpus[0], tmp_path / "old.json", learn__special_tokens=["<|pad|>", "<|endoftext|>"]))
    extend = str(tmp_path / "old.json")
    train(make_config(corpus[0], f"{tmp_path}/new/", learn__vocab_size=1000, learn__extend=extend))
    new = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert (new.eos_token_id, new.pad_token_id) == (1, 0)


def test_every_split_behaviour_has_its_name_in_tokenizer_json():
    for name, behavior in BEHAVIORS.items():
        assert split_json(Split(pattern="a", dialect="oniguruma", behavior=behavior))["behavior"] == name


def test_the_command_warns_draws_and_reports(corpus, tmp_path):
    (tmp_path / "in").mkdir()
    write_jsonl(tmp_path / "in" / "a.jsonl", corpus[1]["a.jsonl"])
    (tmp_path / "in" / "notes.doc").write_text("not read")
    command = [sys.executable, "-m", "gristmill", "train", str(tmp_path / "in"), "--vocab-size", "600"]
    command += ["-o", str(tmp_path / "t.json"), "--plot", str(tmp_path / "t.svg"), "--held-out", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 file not read: 1 .doc" in done.stderr
    assert "bytes a token" in done.stdout
    assert re.search(r"^not counted +\d+ held out to measure the fit$", done.stdout, re.MULTILINE)
    assert "dropped" not in done.stdout
    assert "report.html" in done.stdout
    assert (tmp_path / "t.svg").read_text().count("vocabulary size") >= 1
    assert json.loads((tmp_path / "t.json.run" / REPORT).read_text())["fit"]["is_held_out"]
    assert read_counted(tmp_path / "t.json.run").ledger.documents_read == 200


def test_from_counts_there_is_no_fit_and_the_summary_says_why(corpus, tmp_path):
    train(make_config(corpus[0], tmp_path / "a.json"))
    counts = {"learn__from_counts": [str(tmp_path / "a.json.run")], "learn__vocab_size": 500}
    result = train(make_config(corpus[0], tmp_path / "b.json", **counts))
    shown = dict(line.split(maxsplit=1) for line in render_training(result).splitlines())
    assert shown["fit"].startswith("not measured: counts hold no documents")
    assert "counts" not in shown
    assert shown["report"] == str(tmp_path / "b.json.run" / REPORT)


def test_tokens_that_look_alike_when_cut_are_shown_once(corpus, tmp_path):
    result = train(make_config(corpus[0], tmp_path / "a.json"))
    long = msgspec.structs.replace(result, longest_tokens=["-" * 90, "-" * 80, "-" * 70, "=" * 60])
    assert render_training(long).count("'----") == 1
    assert "'====" in render_training(long)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_nothing_of_the_progress_is_left_before_the_summary(corpus, tmp_path, monkeypatch):
    """Also where learning ends before there are as many tokens as asked for."""
    monkeypatch.setattr("gristmill.training.merging.REPORT_S", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    options = ["--workers", "1", "--vocab-size", "100000"]  # nothing is learned beside the end of the count
    assert main(["train", str(corpus[0]), *options, "-o", str(tmp_path / "t.json")]) == 0
    before, _, after = terminal.getvalue().rpartition("\r\x1b[K")
    assert "learning: " in before
    assert after.startswith("gristmill: warning: ")


def test_counts_are_shown_in_lines_that_a_screen_holds(corpus, tmp_path):
    train(make_config(corpus[0], tmp_path / "a.json"))
    shown = render_counts(describe_counts(Inventory(tmp_path / "a.json.run" / INVENTORY), num_top=5))
    assert max(map(len, shown.splitlines()[1:])) <= 120
    assert "Latin" in shown
