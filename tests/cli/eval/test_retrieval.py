"""`localmem eval retrieval` from outside, with a real encoder over a few turns."""

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.evaluation.fixtures import LOCOMO, MTBENCHPLUS, written


def test_ways_are_combined_measured_and_compared(localmem: Run, tmp_path: Path, starter_encoder_dir: Path) -> None:
    path, out = written(tmp_path, LOCOMO), tmp_path / "out"
    given = ["eval", "retrieval", "--data", "locomo", "--path", path, "--out", out, "--json"]
    given += ["--retriever", "bm25", "--retriever", "dense", "--retriever", "hybrid", "--weight", 1, "--weight", 0.5]
    given += ["--dense-reads", "text"]
    done = localmem(*given)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar in a pipe
    held = json.loads(done.stdout)
    assert [run["run"] for run in held["runs"]] == ["bm25", "dense", "hybrid weight 1", "hybrid weight 0.5"]
    assert held == json.loads((out / "report.json").read_text())
    assert (held["questions"], held["without_evidence"], held["tokens_of"]) == (3, 2, "smollm2-135m-instruct")
    assert held["encoder"].startswith("minilm-l6-v2@")
    assert held["data"]["sha256"]
    assert held["versions"]["python"]
    dense = held["runs"][1]
    assert dense["measures"]["hit@1"]["mean"] >= 2 / 3  # a parrot is a bird, and moving is moving
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    first = next(row for row in rows if row["run"] == "dense" and row["probe"] == "conv-1/q0")
    assert first["found"][0] == "conv-1/1/t0"
    again = json.loads(localmem(*given).stdout)  # vectors are kept now
    assert [run["measures"] for run in again["runs"]] == [run["measures"] for run in held["runs"]]


def test_a_table_for_people_over_units_and_keys(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    path = written(tmp_path, MTBENCHPLUS)
    given = ["eval", "retrieval", "--data", "mtbenchplus", "--path", path, "--retriever", "bm25"]
    done = localmem(*given, "--unit", "turn", "--unit", "segment", "--key", "plain", "--key", "dated")
    assert done.returncode == 0, done.stderr
    for shown in ("bm25 turn plain", "bm25 segment dated", "at equal tokens", "tokens of smollm2-135m-instruct"):
        assert shown in done.stdout
    random = localmem(*given, "--unit", "session", "--rate", 0.5, "--compressor", "random", "--query", "dialogue")
    assert random.returncode == 0, random.stderr


def test_mistakes_are_one_line(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    path = written(tmp_path, LOCOMO)
    told = localmem("eval", "retrieval", "--data", "locomo", "--path", path, "--query", "dialogue")
    assert told.returncode == 2
    assert told.stderr.strip() == ("localmem: the questions of locomo stand in no dialogue; leave --query at question")
    about = localmem("eval", "retrieval", "--data", "locomo", "--path", path, "--unit", "memory")
    assert "give --gold sessions" in about.stderr
    path.write_text("{oops")
    bad = localmem("eval", "retrieval", "--data", "locomo", "--path", path)
    assert bad.returncode == 2
    assert f"{path}, line 1 is no JSON" in bad.stderr
    assert len(bad.stderr.strip().splitlines()) == 1
    assert localmem("eval", "retrieval", "--data", "msc", "--path", path).returncode == 2
