#!/usr/bin/env python3
"""Write the reference pages from the code: commands (localmem/cli/README.md) and settings (configs/README.md), and
the tables of figures in other pages from localmem/evaluation/results/figures.yaml.

.venv/bin/python scripts/generate_docs.py           writes the pages
.venv/bin/python scripts/generate_docs.py --check   exit 1 if a page differs from the code
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import click
import yaml

from localmem.cli import root
from localmem.cli.recipes import recipe_table
from localmem.config import Settings, system_names
from localmem.factory import SYSTEMS

ROOT = Path(__file__).parent.parent


COMMANDS_HEAD = """\
# Commands

Written by `scripts/generate_docs.py` from the code; a test compares. Results go to standard output, notes and progress
to standard error. Exit status: 0 success, 1 failure, 2 wrong usage. `--json` prints one JSON document.
"""

SETTINGS_HEAD = """\
# Settings

Written by `scripts/generate_docs.py` from the code; a test compares. A setting comes from, in this order: a flag, an
environment variable (`LOCALMEM_MODEL`, `LOCALMEM_LLM__URL`), the file named by `--config`, your own file
(`~/.config/localmem/settings.yaml`, or the file that `LOCALMEM_CONFIG` names), the default. `localmem settings` prints
every setting with its value and its source. Settings files are YAML:

```yaml
model: llama-3.1-8b-instruct
llm: {url: http://127.0.0.1:8000}
```
"""

SYSTEMS_HEAD = """\
## Memory systems

`localmem chat --system NAME` chooses a system, the setting `options` overrides its options. The files in
[`systems`](systems) hold the papers' values, and each system's variants and ablations:
`localmem chat --system rsum/bm25`.
"""


def command_reference() -> str:
    """Every command with its help, as `localmem COMMAND --help` prints it at 80 columns."""
    context = click.Context(root, info_name="localmem", terminal_width=80)
    return "\n".join([COMMANDS_HEAD, *_command_sections(root, context)])


def _command_sections(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from (f"## {context.command_path}", "", "```text", command.get_help(context).rstrip(), "```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _command_sections(
                    child, click.Context(child, parent=context, info_name=name, terminal_width=80)
                )


def settings_reference() -> str:
    """Every setting and every option of a memory system, with its default and its sentence."""
    systems = (line for name in SYSTEMS for line in _system_section(name))
    return "\n".join([SETTINGS_HEAD, *_table("setting", _settings_rows()), SYSTEMS_HEAD, *systems])


def _system_section(name: str) -> list[str]:
    system = SYSTEMS[name]
    variants = [variant for variant in system_names(variants=True) if variant.startswith(f"{name}/")]
    lines = [f"### {name}", "", f"Remembers {system.remembers}. Asks the model: {system.llm_calls}.", ""]
    if variants:
        lines += ["Variants: " + ", ".join(f"`{variant}`" for variant in variants) + ".", ""]
    options = list(_commented_options(ROOT / "configs" / "systems" / f"{name}.yaml"))
    return lines + (_table("option", options) if options else [])


def _commented_options(file: Path) -> Iterator[tuple[str, str, str]]:
    """The options of a system's file: name, value and comment, which stands behind the value or above it."""
    above: list[str] = []
    text = file.read_text(encoding="utf-8").partition("\noptions:")[2].partition("\nvariants:")[0]
    for line in text.splitlines():
        option = re.match(r"  (\w+): (.*?)(?:\s+# (.*))?$", line)
        if option:
            name, value, comment = option.groups()
            yield name, value, " ".join([*above, *filter(None, [comment])])
            above = []
        elif line.strip().startswith("#"):
            above.append(line.strip().removeprefix("# "))


def _table(title: str, rows: Iterable[tuple[str, str, str]]) -> list[str]:
    lines = [f"| {title} | default | meaning |", "|---|---|---|"]
    for name, default, sentence in rows:
        value = "" if default in ("", '""', "null", "{}", "[]") else f"`{default}`"
        lines.append(f"| `{name}` | {value} | {sentence.replace('|', chr(92) + '|')} |")
    return [*lines, ""]


def _settings_rows() -> Iterator[tuple[str, str, str]]:
    for name, default, sentence in recipe_table(Settings):
        yield name, default.replace(str(Path.home()), "~").strip('"'), " ".join(sentence.split())


def figure_table(page: Path, table: str) -> str:
    """The text of a page with its table of figures, which stands between two comments."""
    text = page.read_text(encoding="utf-8")
    begin, end = (f"<!-- figures: {name} -->" for name in (table, "end"))
    before, _, after = text.partition(begin)
    if not after or end not in after:
        raise SystemExit(f"{page} has no comments {begin} and {end}; restore them")
    rows = [row for row in yaml.safe_load(FIGURES.read_text(encoding="utf-8")) if table in row["tables"]]
    lines = ["| what | figure | command | page |", "|---|---|---|---|"]
    for row in rows:
        target = row.get("page", "")
        name = Path(target).parent.name if target.endswith("README.md") else Path(target).stem
        link = f"[{name}]({os.path.relpath(ROOT / target, page.parent)})" if target else ""
        lines.append(f"| {row['what']} | {row['figure']} | {row.get('command', '')} | {link} |")
    return "\n".join([f"{before}{begin}", *lines, end]) + after.partition(end)[2]


FIGURES = ROOT / "localmem" / "evaluation" / "results" / "figures.yaml"
TABLES = {
    "readme": ROOT / "README.md",
    "evaluation": ROOT / "localmem" / "evaluation" / "README.md",
    "benchmark": ROOT / "localmem" / "benchmark" / "README.md",
}
PAGES: dict[Path, Callable[[], str]] = {
    ROOT / "localmem" / "cli" / "README.md": command_reference,
    ROOT / "configs" / "README.md": settings_reference,
    **{page: partial(figure_table, page, table) for table, page in TABLES.items()},
}


def main() -> int:
    """Write or compare the pages; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    os.environ.pop("XDG_DATA_HOME", None)  # the default of `data` is shown as it is without it
    stale = False
    for path, make in PAGES.items():
        text = make().rstrip() + "\n"
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            print(f"{path.relative_to(ROOT)} differs from the code; run scripts/generate_docs.py", file=sys.stderr)
            stale = True
        elif not check:
            path.write_text(text, encoding="utf-8")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
