"""`localmem keys`: a key is shown once, and the list never shows it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli import root
from localmem.errors import NotFound


def run(data: Path, *arguments: str) -> str:
    outcome = CliRunner().invoke(root, ["keys", *arguments, "--data-dir", str(data)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_a_key_is_made_rotated_and_revoked(tmp_path: Path) -> None:
    first = run(tmp_path, "create", "--user", "ann", "--scope", "read", "--days", "30")
    (row,) = json.loads(run(tmp_path, "list", "--json"))
    assert (row["user"], row["scopes"], row["state"]) == ("ann", "read", "valid")
    second = run(tmp_path, "rotate", row["id"], "--days", "1")
    run(tmp_path, "revoke", row["id"])
    table = run(tmp_path, "list")
    assert "revoked" in table
    assert "valid" in table
    assert not [text for text in (first, second) if text.strip() in table]


def test_keys_of_the_settings_are_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_SERVER__KEYS", '{"chosen-by-ann": "ann"}')
    run(tmp_path, "migrate")
    assert [row["user"] for row in json.loads(run(tmp_path, "list", "--json"))] == ["ann"]
    assert "chosen" not in (tmp_path / "keys.json").read_text(encoding="utf-8")


def test_an_unknown_key_is_one_line(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(root, ["keys", "revoke", "abcd", "--data-dir", str(tmp_path)])
    assert isinstance(outcome.exception, NotFound)
    assert str(outcome.exception) == "there is no key 'abcd'; `localmem keys list` shows them"
    endless = ["keys", "create", "--user", "ann", "--days", "99999999999", "--data-dir", str(tmp_path)]
    assert CliRunner().invoke(root, endless).exit_code == 2
