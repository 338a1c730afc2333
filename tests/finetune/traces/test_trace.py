"""Collecting and filtering traces: by stage, without duplicates, complete, grounded, and divided by conversation."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from finetune.traces.collector import Collector
from finetune.traces.division import divide
from finetune.traces.filtering import filter_traces, find_problem, groundedness, is_valid
from finetune.traces.trace import Teacher, Trace, TraceMetadata, make_trace, read_traces, stage_of
from localmem.errors import LLMUnavailable
from localmem.evaluation.answers import Work
from localmem.llm.base import ABILITIES
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.structured_output import answer_format, string
from localmem.prompts import load, render
from localmem.types import Choice, Completion, JsonSchema, Message, Prompt

WORK = Work("theanine", "made", "e1")
TEACHER = Teacher("teacher", "abc", "def")
SAY = JsonSchema(answer_format(say=string(9)).schema)


def prompt(name: str, text: str, **more: object) -> Prompt:
    return Prompt(name, (Message("system", "Do it."), Message("user", text)), **more)  # type: ignore[arg-type]


def trace(text: str, answer: str, **more: object) -> Trace:
    name = "theanine/refine"
    return make_trace(prompt(name, text, **more), Completion(answer), load(name).digest, TEACHER, WORK)


def metadata(episode: str, system: str = "theanine") -> TraceMetadata:
    return replace(trace("a", "b").metadata, work=Work(system, "made", episode))


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


def test_prompts_and_answers_are_recorded_by_stage_with_their_origin(tmp_path: Path) -> None:
    options = ("PASS", "APPEND")
    llm = ScriptedLLM(lambda prompt: "PASS" if prompt.name == "carecall/operation" else "Ana has a kite.")
    with Collector(tmp_path, TEACHER) as collector:
        collector.wrap(llm, WORK).generate(
            [
                render("carecall/operation", form=Choice(options), memory="Ana has {a} kite.", sentence="New: b"),
                prompt("theanine/refine", "A kite.", temperature=0.75, max_tokens=99),
            ]
        )
    (operation,) = read_traces(tmp_path / "operation.jsonl")
    assert operation.messages[-1] == Message("assistant", "PASS")
    assert operation.metadata.options == options
    assert operation.metadata.choices == {"PASS": 0.0}  # the other one is impossible
    assert operation.metadata.inputs == {"memory": "Ana has {a} kite.", "sentence": "New: b"}
    (refine,) = read_traces(tmp_path / "refine.jsonl")
    about = refine.metadata
    assert (about.work, about.teacher, about.temperature, about.max_tokens) == (WORK, "teacher", 0.75, 99)
    assert about.prompt_sha256 == load("theanine/refine").digest
    assert about.inputs is None


def test_the_teacher_is_asked_again_with_the_sampling_it_answered_with(tmp_path: Path) -> None:
    request = prompt("rsum/respond", "Hi.", temperature=0.6, seed=None, stop=("\n",), extra={"repetition_penalty": 1.1})
    request = replace(request, open_ended=True)
    with Collector(tmp_path, TEACHER) as collector:
        collector.wrap(ScriptedLLM(lambda _: "hello.", abilities=ABILITIES), WORK).generate([request])
    (reply,) = read_traces(tmp_path / "respond.jsonl")
    assert reply.prompt() == request


def test_traces_without_the_newer_fields_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "refine.jsonl"
    metadata = dict.fromkeys(("prompt_sha256", "teacher", "teacher_sha256", "template_sha256"), "")
    line = {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "metadata": {"prompt": "theanine/refine", "work": ["s", "d", "e"], **metadata},
        "id": "x",
    }
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    (old,) = read_traces(path)
    assert old.answer == "b"
    assert old.metadata.inputs is None
    assert old.prompt().extra == {}


def test_a_collection_can_be_repeated_after_the_teacher_failed(tmp_path: Path) -> None:
    def fail(prompt: Prompt) -> str:
        if "third" in prompt.messages[-1].content:
            raise LLMUnavailable("gone")
        return "Ana."

    prompts = [prompt("theanine/refine", text) for text in ("first", "second", "third")]
    with Collector(tmp_path, TEACHER) as collector:
        llm = collector.wrap(ScriptedLLM(fail), WORK)
        for succeeding in prompts[:2]:
            llm.generate([succeeding])
        with pytest.raises(LLMUnavailable):
            llm.generate([prompts[2]])
    with Collector(tmp_path, TEACHER) as again:
        again.wrap(ScriptedLLM(lambda _: "Ana."), WORK).generate(prompts)
    assert again.counts == {"refine": 1, "refine: duplicate": 2}
    texts = [recorded.context[-1].content for recorded in read_traces(tmp_path / "refine.jsonl")]
    assert texts == ["first", "second", "third"]


def test_only_the_selected_stages_are_recorded(tmp_path: Path) -> None:
    with Collector(tmp_path, TEACHER, ["link"]) as collector:
        collector.wrap(ScriptedLLM(lambda _: "Ana."), WORK).generate([prompt("theanine/refine", "x")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "more", "reason"),
    [
        ("Ana flew the kite in Porto.", {}, None),
        ("  ", {}, "empty"),
        ("Bruno bought eleven elephants.", {}, "not grounded in the prompt"),
        ('{"say": "kite"}', {"format": SAY}, None),
        ('{"says": "kite"}', {"format": SAY}, "wrong format"),
        ("kite", {"format": SAY}, "wrong format"),
        ("LATER", {"format": Choice(("PASS", "APPEND"))}, "wrong format"),
    ],
)
def test_why_a_trace_is_dropped(answer: str, more: dict[str, object], reason: str | None) -> None:
    assert find_problem(trace("Ana: I flew my kite in Porto.", answer, **more), "refine") == reason


def test_an_answer_that_was_cut_short_is_dropped() -> None:
    complete = trace("A kite.", "A kite")
    cut = replace(complete, metadata=replace(complete.metadata, finish="length"))
    assert find_problem(cut, "refine") == "cut short"


def test_groundedness_is_the_share_of_content_words_in_the_prompt() -> None:
    assert groundedness(trace("Ana flew a kite in 2024.", "kite 2024 Porto elephants")) == 0.5
    assert is_valid("anything", trace("a", "b"))


def test_a_conversation_is_in_one_part_and_parts_have_about_the_right_size() -> None:
    traces = [replace(trace(f"kite {n}", "kite"), metadata=metadata(f"e{n % 400}")) for n in range(1200)]
    parts = filter_traces(traces, "refine").parts
    episodes = {part: {member.metadata.work.episode for member in members} for part, members in parts.items()}
    assert episodes["train"].isdisjoint(episodes["test"] | episodes["valid"])
    assert episodes["valid"].isdisjoint(episodes["test"])
    assert 0.7 < len(parts["train"]) / 1200 < 0.9
    part_of = divide(traces)
    assert part_of(replace(traces[0], metadata=metadata("e0", "rsum"))) == part_of(traces[0])  # whatever system read it


def test_dropped_traces_are_counted_by_reason_even_if_none_remains() -> None:
    twice = [trace("kite", "kite"), trace("kite", "kite")]
    assert filter_traces(twice, "refine").dropped == {"duplicate": 1}
    result = filter_traces(twice, "refine", reject=lambda _: "rejected by the judge")
    assert result.dropped == {"rejected by the judge": 2}
    assert not any(result.parts.values())
