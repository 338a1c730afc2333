"""Trained parts as students: traces become what their trainers read, and their answers what a chat model would say."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from finetune.grading import grade
from finetune.small_models import asked, check_stage, kind_of, lesson, train
from finetune.traces.trace import Teacher, Trace, trace_of, write_traces
from finetune.trainers.training import Plan
from localmem.classification import OPERATIONS
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues
from localmem.prompts import load, render
from localmem.segmentation.segmenters import numbered_exchanges, segments_json
from localmem.types import Choice, Completion, Prompt
from tests.fakes import session
from tests.finetune.play import THINGS, VOCABULARY, WORDS
from tests.finetune.small import small_chat, small_encoder

PARTS = ("train", "valid", "test")


def kept(prompt: Prompt, told: str, episode: str) -> Trace:
    work = Work("carecall", "made", episode)
    return trace_of(prompt, Completion(told), load(prompt.name).digest, Teacher("teacher"), work)


def operations(folder: Path) -> list[Trace]:
    """The same traces for every part: whether it learns is tested, not whether it generalises."""
    traces = [
        kept(
            render(
                "carecall/operation",
                form=Choice(OPERATIONS),
                memory=f"Bo has a {thing} .",
                sentence=f"Bo {word} {thing} .",
            ),
            label,
            thing,
        )
        for thing in THINGS
        for label, word in WORDS.items()
    ]
    for part in PARTS:
        write_traces(folder / part / "operation.jsonl", traces)
    return traces


def segments(folder: Path) -> list[Trace]:
    """Dialogues of four exchanges, the topic changes in the middle."""
    traces = []
    for number, (one, other) in enumerate(pairwise(THINGS)):
        turns = [text for thing in (one, other) for text in (f"a {thing}", f"now {thing}") * 2]
        held = session(f"s{number}", *turns)
        prompt = render("secom/segment", guidance="", last=3, dialogue=numbered_exchanges(held.exchanges()))
        traces.append(kept(prompt, segments_json([range(2), range(2, 4)]), f"e{number}"))
    for part in PARTS:
        write_traces(folder / part / "segment.jsonl", traces)
    return traces


def test_an_encoder_learns_a_teacher_s_operations(tmp_path: Path) -> None:
    traces = operations(tmp_path)
    base = small_encoder(tmp_path / "base", VOCABULARY)
    plan = Plan(epochs=30, batch=8, learning_rate=5e-3, patience=30)
    learned = lesson(tmp_path, "operation")
    assert learned.passed_over == 0
    train("operation", base, learned, plan, tmp_path / "run", "made", resume=False, note=lambda _: None)
    found = grade(asked(tmp_path / "run", "operation", "cpu"), "part", "operation", traces, track=lambda _: None)
    assert found.row()["score"] == 1.0
    assert found.valid == 1.0


def test_a_teacher_need_not_say_everything(tmp_path: Path) -> None:
    traces = [trace for trace in operations(tmp_path) if trace.answer == "PASS"]
    for part in PARTS:
        write_traces(tmp_path / part / "operation.jsonl", traces)
    told: list[str] = []
    base = small_encoder(tmp_path / "base", VOCABULARY)
    learned = lesson(tmp_path, "operation")
    train("operation", base, learned, Plan(epochs=1), tmp_path / "run", "made", resume=False, note=told.append)
    assert "the teacher never says APPEND, DELETE, REPLACE" in told


def test_an_encoder_learns_a_teacher_s_segments(tmp_path: Path) -> None:
    traces = segments(tmp_path)
    base = small_encoder(tmp_path / "base", ["User", "Assistant", ":", *VOCABULARY])
    plan = Plan(epochs=1, batch=4, learning_rate=1e-3)
    learned = lesson(tmp_path, "segment")
    labelled = read_segmented_dialogues(learned.train)
    assert [len(one.segments) for one in labelled] == [2] * len(traces)
    first = labelled[0].session.exchanges()[0]
    assert first.user is not None
    assert "\n" in first.user.text  # both turns of an exchange are one utterance
    train("segment", base, learned, plan, tmp_path / "run", "made", resume=False, note=lambda _: None)
    found = grade(asked(tmp_path / "run", "segment", "cpu"), "part", "segment", traces, track=lambda _: None)
    assert found.valid == 1.0
    assert all("segments" in json.loads(one.answer) for one in found.said)


def test_what_is_asked_otherwise_is_left_out_and_answered_with_nothing(tmp_path: Path) -> None:
    traces = operations(tmp_path)
    other = replace(traces[0], metadata=replace(traces[0].metadata, prompt="operation"))
    write_traces(tmp_path / "train" / "operation.jsonl", [*traces, other])
    assert lesson(tmp_path, "operation").passed_over == 1
    write_traces(tmp_path / "train" / "operation.jsonl", [other])
    with pytest.raises(BadInput, match=r"none of 1 traces of .* is asked as carecall/operation asks"):
        lesson(tmp_path, "operation")


def test_what_kind_of_student_a_folder_holds(tmp_path: Path) -> None:
    assert kind_of(small_chat(tmp_path / "chat")) == "chat"
    assert kind_of(small_encoder(tmp_path / "encoder", VOCABULARY)) == "encoder"
    assert kind_of("t5:tiny") == "t5"


def test_parts_learn_one_stage_of_their_own() -> None:
    assert check_stage(["segment"], "encoder") == "segment"
    with pytest.raises(BadInput, match="a T5 learns one stage, operation, not segment"):
        check_stage(["segment"], "t5")
    with pytest.raises(BadInput, match="an encoder learns one stage, operation or segment, not link, operation"):
        check_stage(["link", "operation"], "encoder")
