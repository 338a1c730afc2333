"""`localmem eval run` and `report`, with a scripted backbone."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localmem import factory
from localmem.cli.eval import eval_
from localmem.evaluation.answers import Answer, read_answers
from localmem.llm.scripted import ScriptedLLM


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = ScriptedLLM(lambda _: "Lisbon.", name="scripted")
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(llm, lambda: None))


def write_log(folder: Path) -> Path:
    turns = [{"role": "user", "text": "I live in Lisbon."}, {"role": "assistant", "text": "How nice."}]
    lines: list[dict[str, object]] = [
        {"user": "ann", "id": "ann-1", "time": "2026-03-01T09:00:00Z", "turns": turns},
        {"user": "ann", "question": "Where do I live?", "answer": "Lisbon"},
    ]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(eval_, [*map(str, arguments)], catch_exceptions=False)


def test_a_run_and_its_report(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--dataset", f"jsonl={write_log(tmp_path)}", "--set", "threads=2", "--out", out]
    run = invoke("run", "--system", "none", "--system", "rsum", *options)
    assert f"localmem eval report {out}" in run.stderr
    answers = [line for line in read_answers(out / "answers.jsonl") if isinstance(line, Answer)]
    assert len(answers) == 4
    assert invoke("run", "--system", "none", "--resume", *options).exit_code == 0
    report = invoke("report", out)
    text = (out / "report.md").read_text(encoding="utf-8")
    assert report.stdout.strip() == text.strip()
    assert all(name in text for name in ("none", "rsum", "full_history", "utterance_retrieval/bm25"))
    assert "Where do I live?" in (out / "report.html").read_text(encoding="utf-8")
    sections = json.loads(invoke("report", out, "--out", tmp_path / "pages", "--json").stdout)
    assert sections[0]["answers"] == 4
    assert (tmp_path / "pages" / "report.html").exists()


def test_a_dataset_needs_a_name_and_a_file(tmp_path: Path) -> None:
    result = invoke("run", "--dataset", "locomo10.json", "--out", tmp_path)
    assert result.exit_code == 2
    assert "is not NAME=FILE" in result.stderr


def test_a_data_set_has_one_file(tmp_path: Path) -> None:
    result = invoke("run", "--dataset", "jsonl=a.jsonl", "--dataset", "jsonl=b.jsonl", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "--dataset jsonl occurs twice; give each name once, with one file" in result.stderr
