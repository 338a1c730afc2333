"""The demo and the cost of the systems, with a scripted backbone and BM25."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem import factory
from localmem.cli.overview import demo
from localmem.config import load_settings
from localmem.experiments.demo import DemoReport, measure_systems, read_questions, run_demo
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt

BM25 = {"retrieval": {"retriever": "bm25"}}


def answer(prompt: Prompt) -> str:
    """Repeats the memory that the prompt shows, so that an answer is right if the memory was recalled."""
    return str(prompt.inputs.get("memory") or "A note.")


@pytest.fixture(autouse=True)
def scripted_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(answer), lambda: None))


def test_the_demo_compares_answers_with_and_without_memory() -> None:
    lines: list[str] = []
    report = run_demo(None, {**BM25, "system": "exchange_retrieval"}, lines.append)
    assert [pair.question for pair in report.questions] == [question.question for question in read_questions()]
    with_memory, without_memory = report.count_right()
    assert without_memory == 0
    assert with_memory >= 8
    assert len(report.ordinary) == 5
    assert "x84" in report.opening.with_memory.recalled
    assert report.opening.without_memory.recalled == ""
    assert any(line.startswith("reading 3 sessions of Marek") for line in lines)


def test_the_command_prints_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_RETRIEVAL__RETRIEVER", "bm25")
    document = CliRunner().invoke(demo, ["--json"], catch_exceptions=False).stdout
    report = DemoReport.model_validate(json.loads(document))
    text = CliRunner().invoke(demo, [], catch_exceptions=False).stdout
    assert f"right with memory:    {report.count_right()[0]} of 20" in text
    assert "right without memory: 0 of 20" in text
    assert "other requests refused: 0 of 5 with memory, 0 without" in text


def test_the_cost_of_a_system_is_measured_on_a_shipped_conversation(tmp_path: Path) -> None:
    settings = load_settings(None, {**BM25, "data": tmp_path})
    costs = measure_systems(settings, ["none", "exchange_retrieval", "rsum"])
    assert list(costs) == ["none", "exchange_retrieval", "rsum"]
    assert (costs["none"].calls, costs["none"].units) == (0, 0)
    assert (costs["exchange_retrieval"].calls, costs["exchange_retrieval"].units > 10) == (0, True)
    assert costs["rsum"].calls == costs["rsum"].sessions == 3
    assert not any(tmp_path.iterdir()), "the user's own data directory must stay untouched"
