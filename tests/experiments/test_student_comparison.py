"""Students of a chat model with a few thousand parameters: training, comparison in one table, and end to end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from finetune.traces.trace import Teacher, Trace, make_trace, write_traces
from localmem import factory
from localmem.cli.distill import distill
from localmem.config import Settings, load_settings
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.experiments.student_comparison import StudentComparisonRecipe, compare_end_to_end, compare_students
from localmem.llm.transformers import TransformersLLM
from localmem.types import Choice, Completion, Message, Prompt
from tests.finetune.small import small_chat

STARTER = "smollm2-135m-instruct"
COLOURS = ("red", "blue", "green")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_chat(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which colour was said, with gold answers of which the teacher misses two thirds."""
    folder = tmp_path_factory.mktemp("collection")
    traces = [colour_trace(thing, colour, gold="red") for thing in ("kite", "boat", "moon") for colour in COLOURS]
    for part in ("valid", "test"):
        write_traces(folder / part / "choose.jsonl", traces)
    write_traces(folder / "train" / "choose.jsonl", traces * 5)  # work between epochs takes longer than one
    write_traces(folder / "traces" / "choose.jsonl", [*traces, colour_trace("kite", "purple", gold="red")])
    return folder


def colour_trace(thing: str, colour: str, gold: str) -> Trace:
    messages = (Message("user", f"{thing} says {colour}"),)
    prompt = Prompt("choose", messages, max_tokens=4, format=Choice(COLOURS))
    trace = make_trace(prompt, Completion(colour), "0" * 64, Teacher("teacher"), Work("s", "d", thing))
    return replace(trace, metadata=replace(trace.metadata, gold=gold))


@pytest.fixture(scope="module")
def run(base: Path, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "chooser"
    words = ["train", str(collection), "--stage", "all", "--student", str(base), "--out", str(out)]
    fields = ("learning_rate=2e-2", "patience=8", "row_tokens=64")
    words += ["--epochs", "8", "--rank", "8", *(word for field in fields for word in ("--set", field)), "--json"]
    result = CliRunner().invoke(distill, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def settings(base: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose backbone is the small model."""

    def backbone(settings: Settings, _: object) -> factory.Backbone:
        llm = TransformersLLM(
            base, name="small", context_length=64, device="cpu", dtype="float32", adapters=settings.llm.adapters
        )
        return factory.Backbone(llm, lambda: None)

    monkeypatch.setattr(factory, "backbone", backbone)
    return load_settings(None, {"model": STARTER, "llm": {"device": "cpu", "dtype": "float32"}})


def test_all_students_are_in_one_table_with_the_differences(
    base: Path, collection: Path, run: Path, settings: Settings, tmp_path: Path
) -> None:
    merged = tmp_path / "merged"
    words = ["merge", str(run), "--student", str(base), "--out", str(merged)]
    assert CliRunner().invoke(distill, words, catch_exceptions=False).exit_code == 0
    recipe = StudentComparisonRecipe(merged=merged, card=True)
    out = tmp_path / "figures"
    figures: dict[str, Any] = compare_students(collection, ["choose"], settings, [run], recipe, out=out).figures
    teacher, before, after, alone = figures["students"]
    assert (teacher["model"], teacher["by gold"], teacher["valid"]) == ("teacher", pytest.approx(1 / 3), 0.9)
    assert "score" not in teacher  # its similarity to itself is not a measurement
    assert "tokens_per_second" not in teacher
    assert before["score"] < 1.0 == after["score"] == alone["score"]
    assert after["by gold"] == pytest.approx(1 / 3)
    assert after["valid"] == 1.0
    assert after["memory_mib"] > 50
    (delta,) = figures["deltas"]
    assert delta["score"] == 0.0
    assert delta["p50_ms"] == pytest.approx(alone["p50_ms"] - after["p50_ms"])
    losses = figures["curves"]["chooser"]
    assert losses[-1]["validation"] < losses[0]["validation"]
    assert (out / "loss-chooser.png").stat().st_size > 1000
    assert json.loads((out / "report.json").read_text(encoding="utf-8"))["stage"] == "choose"
    card = (run / "README.md").read_text(encoding="utf-8")
    assert card.count("## Before and after") == 1
    assert "| base |" in card
    assert "Served with" in card
    compare_students(collection, ["choose"], settings, [run], StudentComparisonRecipe(card=True, limit=3))
    assert (run / "README.md").read_text(encoding="utf-8").count("## Before and after") == 1
    assert not list(run.glob("tokenizer*"))


def test_a_judge_that_is_not_calibrated_is_not_used(
    collection: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    own = settings.model_copy(update={"data": tmp_path})
    recipe = StudentComparisonRecipe(judge_model=STARTER, limit=2)
    figures = compare_students(collection, ["choose"], own, (), recipe, notify=messages.append).figures
    assert not any("judge" in name for row in figures["students"] for name in row)
    assert any("is not used: not calibrated on this model" in message for message in messages)


def test_missing_students_and_traces_are_reported(collection: Path, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no student in"):
        compare_students(collection, ["choose"], settings, [tmp_path])
    with pytest.raises(BadInput, match=r"test has no stage 'chose' .did you mean 'choose'.*; use one of"):
        compare_students(collection, ["chose"], settings)
    with pytest.raises(BadInput, match="has no stage 'choose'; give the folder of a collection"):
        compare_students(tmp_path, ["choose"], settings)
    with pytest.raises(BadInput, match="exactly one LoRA adapter, and --adapter names 0"):
        compare_students(collection, ["choose"], settings, (), StudentComparisonRecipe(merged=tmp_path / "merged"))


def test_a_question_is_answered_with_and_without_the_student(
    run: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmem.prompts.list_prompts", lambda: ["choose"])  # the name in these tests' traces
    lines = [
        {
            "user": "u",
            "id": "s1",
            "time": "2026-03-01T09:00:00Z",
            "turns": [{"role": "user", "text": "kite says red"}, {"role": "assistant", "text": "red"}],
        },
        {"user": "u", "question": "kite says what", "answer": "red"},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = tmp_path / "end-to-end"
    report = compare_end_to_end(settings, [run], system="none", datasets={"jsonl": path}, out=out)
    (quality,) = [table for table in report.tables if "quality" in table.caption]
    assert [row[0] for row in quality.rows] == ["none", "none + chooser"]
    assert (out / "chooser" / "answers.jsonl").stat().st_size > 100


def test_training_reports_what_the_student_cannot_learn(base: Path, collection: Path, tmp_path: Path) -> None:
    words = ["train", str(collection), "--student", str(base), "--out", str(tmp_path / "run"), "--stage"]
    with pytest.raises(BadInput, match="has no stage nosuch; use one of choose"):
        CliRunner().invoke(distill, [*words, "nosuch"], catch_exceptions=False)
    empty = ["train", str(tmp_path), "--student", str(base), "--out", str(tmp_path / "run"), "--stage", "x"]
    with pytest.raises(BadInput, match="holds nothing to learn from"):
        CliRunner().invoke(distill, empty, catch_exceptions=False)
    t5 = [*words, "choose", "--student", "t5:tiny"]
    with pytest.raises(BadInput, match="a T5 learns one stage, operation, not choose"):
        CliRunner().invoke(distill, t5, catch_exceptions=False)
    with pytest.raises(BadInput, match="has no adapter; omit rank"):
        CliRunner().invoke(distill, [*t5, "--rank", "4"], catch_exceptions=False)
