"""The files of scripts/deploy: settings load, and rules and boards ask for metrics that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml

from localmem.config import load_settings
from localmem.resources import checkout_root
from tests.server.conftest import LiveServer

DEPLOY = (checkout_root() or Path()) / "scripts" / "deploy"


@pytest.mark.parametrize("name", ["settings.yaml", "settings.postgres.yaml"])
def test_settings_load(name: str) -> None:
    assert load_settings(DEPLOY / name, {}).server.host == "0.0.0.0"  # noqa: S104  # in a container


def test_rules_and_boards_ask_for_metrics_that_exist(live: LiveServer) -> None:
    live.openai().chat.completions.create(model="localmem", messages=[{"role": "user", "content": "Hello."}])
    live.runtime.store.refusals["prompt", "loop"] += 1
    exported = set(re.findall(r"^(localmem_\w+)", live.services.metrics.text().decode(), re.MULTILINE))
    rules = yaml.safe_load((DEPLOY / "prometheus_rules.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    queries = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    names = {name for query in queries for name in re.findall(r"localmem_\w+", query)}
    assert len(names) > 5
    assert names <= exported


@pytest.mark.parametrize("name", ["compose", "compose.postgres"])
def test_a_server_is_not_killed_while_its_replies_end(name: str) -> None:
    service = yaml.safe_load((DEPLOY / f"{name}.yaml").read_text())["services"]["localmem"]
    settings = load_settings(DEPLOY / f"{name.replace('compose', 'settings')}.yaml", {})
    assert int(service["stop_grace_period"].removesuffix("s")) > 2 * settings.server.grace_seconds


def test_yaml_files_are_yaml() -> None:
    files = list(DEPLOY.glob("*.yaml"))
    assert files
    for file in files:
        assert yaml.safe_load(file.read_text()), file
