"""The slow twin of CausalLMTokenizer: transformers and a plain Python loop, a token at a time."""

IGNORED = -100


def slow_rows(tokenizer, texts, *, context_length, overlap=0, pad_id=0, mask_overlap=False, eos_id=None):
    """Rows as dicts of lists, in the order of the texts."""
    rows = []
    for text in texts:
        ids = list(tokenizer(text)["input_ids"]) + ([] if eos_id is None else [eos_id])
        start = 0
        while start < len(ids):
            window = ids[start : start + context_length]
            row = {"input_ids": [], "attention_mask": [], "labels": []}
            for place in range(context_length):
                is_token = place < len(window)
                is_repeated = start > 0 and place < overlap
                row["input_ids"].append(window[place] if is_token else pad_id)
                row["attention_mask"].append(1 if is_token else 0)
                is_learned = is_token and not (mask_overlap and is_repeated)
                row["labels"].append(window[place] if is_learned else IGNORED)
            rows.append(row)
            if start + context_length >= len(ids):
                break
            start += context_length - overlap
    return rows
