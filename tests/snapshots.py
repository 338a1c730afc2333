"""Snapshots: texts that a test compares with a file, one YAML file beside each test module.

    SNAPSHOTS = Snapshots(__file__)          # tests/systems/test_prompts.py -> tests/systems/test_prompts.yaml

    def test_prompt() -> None:
        SNAPSHOTS.check("rsum/update", text)

A changed text fails. Read the difference, then update the files: `LOCALMEM_WRITE_SNAPSHOTS=1 scripts/test ...`.
"""

import os
from collections.abc import Collection
from pathlib import Path

import yaml


class Snapshots:
    """The snapshots of one test module, by name."""

    def __init__(self, module: str) -> None:
        self._path = Path(module).with_suffix(".yaml")
        self._update = bool(os.environ.get("LOCALMEM_WRITE_SNAPSHOTS"))

    def check(self, name: str, text: str) -> None:
        """Fails unless `text` is the stored one; stores it first when snapshots are being updated."""
        if self._update:
            self._write(self._read() | {name: text})
        stored = self._read()
        assert name in stored, f"{self._path.name} has no snapshot {name!r}; set LOCALMEM_WRITE_SNAPSHOTS=1 to write it"
        assert text == stored[name]

    def check_names(self, expected: Collection[str]) -> None:
        """Fails unless the stored names are the expected ones; drops others first when snapshots are being updated."""
        if self._update:
            self._write({name: text for name, text in self._read().items() if name in expected})
        assert set(self._read()) == set(expected)

    def _read(self) -> dict[str, str]:
        return yaml.safe_load(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}

    def _write(self, texts: dict[str, str]) -> None:
        self._path.write_text(
            yaml.dump(
                dict(sorted(texts.items())), Dumper=_BlockDumper, sort_keys=False, allow_unicode=True, width=10**6
            ),
            encoding="utf-8",
        )


def snapshot_names(folder: Path) -> set[str]:
    """The names in all snapshot files below a folder."""
    return {name for path in folder.glob("**/test_*.yaml") for name in yaml.safe_load(path.read_text(encoding="utf-8"))}


class _BlockDumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that a changed line is one line of the diff."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockDumper.add_representer(str, _represent_text)
