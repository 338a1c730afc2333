"""Collecting and sifting traces: by stage, once each, whole, grounded, and divided by conversation."""

from dataclasses import replace
from pathlib import Path

import pytest

from finetune.traces.collect import Collector
from finetune.traces.filtering import grounded, part_of, sift, valid, wrong_with
from finetune.traces.trace import About, Teacher, Trace, read_traces, stage_of, trace_of
from localmem.errors import BadInput, LLMUnavailable
from localmem.evaluation.answers import Work
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.structured_output import answer_format, string
from localmem.prompts import load
from localmem.types import Choice, Completion, JsonSchema, Message, Prompt

WORK = Work("theanine", "made", "e1")
TEACHER = Teacher("teacher", "abc", "def")


def prompt(name: str, said: str, **more: object) -> Prompt:
    return Prompt(name, (Message("system", "Do it."), Message("user", said)), **more)  # type: ignore[arg-type]


def trace(said: str, told: str, **more: object) -> Trace:
    name = "theanine/refine"
    asked = prompt(name, said, **more)
    return trace_of(asked, Completion(told), load(name).digest, TEACHER, WORK)


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("theanine/link", "link"),
        ("theanine/explain", "link"),
        ("rsum/update", "summarize"),
        ("rsum/respond_2_examples", "respond"),
        ("carecall/operation", "operation"),
        ("creem/first", "blend"),
        ("judge/correct", "judge"),
        ("memorybank/portrait", "portrait"),
    ],
)
def test_a_prompt_belongs_to_a_stage(name: str, stage: str) -> None:
    assert stage_of(name) == stage


def test_what_is_asked_is_kept_by_stage_with_where_it_comes_from(tmp_path: Path) -> None:
    options = ("PASS", "APPEND")
    llm = ScriptedLLM(lambda asked: "PASS" if asked.name == "carecall/operation" else "Ana has a kite.")
    with Collector(tmp_path, TEACHER) as collector:
        wrapped = collector.around(llm, WORK)
        wrapped.generate(
            [
                prompt("carecall/operation", "Remembered: a", format=Choice(options)),
                prompt("theanine/refine", "A kite.", temperature=0.75, max_tokens=99),
            ]
        )
    (operation,) = read_traces(tmp_path / "operation.jsonl")
    assert operation.messages[-1] == Message("assistant", "PASS")
    assert operation.metadata.options == options
    assert operation.metadata.choices == {"PASS": 0.0}  # the other is impossible
    (refine,) = read_traces(tmp_path / "refine.jsonl")
    about = refine.metadata
    assert (about.work, about.teacher, about.temperature, about.max_tokens) == (WORK, "teacher", 0.75, 99)
    assert about.prompt_sha256 == load("theanine/refine").digest


def test_what_was_collected_is_not_collected_again_nor_lost_when_the_teacher_dies(tmp_path: Path) -> None:
    def dies(asked: Prompt) -> str:
        if "third" in asked.messages[-1].content:
            raise LLMUnavailable("gone")
        return "Ana."

    asked = [prompt("theanine/refine", said) for said in ("first", "second", "third")]
    with Collector(tmp_path, TEACHER) as collector:
        wrapped = collector.around(ScriptedLLM(dies), WORK)
        for one in asked[:2]:
            wrapped.generate([one])
        with pytest.raises(LLMUnavailable):
            wrapped.generate([asked[2]])
    with Collector(tmp_path, TEACHER) as again:
        again.around(ScriptedLLM(lambda _: "Ana."), WORK).generate(asked)
    assert again.counted == {"refine": 1, "refine: asked before": 2}
    assert [one.asked[-1].content for one in read_traces(tmp_path / "refine.jsonl")] == ["first", "second", "third"]


def test_only_the_stages_that_are_named_are_kept(tmp_path: Path) -> None:
    with Collector(tmp_path, TEACHER, ["link"]) as collector:
        collector.around(ScriptedLLM(lambda _: "Ana."), WORK).generate([prompt("theanine/refine", "x")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("told", "more", "reason"),
    [
        ("Ana flew the kite in Porto.", {}, None),
        ("  ", {}, "empty"),
        ("Bruno bought eleven elephants.", {}, "not grounded in what was asked"),
        ('{"say": "kite"}', {"format": JsonSchema(answer_format(say=string(9)).schema)}, None),
        ('{"says": "kite"}', {"format": JsonSchema(answer_format(say=string(9)).schema)}, "not of its format"),
        ("kite", {"format": JsonSchema(answer_format(say=string(9)).schema)}, "not of its format"),
        ("LATER", {"format": Choice(("PASS", "APPEND"))}, "not of its format"),
    ],
)
def test_why_a_trace_is_dropped(told: str, more: dict[str, object], reason: str | None) -> None:
    assert wrong_with(trace("Ana: I flew my kite in Porto.", told, **more), "refine") == reason


def test_an_answer_that_was_cut_short_is_dropped() -> None:
    held = trace("A kite.", "A kite")
    cut = replace(held, metadata=replace(held.metadata, finish="length"))
    assert wrong_with(cut, "refine") == "cut short"


def test_grounded_is_the_share_of_telling_words_that_were_asked_about() -> None:
    assert grounded(trace("Ana flew a kite in 2024.", "kite 2024 Porto elephants")) == 0.5
    assert valid("anything", trace("a", "b"))


def test_a_conversation_is_on_one_side_and_parts_are_about_as_they_should_be() -> None:
    traces = [replace(trace(f"kite {n}", "kite"), metadata=about(f"e{n % 400}")) for n in range(1200)]
    found = sift(traces, "refine")
    sides = {part: {one.metadata.work.episode for one in held} for part, held in found.parts.items()}
    assert sides["train"].isdisjoint(sides["test"] | sides["valid"])
    assert sides["valid"].isdisjoint(sides["test"])
    assert 0.7 < len(found.parts["train"]) / 1200 < 0.9
    assert part_of(replace(traces[0], metadata=about("e0", "rsum"))) == part_of(traces[0])  # whatever system read it


def test_the_same_question_is_learned_once_and_nothing_left_is_an_error() -> None:
    twice = [trace("kite", "kite"), trace("kite", "kite")]
    assert sift(twice, "refine").dropped == {"asked before": 1}
    with pytest.raises(BadInput, match="none of 1 traces"):
        sift([trace("kite", "elephants everywhere")], "refine")
    with pytest.raises(BadInput, match="turned down by the judge"):
        sift(twice, "refine", more=lambda _: "turned down by the judge")


def about(episode: str, system: str = "theanine") -> About:
    return replace(trace("a", "b").metadata, work=Work(system, "made", episode))
