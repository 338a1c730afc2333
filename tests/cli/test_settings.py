"""`localmem settings`: every setting with its value and its source."""

import json
from pathlib import Path

import pytest

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
    urls = "[http://ana:very-secret-3@127.0.0.1:8000/v1, http://127.0.0.1:8001]"
    config.write_text(
        "database: 'postgresql://ana:very-secret-4@host/name?sslpassword=very-secret-5'\n"
        f"llm: {{api_key: very-secret-1, url: {urls}}}\nserver: {{keys: {{very-secret-2: ana}}}}\n"
    )
    for arguments in ([], ["--json"]):
        output = localmem("settings", "--config", config, *arguments).stdout
        assert "very-secret" not in output
        assert "***" in output
        assert "ana" in output
    rows = json.loads(localmem("settings", "--config", config, "--json").stdout)
    values = {row["key"]: row["value"] for row in rows}
    assert values["database"] == "postgresql://ana:***@host/name?sslpassword=***"
    assert values["llm.url"] == ["http://ana:***@127.0.0.1:8000/v1", "http://127.0.0.1:8001"]


@pytest.mark.parametrize("value", ["", "host/name"])
def test_a_database_that_is_no_url_does_not_begin_a_store_elsewhere(localmem: Run, value: str) -> None:
    """`LOCALMEM_DATABASE: ${URL}` of a variable that is not set."""
    result = localmem("recall", "bees", env={"LOCALMEM_DATABASE": value})
    assert result.returncode == 2, result.stdout
    assert "database" in result.stderr
    assert "give a URL such as postgresql://host/name" in result.stderr


def test_the_table_is_for_people(localmem: Run) -> None:
    lines = localmem("settings").stdout.splitlines()
    assert lines[0].split() == ["setting", "value", "source", "description"]
    assert any(line.startswith("retrieval.encoder ") and "minilm-l6-v2" in line and "default" in line for line in lines)
