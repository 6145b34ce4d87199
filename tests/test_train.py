"""A whole training: the same tokenizer as `tokenizers` trains, from files, resumed, extended, from counts."""

import gzip
import json
import shutil
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from gristmill import load_tokenizer
from gristmill.errors import ConfigError, GristmillError, InputError, ResumeError, RunError
from gristmill.job import make_training
from gristmill.report.training import render_training
from gristmill.run import count
from gristmill.run import learn as learning
from gristmill.run.folder import CHECKPOINT, INVENTORY
from gristmill.run.train import train
from gristmill.sample import made_documents, sample_documents
from gristmill.training.inventory import Inventory
from gristmill.training.merging import Learning
from made_runs import make_corpus, write_jsonl
from made_tokenizers import spaced_json


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return folder, make_corpus(folder, num_files=2, num_docs=200)


def make_config(corpus, output, **options):
    values = {
        "read": {"inputs": [str(corpus)], "unit_bytes": 30_000},
        "learn": {"output": str(output), "vocab_size": 1500},
        "run": {"backend": "inline", "workers": 1},
    }
    return make_training(values, [(*name.split("__"), value) for name, value in options.items()])


def reference(documents, **options):
    """What `tokenizers` trains on the same documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(documents, trainer=trainer)
    return json.loads(tokenizer.to_str())["model"]


def model_of(path):
    model = json.loads(path.read_text())["model"]
    return model["vocab"], [
        tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in model["merges"]
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"vocab_size": 1500},
        {"vocab_size": 900, "min_frequency": 5},
        {"vocab_size": 1200, "max_token_length": 6},
    ],
    ids=["plain", "min_frequency", "max_token_length"],
)
def test_the_tokenizer_is_what_tokenizers_trains(corpus, tmp_path, options):
    folder, documents = corpus
    train(
        make_config(
            folder, tmp_path / "t.json", **{f"learn__{name}": value for name, value in options.items()}
        )
    )
    expected = reference(documents, **options)
    vocab, merges = model_of(tmp_path / "t.json")
    assert merges == [tuple(pair) for pair in expected["merges"]]
    assert vocab == expected["vocab"]


def test_three_libraries_load_it_and_agree(corpus, tmp_path):
    train(make_config(corpus[0], tmp_path / "t.json", count__pattern="llama3"))
    native = load_tokenizer(tmp_path / "t.json", engine="native")
    plain = Tokenizer.from_file(str(tmp_path / "t.json"))
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "t.json"))
    for text in [*sample_documents(), *made_documents(20, seed=9)]:
        ids = native.encode(text).tolist()
        assert ids == plain.encode(text).ids == fast(text)["input_ids"]
    assert sorted(plain.get_vocab().values()) == list(range(1500))
    assert native.token_to_id("<|endoftext|>") == 0


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_and_threads_change_nothing(corpus, tmp_path, workers):
    train(make_config(corpus[0], tmp_path / "one.json"))
    options = {"run__backend": "local", "run__workers": workers}
    train(make_config(corpus[0], tmp_path / "many.json", **options))
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "many.json").read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_counted_at_once_is_learned_from_memory(corpus, tmp_path, monkeypatch, workers):
    train(make_config(corpus[0], tmp_path / "units.json"))
    options = {"read__unit_bytes": None, "run__workers": workers}

    def read_back(_inventory):
        raise AssertionError("the inventory is read back")

    with monkeypatch.context() as patched:
        patched.setattr(Inventory, "load", read_back)
        train(make_config(corpus[0], tmp_path / "one.json", **options))
        with pytest.raises(AssertionError, match="read back"):  # finished before: there is only the file
            train(make_config(corpus[0], tmp_path / "one.json", learn__vocab_size=900, **options))
    for name in ("one.json", f"one.json.run/{INVENTORY}"):
        units = tmp_path / name.replace("one", "units")
        assert (tmp_path / name).read_bytes() == units.read_bytes()


def test_a_count_that_fails_ends_what_learns_beside_it(corpus, tmp_path, monkeypatch):
    has_begun = threading.Event()

    def learn_forever(_learning, _seconds):
        has_begun.set()
        return False

    def fail(*_):
        assert has_begun.wait(60)
        raise RunError("no space is left")

    monkeypatch.setattr(Learning, "advance", learn_forever)
    monkeypatch.setattr("gristmill.count_pipeline.describe", fail)
    with pytest.raises(RunError, match="no space is left"):
        train(make_config(corpus[0], tmp_path / "t.json", read__unit_bytes=None, run__workers=2))
    assert not (tmp_path / "t.json").exists()


def test_what_would_not_fit_is_refused_when_its_counts_are_safe(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "memory_needed", lambda *, num_pieces, **_: num_pieces << 40)
    with pytest.raises(RunError, match=r"learning from .* MB are allowed"):
        train(make_config(corpus[0], tmp_path / "t.json", read__unit_bytes=None))
    assert Inventory(tmp_path / "t.json.run" / INVENTORY).summary.num_pieces > 100


@pytest.mark.parametrize("lost", ["units/00000.pieces", "inventory.pieces"])
def test_counts_that_are_lost_are_made_again(corpus, tmp_path, monkeypatch, lost):
    def stop(*_arguments):
        raise KeyboardInterrupt

    config = make_config(corpus[0], tmp_path / "t.json")
    with monkeypatch.context() as patch:
        if lost.startswith("units"):
            patch.setattr(count, "_finish", stop)
        with suppress(KeyboardInterrupt):
            train(config)
    [path] = tmp_path.glob(f"t.json.run/{lost}")
    path.unlink()
    train(config)
    train(make_config(corpus[0], tmp_path / "whole.json"))
    assert (tmp_path / "t.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_counts_serve_other_sizes(corpus, tmp_path):
    train(make_config(corpus[0], tmp_path / "a.json"))
    counts = str(tmp_path / "a.json.run" / INVENTORY)
    values = {"learn": {"output": str(tmp_path / "b.json"), "vocab_size": 700, "from_counts": [counts]}}
    train(make_training(values))
    train(make_config(corpus[0], tmp_path / "c.json", learn__vocab_size=700))
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "c.json").read_bytes()


@pytest.mark.parametrize("unit_bytes", [30_000, None])
def test_a_learning_that_was_cut_short_goes_on_from_its_checkpoint(corpus, tmp_path, monkeypatch, unit_bytes):
    options = {"read__unit_bytes": unit_bytes}
    train(make_config(corpus[0], tmp_path / "whole.json"))
    monkeypatch.setattr(learning, "CHECKPOINT_EVERY_S", 0.0)
    monkeypatch.setattr("gristmill.training.merging.REPORT_S", 0.0)

    def stop(num_tokens, _wanted):
        if num_tokens > 600 and (tmp_path / "cut.json.run" / CHECKPOINT).exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_config(corpus[0], tmp_path / "cut.json", **options), on_learning=stop)
    assert not (tmp_path / "cut.json").exists()
    seen = []
    config = make_config(corpus[0], tmp_path / "cut.json", **options)
    train(config, on_learning=lambda tokens, _: seen.append(tokens))
    assert min(seen) > 500
    assert (tmp_path / "cut.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_a_checkpoint_is_not_taken_for_another_base_under_the_same_name(corpus, tmp_path, monkeypatch):
    for name, size in (("one", 400), ("two", 450)):
        train(make_config(corpus[0], tmp_path / f"{name}.json", learn__vocab_size=size))
    base = tmp_path / "base.json"
    job = {"learn__vocab_size": 900, "learn__extend": str(base), "learn__special_tokens": []}
    base.write_bytes((tmp_path / "two.json").read_bytes())
    train(make_config(corpus[0], tmp_path / "whole.json", **job))
    base.write_bytes((tmp_path / "one.json").read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(learning, "CHECKPOINT_EVERY_S", 0.0)
        patch.setattr("gristmill.training.merging.REPORT_S", 0.0)

        def stop(_tokens, _wanted):
            if (tmp_path / "cut.json.run" / CHECKPOINT).exists():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(make_config(corpus[0], tmp_path / "cut.json", **job), on_learning=stop)
    base.write_bytes((tmp_path / "two.json").read_bytes())
    train(make_config(corpus[0], tmp_path / "cut.json", **job))
    assert (tmp_path / "cut.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00\xff\xff{", b"\x93NUMPY\x01\x00\x46\x00" + b"(" * 70]
)
def test_a_damaged_checkpoint_is_named_with_the_remedy(corpus, tmp_path, content):
    train(make_config(corpus[0], tmp_path / "t.json"))
    (tmp_path / "t.json.run" / CHECKPOINT).write_bytes(content)
    with pytest.raises(ResumeError, match=r"merges.npy: cannot be read .*; delete it"):
        train(make_config(corpus[0], tmp_path / "t.json"))


@pytest.mark.parametrize(
    ("cut", "few", "many"),
    [
        ({}, 600, 900),
        ({"count__pattern": "llama3", "count__form": "nfc"}, 600, 900),
        ({"count__pattern": "metaspace"}, 3500, 4000),
        ({"count__pattern": r"\d|\s*\w+"}, 600, 900),
    ],
    ids=["gpt2", "llama3", "metaspace", "regex"],
)
def test_extending_keeps_every_id_and_goes_on_with_the_same_cut(corpus, tmp_path, cut, few, many):
    train(make_config(corpus[0], tmp_path / "small.json", learn__vocab_size=few, **cut))
    options = {"learn__vocab_size": many, "learn__extend": str(tmp_path / "small.json")}
    train(make_config(corpus[0], tmp_path / "large.json", **options))
    small, small_merges = model_of(tmp_path / "small.json")
    large, large_merges = model_of(tmp_path / "large.json")
    assert {token: large[token] for token in small} == small
    assert large_merges[: len(small_merges)] == small_merges
    assert len(large) == many
    train(make_config(corpus[0], tmp_path / "direct.json", learn__vocab_size=many, **cut))
    assert large_merges == model_of(tmp_path / "direct.json")[1]


def test_new_tokens_of_a_base_that_cuts_nowhere_stay_within_words_and_come_out(corpus, tmp_path):
    base, large = tmp_path / "base.json", tmp_path / "large.json"
    base.write_text(json.dumps(spaced_json()))
    train(make_config(corpus[0], large, learn__vocab_size=700, learn__extend=str(base)))
    new = model_of(large)[0].keys() - model_of(base)[0].keys()
    assert len(new) == 700 - len(model_of(base)[0])
    assert not [token for token in new if "▁" in token.lstrip("▁")]
    extended = Tokenizer.from_file(str(large))
    seen = {token for document in corpus[1] for token in extended.encode(document).tokens}
    assert len(new & seen) > 0.8 * len(new)  # the others were only halves of longer ones


def test_counts_of_another_cut_are_refused(corpus, tmp_path):
    train(make_config(corpus[0], tmp_path / "a.json", count__pattern="llama3"))
    train(make_config(corpus[0], tmp_path / "b.json", learn__vocab_size=600))
    counts = {"learn": {"from_counts": [str(tmp_path / "a.json.run")]}}
    asked = [("learn", "output", str(tmp_path / "c.json")), ("learn", "vocab_size", 900)]
    base = ("learn", "extend", str(tmp_path / "b.json"))
    with pytest.raises(ConfigError, match=r"a.json.run.*was cut in another way than .*b.json cuts text"):
        train(make_training(counts, [*asked, base]))
    with pytest.raises(ConfigError, match=r"was cut in another way than count\.pattern"):
        train(make_training(counts, [*asked, ("count", "pattern", "qwen2")]))
    with pytest.raises(ConfigError, match="extended, cuts text in another way than count"):
        train(make_config(corpus[0], tmp_path / "c.json", learn__extend=base[2], count__pattern="llama3"))
    with pytest.raises(ConfigError, match="in another Unicode form"):
        train(make_config(corpus[0], tmp_path / "c.json", learn__extend=base[2], count__form="nfc"))
    assert not (tmp_path / "c.json.run").exists()
    train(make_training(counts, [*asked, ("count", "pattern", "gpt4")]))  # the same pieces by another name


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"learn__vocab_size": 200}, "already 257 tokens"),
        ({"learn__vocab_size": 200, "count__pattern": "metaspace"}, "already 257 tokens"),
        ({"count__pattern": "("}, "unmatched"),
        ({"learn__special_tokens": ["<s>", ""]}, "a special token is empty"),
        ({"learn__extend": "nowhere.json"}, "cannot be read"),
    ],
)
def test_what_could_only_fail_is_refused_before_anything_is_counted(corpus, tmp_path, options, why):
    config = make_config(corpus[0], tmp_path / "t.json", **options)
    with pytest.raises(GristmillError, match=why):
        train(config)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["new/deep/t.json", "new/deep/model/"])
def test_folders_above_the_output_are_made(corpus, tmp_path, name):
    result = train(make_config(corpus[0], f"{tmp_path}/{name}", learn__vocab_size=300))
    assert load_tokenizer(result.output).vocab_size == 300


def test_an_output_below_a_file_is_refused(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot be made"):
        train(make_config(corpus[0], tmp_path / "file" / "t.json"))


def test_files_that_are_not_read_to_their_end_are_named(corpus, tmp_path):
    (tmp_path / "texts").mkdir()
    content = gzip.compress((corpus[0] / "part-0.jsonl").read_bytes())
    (tmp_path / "texts" / "cut.jsonl.gz").write_bytes(content[: len(content) // 2])
    shutil.copy(corpus[0] / "part-1.jsonl", tmp_path / "texts")
    result = train(make_config(tmp_path / "texts", tmp_path / "t.json"))
    (warning,) = result.warnings
    assert warning.startswith("1 file was not read to the end; first ")
    assert "cut.jsonl.gz: truncated" in warning
    assert "\nbad files   truncated 1\n" in render_training(result)


def test_options_that_do_nothing_are_named(corpus, tmp_path):
    train(make_config(corpus[0], tmp_path / "a.json"))
    counts = {"learn__from_counts": [str(tmp_path / "a.json.run")], "count__held_out": 0.1}
    result = train(make_config(corpus[0], tmp_path / "b.json", learn__initial_alphabet="corpus", **counts))
    why = "does nothing here: learn.from_counts is counted already, and nothing is read"
    assert result.warnings == (f"read.inputs {why}", f"count.held_out {why}")
    base = {"learn__extend": str(tmp_path / "a.json"), "learn__vocab_size": 1600}
    result = train(make_config(corpus[0], tmp_path / "c.json", learn__initial_alphabet="corpus", **base))
    assert result.warnings == ("learn.initial_alphabet does nothing here: learn.extend has its alphabet",)


def test_a_weight_that_no_input_has_is_named(corpus, tmp_path):
    folder, _ = corpus
    known = next(path.name for path in folder.iterdir())
    weights = {known: 2, "nothing*": 30}
    result = train(make_config(folder, tmp_path / "a.json", count__weights=weights))
    assert result.warnings == ("count.weights: no input is called nothing*, so nothing counts 30 times",)


def test_special_tokens_and_counts_may_be_given_one_by_one(corpus, tmp_path):
    folder, _ = corpus
    for number, path in enumerate(sorted(folder.iterdir())):
        train(make_config(path, tmp_path / f"{number}.json"))
    runs = [str(tmp_path / f"{number}.json.run") for number in range(2)]
    command = [sys.executable, "-m", "gristmill", "train", "--vocab-size", "1500", "--quiet"]
    command += ["--special-tokens", "<a>", "--special-tokens", "<b>,<c>", "-o", str(tmp_path / "both.json")]
    subprocess.run([*command, "--from-counts", runs[0], "--from-counts", runs[1]], check=True)
    special = {"learn__special_tokens": ["<a>", "<b>", "<c>"]}
    train(make_config(folder, tmp_path / "whole.json", **special))
    assert model_of(tmp_path / "both.json") == model_of(tmp_path / "whole.json")


def test_special_tokens_that_extending_would_not_add_are_refused(corpus, tmp_path):
    specials = ["<|a|>", "<|b|>"]
    train(make_config(corpus[0], tmp_path / "a.json", learn__special_tokens=specials))
    base = {"learn__extend": str(tmp_path / "a.json"), "learn__vocab_size": 1600}
    train(make_config(corpus[0], tmp_path / "b.json", learn__special_tokens=["<|b|>"], **base))
    with pytest.raises(ConfigError, match="and extending it adds none"):
        train(make_config(corpus[0], tmp_path / "c.json", learn__special_tokens=[*specials, "<|c|>"], **base))


def test_a_vocabulary_smaller_than_asked_for_is_mentioned(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["ab ab ab cd"])
    result = train(make_config(tmp_path / "a.jsonl", tmp_path / "t.json"))
    (warning,) = result.warnings
    assert warning.startswith(f"{result.vocab_size:,} tokens, fewer than the 1,500 asked for: no pair")
    result = train(make_config(tmp_path / "a.jsonl", tmp_path / "t.json", learn__min_frequency=2))
    assert "no pair is left to merge that learn.min_frequency would allow" in result.warnings[0]


def test_an_alphabet_that_fills_the_vocabulary_is_mentioned_and_can_be_cut(corpus, tmp_path):
    options = {"count__pattern": "metaspace", "learn__vocab_size": 1200}
    result = train(make_config(corpus[0], tmp_path / "all.json", **options))
    assert "tokens are single characters; learn.max_alphabet keeps" in result.warnings[0]
    result = train(make_config(corpus[0], tmp_path / "few.json", learn__max_alphabet=100, **options))
    assert not result.warnings
    assert sum(len(token) == 1 for token in model_of(tmp_path / "few.json")[0]) == 100
    tokenizer = Tokenizer.from_file(str(tmp_path / "few.json"))
    for document in corpus[1][:20]:
        assert tokenizer.decode(tokenizer.encode(document).ids) == document


@pytest.mark.parametrize("run", [{"run__memory": "300MB"}, {"run__preset": "streaming"}])
def test_a_vocabulary_beyond_the_memory_is_refused_before_counting(corpus, tmp_path, run):
    with pytest.raises(RunError, match=r"so many tokens needs about .* MB are allowed; raise run\.memory"):
        train(make_config(corpus[0], tmp_path / "t.json", learn__vocab_size=20_000_000, **run))
    assert not any(tmp_path.iterdir())


def test_too_little_memory_is_refused_before_learning(corpus, tmp_path, monkeypatch):
    train(make_config(corpus[0], tmp_path / "t.json"))
    monkeypatch.setattr(learning, "memory_needed", lambda *, num_pieces, **_: num_pieces << 30)
    with pytest.raises(RunError, match=r"learning from .* MB are allowed"):
        train(
            make_config(
                corpus[0],
                tmp_path / "t.json",
                run__memory="500MB",
                learn__from_counts=[str(tmp_path / "t.json.run" / INVENTORY)],
            )
        )


def test_empty_documents_are_an_error(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["", ""])
    with pytest.raises(RunError, match="no document could be used"):
        train(make_config(tmp_path / "a.jsonl", tmp_path / "t.json"))


def test_the_command_trains_and_says_so(corpus, tmp_path):
    command = [sys.executable, "-m", "gristmill", "train", str(corpus[0]), "--vocab-size", "500"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "t.json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "500, made by 243 merges" in done.stdout
    counts = [sys.executable, "-m", "gristmill", "counts", str(tmp_path / "t.json.run"), "--top", "3"]
    shown = subprocess.run(counts, capture_output=True, text=True, check=True).stdout
    assert "distinct of" in shown
