"""`localmem eval compression` from outside, with a real encoder over a few turns."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli.eval.compression import compression
from localmem.errors import BadInput
from tests.cli.conftest import Run
from tests.evaluation.fixtures import MTBENCHPLUS, written


def test_the_command_measures_every_rate_and_compressor(
    localmem: Run, tmp_path: Path, starter_encoder_dir: Path, starter_llm_dir: Path
) -> None:
    path, out = written(tmp_path, MTBENCHPLUS), tmp_path / "out"
    given = ["eval", "compression", "--data", "mtbenchplus", "--path", path, "--compressor", "random", "--k", 1]
    done = localmem(*given, "--unit", "turn", "--rates", "1,0.9,0.5", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert held == json.loads((out / "report.json").read_text())
    assert (out / "recall.png").read_bytes().startswith(b"\x89PNG")
    ways = [(row["retriever"], row["compressor"], row["rate"]) for row in held["recall"]]
    assert ways == [
        (retriever, *one)
        for retriever in ("dense", "bm25")
        for one in (("none", 1.0), ("random", 0.9), ("random", 0.5))
    ]
    assert held["recall"][2]["kept"] < held["recall"][1]["kept"] <= held["recall"][0]["kept"] == 1
    assert held["similarity"][0]["related"]["mean"] > held["similarity"][0]["unrelated"]["mean"]


def test_a_table_for_people_and_mistakes_in_one_line(tmp_path: Path, starter_llm_dir: Path) -> None:
    given = ["--data", "mtbenchplus", "--path", str(written(tmp_path, MTBENCHPLUS)), "--retriever", "bm25", "--k", "1"]
    shown = CliRunner().invoke(compression, [*given, "--compressor", "random"], catch_exceptions=False)
    for words in ("random - none", "kept", "a unit is a segment of 3 exchanges"):
        assert words in shown.stdout
    assert CliRunner().invoke(compression, [*given, "--rates", "2"]).exit_code == 2
    with pytest.raises(BadInput, match="no model is called 'nobody'"):
        CliRunner().invoke(compression, [*given, "--compressor", "nobody"], catch_exceptions=False)
    with pytest.raises(BadInput, match="choose --k among them"):
        CliRunner().invoke(compression, [*given, "--k", "2"], catch_exceptions=False)
