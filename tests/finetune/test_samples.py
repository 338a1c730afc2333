"""The shipped conversations for distillation: complete, and in every part of the division."""

from pathlib import Path

import finetune
from finetune.traces.division import divide_users
from localmem.evaluation.datasets import read_dataset

SAMPLES = Path(finetune.__file__).parent / "data" / "conversations.jsonl"


def test_every_conversation_has_two_sessions_and_a_question() -> None:
    data = read_dataset("jsonl", SAMPLES)
    assert len(data.episodes) == 24
    assert {len(episode.sessions) for episode in data.episodes} == {2}
    assert {len(episode.probes) for episode in data.episodes} == {1}


def test_each_part_of_the_division_gets_some() -> None:
    data = read_dataset("jsonl", SAMPLES)
    parts = list(divide_users((data.name, episode.id) for episode in data.episodes).values())
    assert set(parts) == {"train", "valid", "test"}
    assert parts.count("train") > 12
