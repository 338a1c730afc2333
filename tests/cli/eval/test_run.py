"""`localmem eval run` and `report`, with a scripted backbone: a run, a system that joins it, and what is refused."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem import factory
from localmem.cli.eval import eval_
from localmem.errors import BadInput
from localmem.evaluation.answers import Answer, lines_in
from localmem.llm.scripted import ScriptedLLM


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = ScriptedLLM(lambda _: "Lisbon.", name="scripted")
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(llm, lambda: None))


def log(folder: Path) -> Path:
    """Two users' conversations of one session, with a question each."""
    lines: list[dict[str, object]] = []
    for user, city in (("ann", "Lisbon"), ("bob", "Oslo")):
        turns = [{"role": "user", "text": f"I live in {city}."}, {"role": "assistant", "text": "How nice."}]
        lines.append({"user": user, "id": f"{user}-1", "time": "2026-03-01T09:00:00Z", "turns": turns})
        lines.append({"user": user, "question": "Where do I live?", "answer": city})
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def call(*words: object) -> str:
    return CliRunner().invoke(eval_, [*map(str, words)], catch_exceptions=False).stdout


def ran(out: Path, data: Path, systems: str, *more: str) -> dict[tuple[str, str], str]:
    call("run", "--systems", systems, "--data", f"jsonl={data}", "--out", out, *more)
    found = [line for line in lines_in(out / "answers.jsonl") if isinstance(line, Answer)]
    answers = {(answer.work.system, answer.work.episode): answer.recalled for answer in found}
    assert len(answers) == len(found)
    return answers


def test_a_system_joins_a_run_and_the_report_tells_of_both(tmp_path: Path) -> None:
    data, out = log(tmp_path), tmp_path / "run"
    first = ran(out, data, "none")
    assert {system for system, _ in first} == {"none", "full_history", "utterance_retrieval/bm25"}
    assert "Oslo" in first["full_history", "bob"]
    joined = ran(out, data, "rsum", "--resume")
    assert joined.items() > first.items()
    assert {system for system, _ in joined} - {system for system, _ in first} == {"rsum"}
    about = json.loads((out / "run.json").read_text(encoding="utf-8"))
    told = about["systems"]
    assert list(told) == ["none", "full_history", "utterance_retrieval/bm25", "rsum"]
    call("report", out)
    text = (out / "report.md").read_text(encoding="utf-8")
    assert all(name in text for name in told)
    assert f"agent/respond answered through {about['adapters']['agent/respond']}" in text
    assert "Where do I live?" in (out / "report.html").read_text(encoding="utf-8")


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    data, out = log(tmp_path), tmp_path / "run"
    before = ran(out, data, "none")
    with pytest.raises(BadInput, match="go on with --resume"):
        ran(out, data, "none")
    with pytest.raises(BadInput, match="another data, limit"):
        ran(out, data, "none", "--resume", "--limit", "1")
    other = tmp_path / "other.yaml"
    other.write_text("retrieval: {index: flat}\n", encoding="utf-8")
    with pytest.raises(BadInput, match="another system none"):
        ran(out, data, "none", "--resume", "--config", str(other))
    assert ran(out, data, "none", "--resume") == before
