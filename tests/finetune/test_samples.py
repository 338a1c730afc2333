"""The shipped conversations for distillation: complete, and in every part of the division."""

from dataclasses import replace
from pathlib import Path

import finetune
from finetune.traces.filtering import part_of
from finetune.traces.trace import Teacher, make_trace
from localmem.evaluation.answers import Work
from localmem.evaluation.datasets import read_dataset
from localmem.types import Completion, Message, Prompt

SAMPLES = Path(finetune.__file__).parent / "data" / "conversations.jsonl"


def test_every_conversation_has_two_sessions_and_a_question() -> None:
    data = read_dataset("jsonl", SAMPLES)
    assert len(data.episodes) == 24
    assert {len(episode.sessions) for episode in data.episodes} == {2}
    assert {len(episode.probes) for episode in data.episodes} == {1}


def test_each_part_of_the_division_gets_some() -> None:
    prompt = Prompt("theanine/refine", (Message("user", "x"),))
    trace = make_trace(prompt, Completion("y"), "", Teacher("teacher"), Work("carecall", "jsonl", ""))
    data = read_dataset("jsonl", SAMPLES)
    works = [trace.metadata.work._replace(dataset=data.name, episode=episode.id) for episode in data.episodes]
    parts = [part_of(replace(trace, metadata=replace(trace.metadata, work=work))) for work in works]
    assert set(parts) == {"train", "valid", "test"}
    assert parts.count("train") > 12
