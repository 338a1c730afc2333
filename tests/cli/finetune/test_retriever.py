"""`localmem finetune retriever` from the command line: a table, a registered encoder, one line for a mistake."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli.finetune import finetune
from localmem.weights import Manifest
from tests.evaluation.fixtures import written
from tests.finetune.small import small_encoder

PAIRS = [
    {"query": f"{asked} {name}", "positive": f"{name} {told}", "negatives": ["told nothing"], "group": name}
    for name in ("ana", "ben")  # one in each half
    for asked, told in (("pet", "cat"), ("drink", "tea"))
]


def test_the_command_measures_and_registers_an_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    base = small_encoder(tmp_path / "base", ["pet", "drink", "cat", "tea", "ana", "ben", "told", "nothing"])
    config = base / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("64", "48"), encoding="utf-8")
    path = written(tmp_path, PAIRS, "pairs.jsonl", lines=True)
    arguments = [
        "retriever",
        "--base",
        base,
        "--data",
        "pairs",
        path,
        "--out",
        tmp_path / "out",
        "--epochs",
        1,
        "--window",
        8,
    ]
    result = CliRunner().invoke(finetune, [*map(str, arguments), "--name", "finder"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "mrr: " in result.stdout
    assert [line.split()[2] for line in result.stdout.splitlines()[-3:]] == ["before", "after", "gained"]
    entry = Manifest.load(tmp_path / "models").models["finder"]
    assert (entry.role, entry.dimension, entry.pooling, entry.context_length) == ("encoder", 32, "mean", 48)
    held = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    assert held["report"][0]["questions"] == 2
    assert held["triplets"] == 2  # of ana's two questions one is kept back; it has two wrong texts
