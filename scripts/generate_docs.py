#!/usr/bin/env python3
"""Write the reference pages from the code: commands (localmem/cli/README.md), settings (configs/README.md) and a page
for each memory system (localmem/systems/docs), and the tables of figures in other pages from
localmem/evaluation/results/figures.yaml.

.venv/bin/python scripts/generate_docs.py           writes the pages
.venv/bin/python scripts/generate_docs.py --check   exit 1 if a page differs from the code
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

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


def system_page(name: str) -> str:
    """A system's page: the head of its module, its options and variants, and what it did with the demo's sessions."""
    system = SYSTEMS[name]
    module = sys.modules[_module_of(name)]
    head, _, about = (module.__doc__ or "").partition("\n\n")
    file = ROOT / "configs" / "systems" / f"{name}.yaml"
    options, variants = list(_commented_options(file)), list(_commented_variants(file, name))
    lines = [f"# `{name}`", "", PAGE_HEAD.format(module=module.__name__), head, "", about.strip(), ""]
    lines += [f"Remembers {system.remembers}. Asks the model: {system.llm_calls}.", ""]
    lines += ["## Options", "", *_table("option", options)] if options else []
    lines += ["## Variants", "", *variants, ""] if variants else []
    measured = {row["name"]: row for row in json.loads(MEASURED.read_text(encoding="utf-8"))}
    return "\n".join([*lines, *_measured_lines(name, measured)])


def _module_of(name: str) -> str:
    own = f"localmem.systems.{name}"
    shared = {"rebot": "all_memories", "evidence": "evidence.evidence_memory"}
    return own if own in sys.modules and name not in shared else f"localmem.systems.{shared.get(name, 'baselines')}"


def _commented_variants(file: Path, name: str) -> Iterator[str]:
    """A line for each variant in a system's file, with the comment above it."""
    comment: list[str] = []
    for line in file.read_text(encoding="utf-8").partition("\nvariants:")[2].splitlines():
        if line.startswith("  # "):
            comment.append(line.removeprefix("  # "))
        elif variant := re.match(r"  (\w+):$", line):
            yield f"- `{name}/{variant[1]}`: {' '.join(comment)}"
            comment = []


def _measured_lines(name: str, measured: Mapping[str, Any]) -> Iterator[str]:
    """Calls and tokens a turn, and the beginning of what is remembered, from the kept run."""
    row = re.search(rf"^\| {name} \|.*$", COSTS.read_text(encoding="utf-8"), re.MULTILINE)
    if row:
        _, _, calls, *tokens, recalled, units, prompts, _ = (cell.strip() for cell in row[0].split("|"))
        how = "[Measured](../../benchmark/results/systems.md) on the starter"
        yield from ("## Cost", "", f"{how}: {calls} calls a turn, {' tokens in and '.join(tokens)} out,")
        yield f"{recalled} tokens recalled; {units} units at the end. Calls: {prompts}."
    if name in measured:
        cost = measured[name]["cost"]
        texts = [text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…" for text in cost["remembered"]]
        refused = sum(cost["refused"].values())
        yield from ("", "## What it remembers of the demo", "", MEASURED_HEAD.format(**cost), "", "```text")
        kinds = {text.split()[0]: [own for own in texts if own.split()[0] == text.split()[0]] for text in texts}
        samples = [text for own in kinds.values() for text in own[:_SHOWN]]
        yield from (samples or ["(nothing)"])
        yield from ([f"… and {len(texts) - len(samples)} more"] if len(texts) > len(samples) else [])
        yield from (
            "```",
            "",
            f"Texts that the gate refused: {refused}. Unusable answers: {sum(cost['fallbacks'].values())}.",
        )


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


# Of each kind of what is remembered the file has the beginnings of five lines, and of the others their kind.
MEASURED = ROOT / "localmem" / "evaluation" / "results" / "systems.json"
COSTS = ROOT / "localmem" / "benchmark" / "results" / "systems.md"
PAGE_HEAD = "Written by `scripts/generate_docs.py` from the code (`{module}`) and the results; a test compares.\n"
MEASURED_HEAD = """{sessions} sessions, {turns} replies; the stages answered by the starter's shipped parts. The run:
`localmem systems --measure --json`, with `chat.stages: minilm-l6-v2-statements` and the demo's conversation."""
_WIDTH, _SHOWN = 116, 5  # characters of a line, and lines of a kind, of what is remembered
FIGURES = ROOT / "localmem" / "evaluation" / "results" / "figures.yaml"
TABLES = {
    "readme": ROOT / "README.md",
    "evaluation": ROOT / "localmem" / "evaluation" / "README.md",
    "benchmark": ROOT / "localmem" / "benchmark" / "README.md",
}
PAGES: dict[Path, Callable[[], str]] = {
    ROOT / "localmem" / "cli" / "README.md": command_reference,
    ROOT / "configs" / "README.md": settings_reference,
    **{ROOT / "localmem" / "systems" / "docs" / f"{name}.md": partial(system_page, name) for name in SYSTEMS},
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
