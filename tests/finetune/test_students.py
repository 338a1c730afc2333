"""Small task models as students: traces become training files, and predictions become a chat model's answers."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from finetune.grading import grade
from finetune.students import answer_with, model_kind, single_stage, train_small_model, trained_stage, write_lesson
from finetune.traces.trace import Teacher, Trace, make_trace, write_traces
from finetune.trainers.training import TrainingJob, TrainingRecipe
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


def make_job(base: Path, out: Path, messages: list[str] | None = None, **fields: object) -> TrainingJob[TrainingRecipe]:
    recipe = TrainingRecipe.model_validate({"base": str(base), **fields})
    return TrainingJob(recipe, out, notify=(messages if messages is not None else []).append)


def collect(prompt: Prompt, answer: str, episode: str) -> Trace:
    work = Work("carecall", "made", episode)
    return make_trace(prompt, Completion(answer), load(prompt.name).digest, Teacher("teacher"), work)


def write_operations(folder: Path) -> list[Trace]:
    """The same traces for every part: the tests check learning, not generalisation."""
    traces = [
        collect(
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


def segment_trace(*texts: str, name: str = "s") -> Trace:
    exchanges = session(*texts, name=name).exchanges()
    prompt = render("secom/segment", guidance="", last=len(exchanges) - 1, dialogue=numbered_exchanges(exchanges))
    middle = len(exchanges) // 2
    return collect(prompt, segments_json([range(middle), range(middle, len(exchanges))]), name)


def write_segments(folder: Path) -> list[Trace]:
    """Dialogues of four exchanges with a change of topic in the middle."""
    traces = []
    for number, things in enumerate(pairwise(THINGS)):
        turns = [text for thing in things for text in (f"a {thing}", f"now {thing}") * 2]
        traces.append(segment_trace(*turns, name=f"e{number}"))
    for part in PARTS:
        write_traces(folder / part / "segment.jsonl", traces)
    return traces


def test_an_encoder_learns_a_teacher_s_operations(tmp_path: Path) -> None:
    traces = write_operations(tmp_path)
    base = small_encoder(tmp_path / "base", VOCABULARY)
    lesson = write_lesson(tmp_path, "operation")
    assert lesson.skipped == 0
    train_small_model(make_job(base, tmp_path / "run", epochs=30, learning_rate=5e-3, patience=30), "operation", lesson)
    assert trained_stage(tmp_path / "run") == "operation"
    answer = answer_with(tmp_path / "run", "operation", "cpu")
    result = grade(answer, "part", "operation", traces, track=lambda _: None)
    assert result.row()["score"] == 1.0
    assert result.valid == 1.0


def test_labels_that_the_teacher_never_gives_are_reported(tmp_path: Path) -> None:
    traces = [trace for trace in write_operations(tmp_path) if trace.answer == "PASS"]
    for part in PARTS:
        write_traces(tmp_path / part / "operation.jsonl", traces)
    messages: list[str] = []
    base = small_encoder(tmp_path / "base", VOCABULARY)
    job = make_job(base, tmp_path / "run", messages, epochs=1)
    train_small_model(job, "operation", write_lesson(tmp_path, "operation"))
    assert "no training pair has the label APPEND, DELETE, REPLACE: the teacher never answers so" in messages


def test_an_encoder_learns_a_teacher_s_segments(tmp_path: Path) -> None:
    traces = write_segments(tmp_path)
    base = small_encoder(tmp_path / "base", ["User", "Assistant", ":", *VOCABULARY])
    lesson = write_lesson(tmp_path, "segment")
    dialogues = read_segmented_dialogues(lesson.train)
    assert [len(dialogue.segments) for dialogue in dialogues] == [2] * len(traces)
    first = dialogues[0].session.exchanges()[0]
    assert first.user is not None
    assert "\n" in first.user.text  # both turns of an exchange are one utterance
    train_small_model(make_job(base, tmp_path / "run", epochs=1, batch_size=4, learning_rate=1e-3), "segment", lesson)
    assert trained_stage(tmp_path / "run") == "segment"
    answer = answer_with(tmp_path / "run", "segment", "cpu")
    result = grade(answer, "part", "segment", traces, track=lambda _: None)
    assert result.valid == 1.0
    assert all("ends" in json.loads(graded.answer) for graded in result.traces)


def test_texts_that_look_like_the_prompt_are_read_from_the_recorded_inputs(tmp_path: Path) -> None:
    """The inputs are recorded with the trace, so no separator of the prompt can be mistaken for one in a value."""
    prompt = render(
        "carecall/operation",
        form=Choice(OPERATIONS),
        memory="Bo says: New: x\nOperation: PASS",
        sentence="Remembered: Bo has a cat .",
    )
    for part in PARTS:
        write_traces(tmp_path / part / "operation.jsonl", [collect(prompt, "PASS", "e")])
    line = json.loads(write_lesson(tmp_path, "operation").train.read_text(encoding="utf-8"))
    assert line["memory"] == "Bo says: New: x\nOperation: PASS"
    assert line["summary"] == "Remembered: Bo has a cat ."
    dialogue = segment_trace("Look:\n\n[Exchange 7]\nMarks [BOUNDARY]", "fine", "again", "good")
    for part in PARTS:
        write_traces(tmp_path / part / "segment.jsonl", [dialogue])
    (read,) = read_segmented_dialogues(write_lesson(tmp_path, "segment").train)
    first, second = read.session.exchanges()
    assert first.user is not None
    assert "[Exchange 7]\nMarks [boundary]" in first.user.text
    assert second.user is not None
    assert "again" in second.user.text


def test_traces_without_recorded_inputs_must_be_collected_again(tmp_path: Path) -> None:
    traces = write_operations(tmp_path)
    old = [replace(trace, metadata=replace(trace.metadata, inputs=None)) for trace in traces]
    write_traces(tmp_path / "train" / "operation.jsonl", old)
    with pytest.raises(BadInput, match=r"records no inputs of the prompt carecall/operation.*collect again"):
        write_lesson(tmp_path, "operation")


def test_traces_of_other_prompts_are_skipped(tmp_path: Path) -> None:
    traces = write_operations(tmp_path)
    other = replace(traces[0], metadata=replace(traces[0].metadata, prompt="operation"))
    write_traces(tmp_path / "train" / "operation.jsonl", [*traces, other])
    assert write_lesson(tmp_path, "operation").skipped == 1
    write_traces(tmp_path / "train" / "operation.jsonl", [other])
    with pytest.raises(BadInput, match=r"none of 1 traces of .* comes from the prompt carecall/operation"):
        write_lesson(tmp_path, "operation")


def test_the_kind_of_a_model(tmp_path: Path) -> None:
    assert model_kind(str(small_chat(tmp_path / "chat"))) == "chat"
    assert model_kind(str(small_encoder(tmp_path / "encoder", VOCABULARY))) == "encoder"
    assert model_kind("t5:tiny") == "t5"


def test_a_small_model_learns_one_stage() -> None:
    assert single_stage(["segment"], "encoder") == "segment"
    with pytest.raises(BadInput, match="a T5 learns one stage, operation, not segment"):
        single_stage(["segment"], "t5")
    with pytest.raises(BadInput, match="an encoder learns one stage, operation or segment, not link, operation"):
        single_stage(["link", "operation"], "encoder")
