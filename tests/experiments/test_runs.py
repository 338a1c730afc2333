"""Evaluation runs from Python, with a scripted backbone: systems, baselines, joining, and what is refused."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from localmem import factory
from localmem.config import Settings, load_settings
from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Answer, Line, answers_of, read_answers
from localmem.experiments.run_sections import read_chapters, run_notes
from localmem.experiments.runs import ANSWERS, BASELINES, RUN, EvaluationRecipe, evaluate, system_settings
from localmem.llm.scripted import ScriptedLLM

NONE, RSUM = EvaluationRecipe(systems=("none",)), EvaluationRecipe(systems=("rsum",))


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = ScriptedLLM(lambda _: "Lisbon.", name="scripted")
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(llm, lambda: None))


@pytest.fixture
def settings() -> Settings:
    return load_settings(None, {"retrieval": {"retriever": "bm25"}})


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two users' conversations of one session, with a question each."""
    lines: list[dict[str, object]] = []
    for user, city in (("ann", "Lisbon"), ("bob", "Oslo")):
        turns = [{"role": "user", "text": f"I live in {city}."}, {"role": "assistant", "text": "How nice."}]
        lines.append({"user": user, "id": f"{user}-1", "time": "2026-03-01T09:00:00Z", "turns": turns})
        lines.append({"user": user, "question": "Where do I live?", "answer": city})
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def recalled_texts(lines: Sequence[Line]) -> dict[tuple[str, str], str]:
    return {(line.work.system, line.work.episode): line.recalled for line in lines if isinstance(line, Answer)}


def test_systems_and_baselines_answer_every_question(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    lines = evaluate(
        settings,
        NONE,
        datasets={"jsonl": dataset},
        out=tmp_path / "run",
        progress=lambda *step: steps.append(step),
    )
    answers = recalled_texts(lines)
    assert {system for system, _ in answers} == {"none", *BASELINES}
    assert "Oslo" in answers["full_history", "bob"]
    assert steps[-1] == ("answering", 6, 6)


def test_a_system_joins_a_run(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    out = tmp_path / "run"
    first = recalled_texts(evaluate(settings, NONE, datasets={"jsonl": dataset}, out=out))
    both = recalled_texts(evaluate(settings, RSUM, datasets={"jsonl": dataset}, out=out, resume=True))
    assert both.items() > first.items()
    assert {system for system, _ in both} - {system for system, _ in first} == {"rsum"}
    about = json.loads((out / RUN).read_text(encoding="utf-8"))
    assert list(about["systems"]) == ["none", *BASELINES, "rsum"]


def test_another_run_in_the_folder_is_refused(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    def run(resume: bool = True, own: Settings = settings, limit: int | None = None) -> list[Line]:
        recipe = NONE.model_copy(update={"limit": limit})
        return evaluate(own, recipe, datasets={"jsonl": dataset}, out=tmp_path / "run", resume=resume)

    before = run(resume=False)
    with pytest.raises(BadInput, match="continue it with --resume"):
        run(resume=False)
    with pytest.raises(BadInput, match=r"data.*probes was 2, now 1; limit was none, now 1"):
        run(limit=1)
    flat = load_settings(None, {"retrieval": {"retriever": "bm25", "index": "flat"}})
    with pytest.raises(BadInput, match=r"none\.retrieval\.index was auto, now flat"):
        run(own=flat)
    assert run() == before


def test_limits_without_questions_are_refused(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    lines = dataset.read_text(encoding="utf-8").splitlines()
    dataset.write_text("\n".join(line for line in lines if "question" not in line) + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match="no questions under these limits"):
        evaluate(settings, NONE, datasets={"jsonl": dataset}, out=tmp_path / "run")


def test_the_settings_of_a_variant_keep_everything_else() -> None:
    own = load_settings(None, {"system": "secom", "options": {"k": 3}, "chat": {"carry": 5}})
    variant = system_settings(own, "secom/session")
    assert variant.options == {"k": 0, "granularity": "session", "compress": "none"}
    assert variant.chat.carry == 5
    assert system_settings(own, "secom").options == {"k": 3}
    assert system_settings(own, "rsum").options == {}, "options belong to the system of the settings"
    with pytest.raises(BadSettings, match=r"no variant .huge.*; it has .*session"):
        system_settings(own, "secom/huge")
    with pytest.raises(BadSettings, match="unknown system 'sekom'"):
        system_settings(own, "sekom")


def test_a_recipe_configures_a_run(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    recipe = EvaluationRecipe(systems=("none",), limit=1, threads=1)
    lines = evaluate(settings, recipe, datasets={"jsonl": dataset}, out=tmp_path / "run")
    assert {episode for _, episode in recalled_texts(lines)} == {"ann"}


def test_the_report_names_what_was_run(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    out = tmp_path / "run"
    adapter = tmp_path / "mine"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    adapters = {"agent/respond": adapter}
    settings = settings.model_copy(update={"llm": settings.llm.model_copy(update={"adapters": adapters})})
    evaluate(settings, EvaluationRecipe(systems=("none",), limit=1), datasets={"jsonl": dataset}, out=out)
    (chapter,) = read_chapters([out], (), None)  # type: ignore[arg-type]  # no metric asks a model
    (section,) = chapter.sections
    assert section.notes[0] == "PARTIAL: only the first 1 questions of each data set"
    assert section.notes[1].startswith(f"backbone {settings.model}, weights ")
    assert any(note.startswith("adapter for agent/respond: mine ") for note in section.notes)
    assert [row[0] for row in section.tables[0].rows] == ["full_history", "none", "utterance_retrieval/bm25"]


def test_the_report_of_an_interrupted_run_says_so(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    out = tmp_path / "run"
    evaluate(settings, EvaluationRecipe(systems=("none",)), datasets={"jsonl": dataset}, out=out)
    lines = read_answers(out / ANSWERS)
    count = len(answers_of(lines))
    assert not any("UNFINISHED" in note for note in run_notes(out, lines, []))
    assert run_notes(out, lines[:-1], [])[0].startswith(f"UNFINISHED: {count - 1} of {count} answers; run its command")


def _calls(path: Path) -> Path:
    """CareCall's format: two calls, before the second of which people left one memory."""
    talk = [{"role": "user", "text": "My knee hurts."}, {"role": "system", "text": "Oh."}] * 2
    calls = [{"guid": f"c-S{n}", "dialogue": talk, "memory": memory} for n, memory in ((1, []), (2, ["A bad knee."]))]
    path.write_text(json.dumps([calls]), encoding="utf-8")
    return path


def test_the_gold_variant_has_the_memory_of_the_data_set(tmp_path: Path, settings: Settings, dataset: Path) -> None:
    recipe, out = EvaluationRecipe(systems=("carecall/gold",)), tmp_path / "gold"
    lines = evaluate(settings, recipe, datasets={"carecall": _calls(tmp_path / "calls.json")}, out=out, baselines=())
    assert not [line for line in lines if line.error]
    recalled = {line.session: line.recalled for line in lines if isinstance(line, Answer)}
    assert ["A bad knee." in text for text in recalled.values()] == [False, True]
    with pytest.raises(BadInput, match="jsonl has no gold memory; run carecall/gold over carecall or msc"):
        evaluate(settings, recipe, datasets={"jsonl": dataset}, out=tmp_path / "other", baselines=())
