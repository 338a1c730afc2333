"""`localmem eval compression` from outside, with a real encoder over a few turns."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli.eval.parts import compression
from localmem.errors import BadInput, BadSettings
from tests.cli.conftest import Run
from tests.evaluation.fixtures import MTBENCHPLUS, write_records


def test_the_command_measures_every_rate_and_compressor(
    localmem: Run, tmp_path: Path, starter_encoder_dir: Path, starter_llm_dir: Path
) -> None:
    path, out = write_records(tmp_path, MTBENCHPLUS), tmp_path / "out"
    arguments = [
        "eval",
        "compression",
        "--dataset",
        f"mtbenchplus={path}",
        "--compressor",
        "random",
        "--set",
        "depths=1",
    ]
    result = localmem(*arguments, "--set", "unit=turn", "--set", "rates=[1, 0.9, 0.5]", "--out", out, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report == json.loads((out / "report.json").read_text())
    assert (out / "recall.png").read_bytes().startswith(b"\x89PNG")
    assert [(row["retriever"], row["compressor"], row["rate"]) for row in report["recall"]] == [
        (retriever, *keys)
        for retriever in ("dense", "bm25")
        for keys in (("none", 1.0), ("random", 0.9), ("random", 0.5))
    ]
    assert report["recall"][2]["kept"] < report["recall"][1]["kept"] <= report["recall"][0]["kept"] == 1
    assert report["similarity"][0]["related"]["mean"] > report["similarity"][0]["unrelated"]["mean"]


def test_tables_and_mistakes(tmp_path: Path, starter_llm_dir: Path) -> None:
    path = write_records(tmp_path, MTBENCHPLUS)
    arguments = ["--dataset", f"mtbenchplus={path}", "--retriever", "bm25", "--set", "depths=1"]

    def invoke(*options: str) -> str:
        return CliRunner().invoke(compression, [*arguments, *options], catch_exceptions=False).stdout

    output = invoke("--compressor", "random")
    for text in ("random - none", "kept", "unit: segment of 3 exchanges"):
        assert text in output
    with pytest.raises(BadSettings, match=r"rates\.0"):
        invoke("--set", "rates=2")
    with pytest.raises(BadInput, match="nobody"):
        invoke("--compressor", "nobody")
    with pytest.raises(BadInput, match="choose depths from these"):
        invoke("--set", "depths=2")
