"""Runs over scenarios with BM25 and a scripted backbone: figures, what is written, joining, and what is refused."""

import json
from pathlib import Path

import pytest

from localmem import factory
from localmem.config import Settings, load_settings
from localmem.errors import BadInput
from localmem.experiments.scenarios import PEOPLE, ScenarioRecipe, measure_scenarios
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.reporting.sections import Report
from tests.evaluation.fixtures import SCENARIO, write_scenarios

EXCHANGES = ScenarioRecipe(systems=("exchange_retrieval",))
LOOP = "The user sails, the user sails, the user sails, the user sails, the user sails."


@pytest.fixture
def settings() -> Settings:
    return load_settings(None, {"retrieval": {"retriever": "bm25"}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_scenarios(tmp_path, a_1={}, a_2={"language": "de"}, b_1={"probes": SCENARIO["probes"][:1]})


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[LLM]:
    """The backbones loaded so far."""
    loaded: list[LLM] = []

    def load(*_: object) -> factory.Backbone:
        loaded.append(
            ScriptedLLM(lambda prompt: LOOP if prompt.name == "rsum/update" else "It is red.", name="scripted")
        )
        return factory.Backbone(loaded[-1], lambda: None)

    monkeypatch.setattr(factory, "backbone", load)
    return loaded


def test_every_measure_has_its_questions_and_an_interval(
    settings: Settings, folder: Path, loads: list[LLM], starter_llm_dir: Path
) -> None:
    steps: list[tuple[str, int, int]] = []
    report = measure_scenarios(settings, EXCHANGES, folder, progress=lambda *step: steps.append(step))
    assert loads == []  # nothing was asked
    assert steps[-1] == ("measuring people", 3, 3)
    question, paraphrase = report.figures["runs"]
    assert (question["wording"], question["people"], paraphrase["questions"]) == ("question", 3, 3)
    recall = question["measures"]["recall@5"]
    assert (recall["mean"], recall["low"], recall["high"], recall["questions"]) == (
        1.0,
        pytest.approx(0.2126, abs=1e-4),
        1.0,
        5,
    )
    assert question["measures"]["came up"]["questions"] == question["measures"]["ordinary shown"]["questions"] - 1 == 2
    assert question["types"]["single-fact"]["measures"]["recall@5"]["questions"] == 2
    assert set(question["languages"]) == {"en", "de"}
    assert [table.caption for table in report.tables][-3:-1] == ["By type", "By language"]
    assert report.figures["tokens_of"] == "smollm2-135m-instruct"


def test_answers_are_scored_and_written_with_the_report(
    tmp_path: Path, settings: Settings, folder: Path, loads: list[LLM], starter_llm_dir: Path
) -> None:
    out = tmp_path / "run"
    recipe = EXCHANGES.model_copy(update={"answers": True, "asked_again": 1, "authors": ("b",)})
    report = measure_scenarios(settings, recipe, folder, out=out)
    assert len(loads) == 1
    measures = report.figures["runs"][0]["measures"]
    assert (measures["right"]["mean"], measures["false denial"]["mean"]) == (1.0, 0.0)
    saved = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert saved["runs"] == report.figures["runs"]
    assert (saved["authors"], bool(saved["versions"])) == (["b"], True)
    page = (out / "report.md").read_text(encoding="utf-8")
    assert "| exchange_retrieval | paraphrase |" in page
    (line,) = (out / PEOPLE).read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["rows"][0]["reply"] == "It is red."


def test_what_is_asked_of_the_backbone_and_what_does_not_become_memory_are_counted(
    settings: Settings, folder: Path, loads: list[LLM], starter_llm_dir: Path
) -> None:
    recipe = ScenarioRecipe(systems=("none", "rsum"), authors=("b",), answers=True)
    costs = measure_scenarios(settings, recipe, folder).tables[-1]
    none, rsum = (dict(zip(costs.head, row, strict=True)) for row in costs.rows)
    assert (none["calls a turn"], none["tokens a turn"], none["texts refused"]) == ("0.00", "0", "0")
    assert float(rsum["calls a turn"]) > 0
    assert int(rsum["texts refused"]) + int(rsum["fallbacks"]) > 0


def test_memory_that_is_cut_to_fit_is_a_fallback_and_no_unusable_answer(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = ScriptedLLM(lambda _: "x", context_length=300)
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(llm, lambda: None))
    (costs,) = measure_scenarios(settings, ScenarioRecipe(systems=("full_history",)), folder).tables[-1:]
    assert "fallbacks: memory that was cut to fit" in costs.caption
    assert int(dict(zip(costs.head, costs.rows[0], strict=True))["fallbacks"]) > 0


def test_a_run_continues_where_it_was_interrupted_and_systems_may_join(
    tmp_path: Path, settings: Settings, folder: Path, starter_llm_dir: Path
) -> None:
    out = tmp_path / "run"

    def run(recipe: ScenarioRecipe = EXCHANGES, resume: bool = True) -> Report:
        return measure_scenarios(settings, recipe, folder, out=out, resume=resume)

    first = run(resume=False)
    with pytest.raises(BadInput, match="continue it with --resume"):
        run(resume=False)
    with pytest.raises(BadInput, match="limit was none, now 1"):
        run(EXCHANGES.model_copy(update={"limit": 1}))
    lines = (out / PEOPLE).read_text(encoding="utf-8").splitlines(keepends=True)
    (out / PEOPLE).write_text("".join(lines[:2]) + lines[2][:20], encoding="utf-8")  # as a kill leaves it
    assert run().figures["runs"] == first.figures["runs"]
    both = run(EXCHANGES.model_copy(update={"systems": ("utterance_retrieval/bm25",)}))
    assert both.figures["runs"][:2] == first.figures["runs"]
    assert [each["system"] for each in both.figures["runs"][2:]] == ["utterance_retrieval/bm25"] * 2


def test_the_system_of_the_settings_is_measured_by_default(folder: Path, starter_llm_dir: Path) -> None:
    settings = load_settings(None, {"system": "none"})
    report = measure_scenarios(settings, ScenarioRecipe(limit=1), folder)
    assert {run["system"] for run in report.figures["runs"]} == {"none"}
    assert "recall@5" not in report.figures["runs"][0]["measures"]
