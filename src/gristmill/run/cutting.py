"""How the text of a training is cut, as asked or by the tokenizer that is extended; what contradicts that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gristmill.config import CountConfig, LearnConfig, TrainConfig
from gristmill.errors import ConfigError
from gristmill.spec import TokenizerSpec
from gristmill.training.cut import USUAL, Cut, cut_of, cut_of_spec
from gristmill.training.inventory import Inventory
from gristmill.training.output import base_file


def load_base(path: str) -> TokenizerSpec:
    """The tokenizer that is extended."""
    from gristmill.load.hf_json import load_tokenizer_json
    from gristmill.load.reading import read_whole

    loaded = load_tokenizer_json(read_whole(base_file(path)), source=path)
    if loaded.spec is None:
        raise ConfigError(f"{path}: cannot be extended ({loaded.why_not_native})")
    return loaded.spec


def settle_cut(config: TrainConfig) -> Cut:
    """How the inputs of a job are cut; what is asked for and would not be done is refused."""
    base = config.learn.extend
    if base is None:
        return cut_of(config.count.pattern or USUAL, form=config.count.form)
    cut = cut_of_spec(load_base(base))
    _refuse_another(config.count, cut, f"{base}, which is extended, cuts text")
    return cut


def check_counts(config: TrainConfig, paths: Sequence[Path]) -> None:
    """Refuse counts of pieces that the tokenizer to be made would never see."""
    base = config.learn.extend
    own = cut_of_spec(load_base(base)) if base is not None else None
    for path in paths:
        cut = Inventory(path).cut
        _refuse_another(config.count, cut, f"{path}: was cut")
        if own is not None and cut != own:
            raise ConfigError(
                f"{path}: was cut in another way than {base} cuts text; count the text again with --extend "
                f"{base}, and without --from-counts"
            )


def check_special_tokens(learn: LearnConfig) -> None:
    """Refuse an empty one, and those that a tokenizer to be extended lacks: it keeps those it has."""
    if "" in learn.special_tokens:
        raise ConfigError("a special token is empty; leave it out of learn.special_tokens")
    if learn.extend is None or learn.special_tokens == LearnConfig().special_tokens:
        return
    known = {token.content for token in load_base(learn.extend).added_tokens}
    lacking = [token for token in learn.special_tokens if token not in known]
    if lacking:
        raise ConfigError(
            f"{learn.extend} has no special token {lacking[0]!r}, and extending it adds none; leave "
            "learn.special_tokens (--special-tokens) out"
        )


def _refuse_another(count: CountConfig, cut: Cut, what: str) -> None:
    """Refuse a pattern or a form that the user asks for where another is settled."""
    if count.pattern is not None and cut_of(count.pattern, form=cut.form) != cut:
        raise ConfigError(f"{what} in another way than count.pattern (--pattern) asks for; leave that out")
    if count.form is not None and count.form != cut.form:
        raise ConfigError(f"{what} in another Unicode form than count.form asks for; leave that out")
