"""What the job leaves open is settled once the tokenizer is known: mode, ids round documents, dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gristmill.config import TokenizeConfig
from gristmill.errors import ConfigError
from gristmill.job import byte_size
from gristmill.layout import Layout
from gristmill.read import InputFile

if TYPE_CHECKING:
    from gristmill.tokenizer import Tokenizer

IDENTITY_VERSION = 3
"""Another where the same job is cut into other units."""
MAX_SPECIALS_SHOWN = 3
WORDS = {
    "eos": ("endoftext", "end_of_text", "eos", "</s>", "[sep]", "eot_id", "im_end", "end"),
    "bos": ("begin_of_text", "startoftext", "bos", "<s>", "[cls]", "im_start", "begin", "start"),
}
"""In names of special tokens that are likely to end or to begin a document, the likeliest first."""
OTHER_WORDS = ("pad", "unk", "mask", "header", "reserved", "object", "box", "quad", "vision", "tool", "repo")
"""In names of those that do neither."""
MAX_CHANGES_SHOWN = 5
SIZES = (("read", "max_document_bytes"), ("read", "unit_bytes"), ("write", "shard_bytes"))
INPUT = "input "
OF_DATASET = ("dataset", "dataset_config", "split", "revision", "cache_dir", "streaming")
NOT_IN_OUTPUT = ("on_bad_document", "on_bad_file", "inputs", "output", *OF_DATASET)
"""Options that change no shard; inputs and datasets are told by their files."""


class TokenizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of a run must know of a tokenizer."""

    name: str
    fingerprint: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    special_tokens: dict[str, int]
    """A few, for people: those that are likely to end or to begin a document."""
    engine: str
    why_not_native: str | None


def settle_sizes(config: TokenizeConfig) -> TokenizeConfig:
    """The same job with the sizes that decide its output as numbers, so that 1GB and 1000MB are one thing."""
    changed: dict[str, msgspec.Struct] = {}
    for section, key in SIZES:
        options = changed.get(section, getattr(config, section))
        value = getattr(options, key)
        if value is not None:
            number = byte_size(value, name=f"{section}.{key}")
            changed[section] = msgspec.structs.replace(options, **{key: number})
    return msgspec.structs.replace(config, **changed)


def facts_of(tokenizer: Tokenizer, name: str) -> TokenizerFacts:
    """The facts of a loaded tokenizer; one whose ids are random is refused."""
    if tokenizer.is_random:
        raise ConfigError(
            f"{name}: has a dropout, so that every run would give other ids; "
            "set model.dropout to null in its tokenizer.json"
        )
    return TokenizerFacts(
        name=name,
        fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        special_tokens=dict(
            item for role in WORDS for item in _likely(tokenizer.special_tokens, role)[:MAX_SPECIALS_SHOWN]
        ),
        engine=tokenizer.engine_name,
        why_not_native=tokenizer.why_not_native,
    )


def _likely(special_tokens: Mapping[str, int], role: str) -> list[tuple[str, int]]:
    """Special tokens that may have a role, the likeliest first; none whose name says that it has another."""
    words = WORDS[role]
    others = [*OTHER_WORDS, *(word for other in WORDS if other != role for word in WORDS[other])]

    fitting = []
    for text, id_ in special_tokens.items():
        name = text.lower()
        rank = next((i for i, word in enumerate(words) if word in name), len(words))
        is_vague = rank >= len(words) - 1  # the last word is in many a name
        if not (is_vague and any(word in name for word in others)):
            fitting.append((rank, id_, text))
    return [(text, id_) for _, id_, text in sorted(fitting)]


def settle_layout(config: TokenizeConfig, facts: TokenizerFacts) -> Layout:
    """The layout of every shard, or what is missing to settle it."""
    from gristmill.formats import default_mode, formats_of  # a training has none

    formats = formats_of(config.write)
    mode = config.pack.mode or default_mode(formats)
    eos_id = _end_id(config.encode.add_eos, config.encode.eos_id, facts.eos_id, "eos", facts)
    bos_id = _end_id(config.encode.add_bos, config.encode.bos_id, facts.bos_id, "bos", facts)
    pad_id = None if mode == "documents" else _pad_id(config, facts, eos_id)
    for option, id_ in {"encode.eos_id": eos_id, "encode.bos_id": bos_id, "pack.pad_id": pad_id}.items():
        if id_ is not None and id_ >= facts.vocab_size:
            raise ConfigError(f"{option} is {id_}; the tokenizer has ids 0..{facts.vocab_size - 1}")
    fits = facts.vocab_size <= 1 << 16
    if config.write.dtype == "uint16" and not fits:
        raise ConfigError(
            f"write.dtype is uint16, but ids go up to {facts.vocab_size - 1}; leave it out, or use uint32"
        )
    return Layout(
        mode=mode,
        sequence_length=None if mode == "documents" else config.pack.sequence_length,
        formats=formats,
        dtype=config.write.dtype or ("uint16" if fits else "uint32"),
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
        tokenizer=facts.name,
        fingerprint=facts.fingerprint,
        vocab_size=facts.vocab_size,
        mask_first_token=config.pack.mask_first_token,
    )


def identity_of(config: TokenizeConfig, layout: Layout, files: tuple[InputFile, ...]) -> dict[str, Any]:
    """All that decides what a run writes, as flat plain values: a run may be resumed while they are equal."""
    identity: dict[str, Any] = {"version": IDENTITY_VERSION, "tokenizer": layout.fingerprint}
    for name in ("read", "encode", "pack", "write"):
        section = msgspec.to_builtins(getattr(config, name))
        identity |= {f"{name}.{key}": value for key, value in section.items() if key not in NOT_IN_OUTPUT}
    identity |= {
        "pack.mode": layout.mode,
        "write.format": list(layout.formats),
        "write.dtype": layout.dtype,
        "encode.bos_id": layout.bos_id,
        "encode.eos_id": layout.eos_id,
        "pack.pad_id": layout.pad_id,
        "run.max_rows": config.run.max_rows,
        "run.max_tokens": config.run.max_tokens,
    }
    for file in files:
        identity[f"{INPUT}{file.path}"] = f"{file.num_bytes} bytes, version {file.version}"
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(identity))  # as it is read back
    return plain


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Each value that is not the same, in words."""
    found = []
    for key in dict.fromkeys([*before, *now]):
        if key not in now:
            found.append(f"{key} is gone")
        elif key not in before:
            found.append(f"{key} is new")
        elif key == "version" and before[key] != now[key]:
            found.append("another version of gristmill has cut its units in another way")
        elif before[key] != now[key]:
            found.append(f"{key} was {before[key]!r}, is now {now[key]!r}")
    inputs = [[key for key in identity if key.startswith(INPUT)] for identity in (before, now)]
    if not found and inputs[0] != inputs[1]:
        found.append("the inputs are the same, but in another order")
    return found


def explain_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What tells one identity from another, in words; nothing where a run may be resumed."""
    changes = differences(before, now)
    if not changes and list(before) != list(now):
        changes = ["the inputs are in another order"]
    more = f", and {len(changes) - MAX_CHANGES_SHOWN} more" if len(changes) > MAX_CHANGES_SHOWN else ""
    return "; ".join(changes[:MAX_CHANGES_SHOWN]) + more


def _end_id(
    is_added: bool, given: int | None, own: int | None, name: str, facts: TokenizerFacts
) -> int | None:
    if not is_added:
        return None
    id_ = own if given is None else given
    if id_ is None:
        known = _likely(facts.special_tokens, name)[:MAX_SPECIALS_SHOWN]
        choices = " or ".join(f"encode.{name}_id={id_} ({text})" for text, id_ in known)
        choices = choices or f"encode.{name}_id=ID (no special token of it looks like one)"
        raise ConfigError(
            f"the tokenizer {facts.name} names no {name.upper()} token; add "
            f"{choices}, or encode.add_{name}=false"
        )
    return id_


def _pad_id(config: TokenizeConfig, facts: TokenizerFacts, eos_id: int | None) -> int:
    for id_ in (config.pack.pad_id, facts.pad_id, eos_id, facts.eos_id):
        if id_ is not None:
            return id_
    known = _likely(facts.special_tokens, "eos")[:MAX_SPECIALS_SHOWN]
    choices = " or ".join(f"pack.pad_id={id_} ({text})" for text, id_ in known) or "pack.pad_id=ID"
    raise ConfigError(f"the tokenizer {facts.name} names no PAD or EOS token; add {choices}")
