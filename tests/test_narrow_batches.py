"""Batches cross from a worker as narrow as they are stored: what arrives, or is seen, is the wide one."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections import deque

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import gristmill
from gristmill.dataset import kept_memory, shared_blocks, torch_batches
from gristmill.dataset.batch_rows import BatchRows, narrow_labels
from gristmill.dataset.late_dict import LateDict
from gristmill.dataset.token_dataset import COLUMNS
from made_runs import make_corpus, run

LENGTH = 16
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "gristmill.dataset.torch_batches", "made_datasets"])
STORED = ["input_ids", "labels", "attention_mask", "position_ids", "cu_seqlens"]
RUNS = {
    "padded": {"pack__mode": "best_fit"},
    "full": {"pack__mode": "concat"},
    "masked": {"pack__mode": "concat", "pack__mask_first_token": True},
    "wide": {"pack__mode": "best_fit", "write__dtype": "uint32"},
    "stored": {"pack__mode": "best_fit", "write__columns": STORED},
}


@pytest.fixture(scope="module")
def folders(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("narrow")
    make_corpus(folder / "corpus", num_files=1, num_docs=30)
    for name, options in RUNS.items():
        both = {"pack__sequence_length": LENGTH, "write__format": ["parquet", "arrow"]} | options
        run(tokenizer, folder / "corpus", folder / name, **both)
    return folder


@pytest.fixture
def in_worker(monkeypatch):
    """This process as if it were a worker."""
    monkeypatch.setattr(torch_batches, "get_worker_info", lambda: object())
    monkeypatch.setattr(shared_blocks, "_own", {})
    monkeypatch.setattr(shared_blocks, "_known", {})


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype, name
        assert torch.equal(found[name], column), name


def tensors_of(dataset, index):
    """What a process without workers gives."""
    return {name: torch.from_numpy(column) for name, column in dataset[index].items()}


@pytest.mark.parametrize("columns", [COLUMNS, ("input_ids", "labels"), ("input_ids",)])
@pytest.mark.parametrize("dtype", ["int64", "int32", None])
@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("name", RUNS)
def test_a_batch_arrives_and_is_seen_as_one_process_has_it(folders, in_worker, name, form, dtype, columns):
    dataset = gristmill.open(folders / name, columns=columns, dtype=dtype, format=form)
    for index in ([5, 0, 5, 3], list(range(len(dataset))), [len(dataset) - 1]):
        expected = tensors_of(dataset, index)
        assert_same(pickle.loads(pickle.dumps(default_collate(dataset.__getitems__(index)))), expected)
        seen = default_collate(dataset.__getitems__(index))
        assert_same(seen, expected)
        assert_same(pickle.loads(pickle.dumps(seen)), expected)
        rows = dataset.__getitems__(index)
        for row, item in zip(rows, index, strict=True):
            for column, own in dataset[item].items():
                np.testing.assert_array_equal(row[column], own)
                assert row[column].dtype == own.dtype
        assert_same(default_collate(rows), expected)


def test_ids_and_labels_that_are_the_same_cross_once_and_as_stored(folders, in_worker):
    dataset = gristmill.open(folders / "full", columns=["input_ids", "labels"], format="parquet")
    batch = default_collate(dataset.__getitems__([1, 2]))
    _, (_, _, sent, others, _) = batch.__reduce__()
    places = [(at, dtype) for _, at, dtype, _, _ in sent]
    assert places == [(64, "<u2"), (64, "<u2")]
    assert not others


def test_labels_written_to_where_they_arrive_leave_the_ids_alone(folders, in_worker):
    dataset = gristmill.open(folders / "full", format="parquet")
    batch = pickle.loads(pickle.dumps(default_collate(dataset.__getitems__([1, 2]))))
    batch["labels"][:] = -100
    assert batch["input_ids"].tolist() == dataset[[1, 2]]["input_ids"].tolist()


def test_a_batch_that_arrives_wide_leaves_its_block_free(folders, in_worker):
    dataset = gristmill.open(folders / "full", columns=["input_ids", "labels"])
    held = [pickle.loads(pickle.dumps(default_collate(dataset.__getitems__([i])))) for i in range(20)]
    assert len(shared_blocks._own[os.getpid()]) == 1
    assert [batch["input_ids"][0].tolist() for batch in held] == dataset[:20]["input_ids"].tolist()


def test_rows_that_were_changed_before_they_are_collated_arrive_so(folders, in_worker):
    dataset = gristmill.open(folders / "full", columns=["input_ids", "labels"])
    rows = dataset.__getitems__([1, 2])
    rows[1]["labels"][:3] = -100
    expected = tensors_of(dataset, [1, 2])
    expected["labels"][1, :3] = -100
    assert_same(pickle.loads(pickle.dumps(default_collate(rows))), expected)


def test_labels_hold_any_id_that_a_file_may_hold():
    int64 = np.dtype(np.int64)
    assert narrow_labels(np.array([[65535]], np.uint16), int64) == np.int32
    assert narrow_labels(np.array([[2**31 - 1]], np.uint32), int64) == np.int32
    assert narrow_labels(np.array([[2**31]], np.uint32), int64) == np.int64


def test_shards_whose_ids_are_of_two_kinds_are_read_wide(folders, in_worker, monkeypatch):
    dataset = gristmill.open(folders / "full", columns=["input_ids", "labels"], format="parquet")
    expected, as_stored = tensors_of(dataset, [1, 2]), dataset._items.ids
    monkeypatch.setattr(dataset._items, "gather", lambda items, empty: None)
    monkeypatch.setattr(
        dataset._items, "ids", lambda item: as_stored(item).astype(np.uint32 if item == 2 else np.uint16)
    )
    assert_same(pickle.loads(pickle.dumps(default_collate(dataset.__getitems__([1, 2])))), expected)


def test_a_mixture_arrives_as_one_process_has_it(folders, in_worker):
    sources = {name: gristmill.open(folders / name, columns=COLUMNS) for name in ("full", "padded", "wide")}
    dataset = gristmill.mix({sources["full"]: 1, sources["padded"]: 1, sources["wide"]: 1})
    full = gristmill.mix({sources["full"]: 1})
    for mixed in (dataset, full):
        index = list(range(0, len(mixed), 3))
        batch = default_collate(mixed.__getitems__(index))
        assert_same(pickle.loads(pickle.dumps(batch)), tensors_of(mixed, index))


# With real workers.


def look_and_change(rows):
    """As a user wraps ours: -100 on the first two labels."""
    batch = default_collate(rows)
    batch["labels"][:, :2] = -100
    batch["more"] = batch["input_ids"].sum(dim=1)
    return batch


def lengths_only(rows):
    return [len(row["input_ids"]) for row in rows]


def nested(rows):
    return {"batch": default_collate(rows), "num_rows": len(rows)}


def as_it_is(rows):
    return rows


def renamed(rows):
    return {f"my_{name}": column for name, column in dict(default_collate(rows)).items()}


def equal(one, other):
    if isinstance(one, torch.Tensor | np.ndarray):
        return one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list | BatchRows):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


@pytest.mark.parametrize("collate", [look_and_change, lengths_only, nested, as_it_is, list, renamed])
def test_a_collate_function_of_the_users_sees_and_sends_the_wide_batch(folders, collate):
    dataset = gristmill.open(folders / "full", columns=["input_ids", "labels"])
    options = {"batch_size": 8, "collate_fn": collate}
    alone = list(DataLoader(dataset, **options))
    together = list(DataLoader(dataset, **options, num_workers=1, multiprocessing_context=CONTEXT))
    assert equal(alone, together)


def test_workers_that_stay_give_every_epoch_and_batches_stay_as_they_came(folders):
    """All of them are held to the end."""
    dataset = gristmill.open(folders / "padded", columns=COLUMNS)
    options = {"batch_size": 4, "drop_last": True}
    loader = DataLoader(
        dataset, **options, num_workers=2, persistent_workers=True, multiprocessing_context=CONTEXT
    )
    alone = list(DataLoader(dataset, **options))
    held = [batch for _ in range(3) for batch in loader]
    assert len(alone) == len(dataset) // 4
    assert len(held) == 3 * len(alone)
    for batch, expected in zip(held, alone * 3, strict=True):
        assert_same(batch, expected)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_started_either_way_give_what_one_process_gives(folders, method):
    """In a process of its own, because this one has threads."""
    code = """if True:
        import sys, gristmill, torch
        from torch.utils.data import DataLoader
        if __name__ == "__main__":
            for name in ("full", "padded")[-2 if sys.argv[2] == "fork" else -1:]:
                dataset = gristmill.open(f"{sys.argv[1]}/{name}")
                alone = DataLoader(dataset, batch_size=8)
                workers = 2 if sys.argv[2] == "fork" else 1
                others = DataLoader(dataset, 8, num_workers=workers, multiprocessing_context=sys.argv[2])
                for one, other in zip(alone, others, strict=True):
                    assert list(one) == list(other)
                    assert all(torch.equal(one[name], other[name]) for name in one)
            print("same")"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(folders), method]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "same\n"


def test_what_has_arrived_outlives_a_worker_that_is_killed(folders):
    dataset = gristmill.open(folders / "padded", columns=COLUMNS)
    loader = iter(DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=CONTEXT))
    first = next(loader)
    os.kill(loader._workers[0].pid, signal.SIGKILL)
    with pytest.raises((RuntimeError, gristmill.RunError)):
        list(loader)
    assert_same(first, tensors_of(dataset, [0, 1]))


# What it stands on.


class Made(LateDict):
    """Counts how often its content is made."""

    num_made = 0

    def content(self):
        self.num_made += 1
        return {"a": 1, "b": 2}


USES = {
    "item": lambda d: d["a"],
    "get": lambda d: d.get("b"),
    "in": lambda d: "a" in d,
    "len": len,
    "bool": bool,
    "iter": list,
    "reversed": lambda d: list(reversed(d)),
    "keys": lambda d: list(d.keys()),
    "values": lambda d: list(d.values()),
    "items": lambda d: list(d.items()),
    "equal": lambda d: d == {"a": 1, "b": 2},
    "unequal": lambda d: d != {"a": 1, "b": 2},
    "repr": repr,
    "dict": dict,
    "stars": lambda d: {**d},
    "call": lambda d: dict(**d),
    "update of another": lambda d: {"c": 3} | d,
    "or": lambda d: d | {"c": 3},
    "copy": lambda d: d.copy(),
    "set": lambda d: (d.__setitem__("a", 5), dict(d)),
    "delete": lambda d: (d.__delitem__("a"), dict(d)),
    "pop": lambda d: (d.pop("a"), dict(d)),
    "popitem": lambda d: (d.popitem(), dict(d)),
    "setdefault": lambda d: (d.setdefault("a", 7), d.setdefault("z", 8), dict(d)),
    "update": lambda d: (d.update(c=3), dict(d)),
    "ior": lambda d: dict(d.__ior__({"c": 3})),
    "clear": lambda d: (d.clear(), dict(d)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_late_dict_is_the_dict_however_it_is_used_first(use):
    late = Made()
    assert late.num_made == 0
    assert use(late) == use({"a": 1, "b": 2})
    assert late.num_made == 1


def test_no_method_of_dict_is_forgotten():
    inert = {"__class_getitem__", "__getattribute__", "__init__", "__new__", "__sizeof__", "fromkeys"}
    inert |= {"__doc__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"}
    assert set(vars(dict)) - set(vars(LateDict)) <= inert


def test_copies_of_a_batch_are_the_wide_one(folders, in_worker):
    dataset = gristmill.open(folders / "full")
    for copied in (copy.copy, copy.deepcopy):
        assert_same(copied(default_collate(dataset.__getitems__([3, 1]))), tensors_of(dataset, [3, 1]))


@pytest.fixture
def nothing_kept(monkeypatch):
    monkeypatch.setattr(kept_memory, "_kept", deque(maxlen=kept_memory.MAX_KEPT))


def test_memory_is_used_again_when_all_that_stands_on_it_is_gone(nothing_kept):
    wanted = [((3, 5), np.dtype(np.int64)), ((7,), np.dtype(np.int8))]
    first, second = kept_memory.empty_arrays(wanted)
    assert (first.shape, second.dtype) == ((3, 5), np.int8)
    begin, view = first.ctypes.data, torch.from_numpy(second)[2:]
    del first, second
    (other, _) = kept_memory.empty_arrays(wanted)
    assert other.ctypes.data != begin
    del view
    (again, _) = kept_memory.empty_arrays(wanted)
    assert again.ctypes.data == begin


def test_little_memory_is_kept(nothing_kept):
    held = [kept_memory.empty_arrays([((100,), np.dtype(np.int64))]) for _ in range(20)]
    del held
    assert len(kept_memory._kept) == kept_memory.MAX_KEPT
    (small,) = kept_memory.empty_arrays([((10,), np.dtype(np.int64))])
    del small
    assert min(map(len, kept_memory._kept)) < 800, "one that is far too large is not taken"
    assert len(kept_memory._kept) == kept_memory.MAX_KEPT


def test_a_worker_touches_no_new_memory_once_it_is_warm():
    """Arrays of 2 MB that come and go, as columns are derived; 512 pages each, were they new."""
    code = """if True:
        import resource, sys
        import numpy as np
        from gristmill.dataset.kept_memory import teach_allocator
        def derive():
            columns = [np.ones(1 << 19, np.int32) for _ in range(4)]
        def faults():
            derive()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(10): derive()
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        teach_allocator()
        print(faults())"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 1000
