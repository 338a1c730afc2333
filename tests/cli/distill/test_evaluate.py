"""`localmem distill train` and `evaluate` on a chat model of a few thousand numbers: one table for all students."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from finetune.traces.trace import Teacher, Trace, trace_of, write_traces
from localmem import factory
from localmem.cli.distill import distill
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.llm.transformers import TransformersLLM
from localmem.types import Choice, Completion, Message, Prompt
from tests.finetune.small import small_chat

STARTER = "smollm2-135m-instruct"
COLOURS = ("red", "blue", "green")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_chat(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection: which colour was said, with gold, of which the teacher misses a third."""
    folder = tmp_path_factory.mktemp("lessons")
    traces = [told(thing, colour, gold="red") for thing in ("kite", "boat", "moon") for colour in COLOURS]
    for part in ("traces", "train", "valid", "test"):
        write_traces(folder / part / "choose.jsonl", traces)
    write_traces(folder / "train" / "choose.jsonl", traces * 5)  # an epoch is quicker than what is done between two
    write_traces(folder / "traces" / "choose.jsonl", [*traces, told("kite", "purple", gold="red")])
    return folder


def told(thing: str, colour: str, gold: str) -> Trace:
    asked = (Message("user", f"{thing} says {colour}"),)
    prompt = Prompt("choose", asked, max_tokens=4, format=Choice(COLOURS))
    trace = trace_of(prompt, Completion(colour), "", Teacher("teacher"), Work("s", "d", thing))
    return replace(trace, metadata=replace(trace.metadata, gold=gold))


@pytest.fixture(scope="module")
def run(base: Path, lessons: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "chooser"
    words = ["train", str(lessons), "--stage", "all", "--student", str(base), "--out", str(out)]
    call(*words, "--epochs", "8", "--rate", "2e-2", "--patience", "8", "--rank", "8", "--pack", "64")
    return out


def call(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(distill, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


@pytest.fixture
def served(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small model stands behind the starter's name."""

    def backbone(settings: Settings, _: object) -> factory.Backbone:
        llm = TransformersLLM(
            base, name="small", context_length=64, device="cpu", dtype="float32", adapters=settings.llm.adapters
        )
        return factory.Backbone(llm, lambda: None)

    monkeypatch.setattr(factory, "backbone", backbone)


@pytest.mark.usefixtures("served")
def test_all_students_stand_in_one_table_with_what_was_gained(
    base: Path, lessons: Path, run: Path, tmp_path: Path
) -> None:
    words = ["evaluate", str(lessons), "--stage", "choose", "--student", STARTER, "--adapter", str(run)]
    merged = tmp_path / "merged"
    CliRunner().invoke(
        distill, ["merge", str(run), "--student", str(base), "--out", str(merged)], catch_exceptions=False
    )
    report = call(*words, "--merged", str(merged), "--card", "--out", str(tmp_path / "figures"))
    teacher, before, after, alone = report["students"]
    assert (teacher["model"], teacher["by gold"], teacher["valid"]) == ("teacher", pytest.approx(1 / 3), 0.9)
    assert "score" not in teacher  # how near it is to itself is no measurement
    assert "tokens_per_second" not in teacher
    assert before["score"] < 1.0 == after["score"] == alone["score"]
    assert after["by gold"] == pytest.approx(1 / 3)
    assert after["valid"] == 1.0
    assert after["memory_mib"] > 50
    (delta,) = report["deltas"]
    assert delta["score"] == 0.0
    assert delta["p50_ms"] == pytest.approx(alone["p50_ms"] - after["p50_ms"])
    curve = report["curves"]["chooser"]
    assert curve[-1]["validation"] < curve[0]["validation"]
    assert (tmp_path / "figures" / "loss-chooser.png").stat().st_size > 1000
    card = (run / "README.md").read_text(encoding="utf-8")
    assert card.count("## Before and after") == 1
    assert "| base |" in card
    assert "Served with" in card
    call(*words, "--card")
    assert (run / "README.md").read_text(encoding="utf-8").count("## Before and after") == 1
    assert not list(run.glob("tokenizer*"))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--merged", "m"], "--merged is of one LoRA adapter, and 0 are given"),
        (["--end-to-end", "rsum"], "--end-to-end and --questions go together"),
        (["--end-to-end", "rsum", "--questions", "jsonl=x"], "--end-to-end needs --adapter"),
        (["--questions", "x"], "names no file"),
    ],
)
def test_what_does_not_go_together_is_told(words: list[str], problem: str) -> None:
    done = CliRunner().invoke(distill, ["evaluate", "x", "--stage", "y", "--student", STARTER, *words])
    assert done.exit_code == 2
    assert problem in done.output


def test_folders_that_hold_nothing_are_told(lessons: Path, base: Path, tmp_path: Path) -> None:
    words = ["evaluate", str(lessons), "--student", STARTER, "--stage"]
    with pytest.raises(BadInput, match="there is no student in"):
        call(*words, "choose", "--adapter", str(tmp_path))
    with pytest.raises(BadInput, match="cannot read"):
        call(*words, "nosuch")
    train = ["train", str(lessons), "--student", str(base), "--out", str(tmp_path / "run"), "--stage"]
    with pytest.raises(BadInput, match="holds no stage nosuch; it holds choose"):
        call(*train, "nosuch")
    with pytest.raises(BadInput, match="holds nothing to learn from"):
        call("train", str(tmp_path), "--stage", "x", "--student", str(base), "--out", str(tmp_path / "run"))
    with pytest.raises(BadInput, match="a T5 learns one stage, operation, not choose"):
        call("train", str(lessons), "--stage", "choose", "--student", "t5:tiny", "--out", str(tmp_path / "run"))
    done = CliRunner().invoke(distill, [*train, "choose", "--student", "t5:tiny", "--rank", "4"])
    assert "takes no adapter: leave --rank away" in done.output


def test_a_question_is_answered_with_and_without_the_student(
    served: None, lessons: Path, run: Path, tmp_path: Path
) -> None:
    log = [
        {
            "user": "u",
            "id": "s1",
            "time": "2026-03-01T09:00:00Z",
            "turns": [{"role": "user", "text": "kite says red"}, {"role": "assistant", "text": "red"}],
        },
        {"user": "u", "question": "kite says what", "answer": "red"},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in log), encoding="utf-8")
    words = ["evaluate", str(lessons), "--stage", "choose", "--student", STARTER, "--adapter", str(run)]
    words += ["--end-to-end", "none", "--questions", f"jsonl={path}", "--half", "all", "--out", str(tmp_path / "out")]
    report = call(*words)
    (quality,) = [table for table in report["tables"] if "quality" in table["caption"]]
    assert [row[0] for row in quality["rows"]] == ["none", "none + chooser"]
    assert (tmp_path / "out" / "end-to-end" / "chooser" / "answers.jsonl").stat().st_size > 100
