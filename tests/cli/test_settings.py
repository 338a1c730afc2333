"""`localmem settings`: every setting with its value and its source."""

import json
from pathlib import Path

from localmem.config import default_settings
from tests.cli.conftest import Run


def test_every_setting_is_listed_with_value_source_and_description(localmem: Run, tmp_path: Path) -> None:
    config, home = tmp_path / "config.yaml", tmp_path / "home"
    config.write_text("model: from-config\nretrieval: {rerank: from-config}\nchat: {carry: 3}\n")
    user_file = home / "localmem" / "settings.yaml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text("user: from-user-file\nmodel: from-user-file\nchat: {user_name: Ana, carry: 5}\n")
    env = {"XDG_CONFIG_HOME": str(home), "LOCALMEM_RETRIEVAL__RERANK": "from-environment"}
    report = localmem("settings", "--json", "--config", config, "--system", "rsum", env=env)
    assert report.returncode == 0, report.stderr
    rows = {row["key"]: row for row in json.loads(report.stdout)}
    assert rows.keys() == default_settings().keys()
    assert all(row["description"].endswith((".", ")")) for row in rows.values())
    expected = {
        "system": ("rsum", "flag"),
        "retrieval.rerank": ("from-environment", "environment variable LOCALMEM_RETRIEVAL__RERANK"),
        "retrieval.retriever": ("bm25", "environment variable LOCALMEM_RETRIEVAL__RETRIEVER"),
        "model": ("from-config", f"--config {config}"),
        "chat.carry": (3, f"--config {config}"),
        "chat.user_name": ("Ana", f"user file {user_file}"),
        "user": ("from-user-file", f"user file {user_file}"),
        "server.port": (8321, "default"),
    }
    assert {key: (rows[key]["value"], rows[key]["source"]) for key in expected} == expected


def test_secrets_are_masked(localmem: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("llm: {api_key: very-secret-1}\nserver: {keys: {very-secret-2: ana}}\n")
    for arguments in ([], ["--json"]):
        output = localmem("settings", "--config", config, *arguments).stdout
        assert "very-secret" not in output
        assert "***" in output
        assert "ana" in output


def test_the_table_is_for_people(localmem: Run) -> None:
    lines = localmem("settings").stdout.splitlines()
    assert lines[0].split() == ["setting", "value", "source", "description"]
    assert any(line.startswith("retrieval.encoder ") and "minilm-l6-v2" in line and "default" in line for line in lines)
