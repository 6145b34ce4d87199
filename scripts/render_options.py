"""Write docs/options.md: every option of a job with its type, default and meaning, as config.py has them.

    python scripts/render_options.py            write it
    python scripts/render_options.py --check    fail where it is not up to date
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from gristmill import config
from gristmill.files import write_whole
from gristmill.job import SECTIONS, TRAINING_SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
INTRO = """\
# Options

Every option of a job: `gristmill tokenize` takes the sections tokenizer, read, encode, pack, write and run,
`gristmill train` the sections read, count, learn and run. In a YAML file they stand in their sections; on the
command line each can be set as `section.key=value`, such as `pack.sequence_length=4096`, with or without
`--config`; in Python they are the fields of the structs named here. Sizes are numbers of bytes or text such
as 512MB, 1.5GB (powers of 1000) or 4MiB (powers of 1024). Paths are relative to the folder in which the
command is run, in a YAML file too.

Last comes the block `tokenizer` of `gristmill.CausalLMTokenizer`, which is a thing of its own and no job.

`scripts/render_options.py` writes this page from `src/gristmill/config.py`, and a test holds it to that.
"""


def render_page() -> str:
    """The whole page."""
    meanings = field_meanings()
    sections = SECTIONS | TRAINING_SECTIONS
    parts = [render_section(name, kind, meanings) for name, kind in sections.items()]
    causal = render_section("tokenizer", config.CausalLMConfig, meanings, heading="CausalLMTokenizer")
    return "\n".join([INTRO, *parts, causal])


def render_section(
    name: str, kind: type[msgspec.Struct], meanings: dict[tuple[str, str], str], *, heading: str | None = None
) -> str:
    """A section's heading and table."""
    hints = get_type_hints(kind, include_extras=True)
    lines = [f"## {heading or name}", "", f"{inspect.getdoc(kind)} `gristmill.{kind.__name__}`", ""]
    lines += ["| option | value | default | meaning |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        cells = (
            f"`{name}.{field.name}`",
            render_type(hints[field.name]),
            "required" if f"{name}.{field.name}" in REQUIRED else render_default(field.default),
            meanings[kind.__name__, field.name],
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def field_meanings() -> dict[tuple[str, str], str]:
    """The sentence after each field of each struct in config.py, by struct and field."""
    found = {}
    for struct in ast.parse(inspect.getsource(config)).body:
        if not isinstance(struct, ast.ClassDef):
            continue
        for field, after in zip(struct.body, [*struct.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                text = str(after.value.value) if is_text else ""
                found[struct.name, field.target.id] = " ".join(text.split())
    return found


def render_type(kind: Any) -> str:
    """What a value can be, in words; absence is told by the default."""
    if kind == config.ByteSize:
        return "size"
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    if get_origin(kind) is Annotated:
        return render_type(get_args(kind)[0]) + render_range(get_args(kind)[1])
    if get_origin(kind) is tuple:
        return f"list of {render_type(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return "patterns and numbers"
    if kind in NAMES:
        return NAMES[kind]
    parts = [part for part in get_args(kind) if part is not type(None)]
    if {str, int} <= set(parts):
        return "size"
    single = [part for part in parts if get_origin(part) is not tuple]
    return render_type(single[0]) + (", or a list of them" if len(single) < len(parts) else "")


REQUIRED = {"tokenizer.source", "read.inputs", "write.output", "learn.output", "learn.vocab_size"}
REQUIRED |= {"tokenizer.context_length", "tokenizer.tokenizer_name"}
NAMES = {str: "text", int: "number", float: "number", bool: "`true`, `false`"}


def render_range(limits: msgspec.Meta) -> str:
    """The smallest and largest value allowed."""
    low = f" above {limits.gt}" if limits.gt is not None else f" from {limits.ge}"
    if limits.lt is not None:
        return f"{low} to below {limits.lt}"
    return low + (f" to {limits.le}" if limits.le not in (None, config.LARGEST) else "")


def render_default(value: Any) -> str:
    """A default as YAML has it."""
    if value is msgspec.NODEFAULT or value == ():
        return "none"
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(value)}]`"
    return f"`{value!r}`" if isinstance(value, str) and not value.strip() else f"`{value}`"


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = render_page()
    if not parser.parse_args().check:
        write_whole(PAGE, page.encode())
        return 0
    return 0 if PAGE.read_text(encoding="utf-8") == page else 1


if __name__ == "__main__":
    sys.exit(main())
