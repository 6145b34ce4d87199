"""What was understood of a tokenizer, in plain values for a person to read."""

from __future__ import annotations

from gristmill.load.folder import ROLE_FILES, TOKENIZER_JSON
from gristmill.load.loaded import Loaded
from gristmill.spec import MergeModel, TokenizerSpec


def describe(loaded: Loaded) -> dict[str, object]:
    """The file, the model and what happens to text before it; absent where only the reference knows."""
    specials = sorted(loaded.specials.items(), key=lambda item: item[1])
    return {
        "file": None if loaded.path is None else str(loaded.path),
        "format": loaded.format,
        "model": _model(loaded),
        "normalizer": None if loaded.spec is None else _normalizer(loaded.spec),
        "splits": None if loaded.spec is None else [split.pattern for split in loaded.spec.splits],
        "vocab_size": loaded.vocab_size,
        "num_special_tokens": len(specials),
        "special_tokens": dict(specials),
        "bos_id": loaded.bos_id,
        "eos_id": loaded.eos_id,
        "pad_id": loaded.pad_id,
        "why_not_named": _why_not_named(loaded) if None in (loaded.bos_id, loaded.eos_id) else None,
        "fingerprint": loaded.fingerprint,
    }


def _why_not_named(loaded: Loaded) -> str:
    # A tokenizer.json leaves it to a file beside it to name its BOS and EOS.
    if loaded.format != TOKENIZER_JSON or loaded.path is None:
        return "not named"
    if loaded.path.name != TOKENIZER_JSON:
        return f"not named: {ROLE_FILES[-1]} is read only beside a file named {TOKENIZER_JSON}"
    if not (loaded.path.parent / ROLE_FILES[-1]).is_file():
        return f"not named: no {ROLE_FILES[-1]}"
    return f"not named in {ROLE_FILES[-1]}"


def _model(loaded: Loaded) -> str:
    model = loaded.spec.model if loaded.spec else None
    if isinstance(model, MergeModel):
        return "byte-level BPE" if model.token_text == "byte_level" else "BPE with byte fallback"
    return loaded.model


def _normalizer(spec: TokenizerSpec) -> str:
    steps = []
    if spec.normalization.form:
        steps.append(spec.normalization.form.upper())
    if spec.prefix:
        steps.append(f"a space before the text{' unless there is one' if spec.prefix.unless_present else ''}")
    if spec.normalization.replace_spaces:
        steps.append("▁ for each space")
    return ", ".join(steps) or "none"
