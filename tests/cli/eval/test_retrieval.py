"""`localmem eval retrieval` from outside, with a real encoder over a few turns."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.evaluation.fixtures import LOCOMO, MTBENCHPLUS, write_records


@pytest.mark.slow
def test_configurations_are_combined_measured_and_compared(
    localmem: Run, tmp_path: Path, starter_encoder_dir: Path
) -> None:
    path, out = write_records(tmp_path, LOCOMO), tmp_path / "out"
    arguments = ["eval", "retrieval", "--dataset", f"locomo={path}", "--out", out, "--json"]
    arguments += ["--retriever", "bm25", "--retriever", "dense", "--retriever", "hybrid"]
    arguments += ["--set", "weights=[1, 0.5]", "--set", "dense_texts=text"]
    result = localmem(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no bar in a pipe
    report = json.loads(result.stdout)
    assert [run["run"] for run in report["runs"]] == ["bm25", "dense", "hybrid weight 1", "hybrid weight 0.5"]
    assert report == json.loads((out / "report.json").read_text())
    assert (report["questions"], report["without_evidence"], report["tokens_of"]) == (3, 2, "smollm2-135m-instruct")
    assert report["encoder"].startswith("minilm-l6-v2@")
    assert report["data"]["sha256"]
    assert report["versions"]["python"]
    dense = report["runs"][1]
    assert dense["measures"]["hit@1"]["mean"] >= 2 / 3  # a parrot is a bird, and moving is moving
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    first = next(row for row in rows if row["run"] == "dense" and row["probe"] == "conv-1/q0")
    assert first["units"][0] == "conv-1/1/t0"
    repeated = json.loads(localmem(*arguments).stdout)  # with the stored vectors
    assert [run["measures"] for run in repeated["runs"]] == [run["measures"] for run in report["runs"]]


@pytest.mark.slow
def test_the_table_names_units_and_keys(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    path = write_records(tmp_path, MTBENCHPLUS)
    arguments = ["eval", "retrieval", "--dataset", f"mtbenchplus={path}", "--retriever", "bm25"]
    result = localmem(*arguments, "--memory-unit", "turn", "--memory-unit", "segment", "--set", "keys=[plain, dated]")
    assert result.returncode == 0, result.stderr
    for text in ("bm25 turn plain", "bm25 segment dated", "at equal tokens", "tokens of smollm2-135m-instruct"):
        assert text in result.stdout
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("rates: [0.5]\ncompressor: random\nquery: dialogue\n")
    compressed = localmem(*arguments, "--memory-unit", "session", "--recipe", recipe)
    assert compressed.returncode == 0, compressed.stderr


@pytest.mark.slow
def test_a_memory_system_is_measured_by_exchanges(localmem: Run, tmp_path: Path, starter_encoder_dir: Path) -> None:
    path, settings = write_records(tmp_path, LOCOMO), tmp_path / "settings.yaml"
    settings.write_text("options: {reranker: null}\n")
    arguments = ["eval", "retrieval", "--dataset", f"locomo={path}", "--config", settings, "--json"]
    result = localmem(*arguments, "--system", "evidence", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [run["run"] for run in report["runs"]] == ["evidence"]
    assert report["runs"][0]["measures"]["hit@5"]["mean"] == 1
    assert report["systems"]["evidence"]["reranker"] is None
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert rows[0]["units"][0].startswith("conv-1/1/")
    without_index = localmem(*arguments, "--system", "rsum")
    assert without_index.returncode == 2
    assert without_index.stderr.startswith("localmem: system 'rsum' has no index to measure")


def test_mistakes_are_one_line(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    path = write_records(tmp_path, LOCOMO)
    arguments = ["eval", "retrieval", "--dataset", f"locomo={path}"]
    dialogue = localmem(*arguments, "--set", "query=dialogue")
    assert dialogue.returncode == 2
    assert dialogue.stderr.strip() == (
        "localmem: questions of locomo have no dialogue before them; set query to question"
    )
    assert "set gold to sessions" in localmem(*arguments, "--memory-unit", "memory").stderr
    assert "rates.0" in localmem(*arguments, "--set", "rates=2").stderr
    path.write_text("{oops")
    invalid = localmem(*arguments)
    assert invalid.returncode == 2
    assert f"{path}, line 1" in invalid.stderr
    assert len(invalid.stderr.strip().splitlines()) == 1


def test_sessions_of_two_users_that_have_one_name_are_two(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    records = [
        record | {"user": user}
        for user in ("ana", "bo")
        for record in (
            {"id": "s1", "time": "2026-03-02T18:05Z", "turns": [{"role": "user", "text": f"I am {user}. I like tea."}]},
            {"question": "Who am I?", "answer": user, "evidence": ["s1.0"]},
        )
    ]
    path = write_records(tmp_path, records, lines=True)
    result = localmem("eval", "retrieval", "--dataset", f"jsonl={path}", "--retriever", "bm25", "--json")
    assert json.loads(result.stdout)["sessions"] == 2, result.stderr
