"""What CausalLMTokenizer makes goes into the trainers as it is, and comes back from disk."""

import datasets
import pytest
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

import gristmill
from causal_places import byte_level, real_texts


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return byte_level(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def dataset():
    return datasets.Dataset.from_dict({"text": real_texts()[:30]})


@pytest.fixture
def tokenizer(place):
    config = {"tokenizer_name": str(place), "context_length": 32, "overlap": 4, "show_progress": False}
    return gristmill.CausalLMTokenizer(config)


def small_model():
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, n_positions=32, vocab_size=400))


def arguments(kind, folder):
    return kind(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=2,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )


@pytest.mark.parametrize("is_stream", [False, True])
def test_trainer_takes_the_rows(is_stream, tokenizer, dataset, tmp_path):
    rows = tokenizer.tokenize(dataset.to_iterable_dataset() if is_stream else dataset)
    trainer = Trainer(model=small_model(), args=arguments(TrainingArguments, tmp_path), train_dataset=rows)
    assert 0 < trainer.train().training_loss < 10


def test_sft_trainer_takes_the_rows(tokenizer, place, dataset, tmp_path):
    reference = PreTrainedTokenizerFast(
        tokenizer_file=str(place / "tokenizer.json"), eos_token="<|endoftext|>", pad_token="<|pad|>"
    )
    trainer = SFTTrainer(
        model=small_model(),
        args=arguments(SFTConfig, tmp_path),
        train_dataset=tokenizer.tokenize(dataset),
        processing_class=reference,
    )
    assert 0 < trainer.train().training_loss < 10


def test_rows_can_be_saved_mapped_and_loaded(tokenizer, dataset, tmp_path):
    rows = tokenizer.tokenize(dataset)
    rows.save_to_disk(tmp_path / "rows")
    assert datasets.load_from_disk(tmp_path / "rows")[:] == rows[:]
    counted = rows.map(lambda row: {"tokens": sum(row["attention_mask"])})
    assert len(counted) == len(rows)
    assert counted[0]["tokens"] == sum(rows[0]["attention_mask"])
