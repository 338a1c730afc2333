"""Made questions: what is dropped and why, and that the file is read as the data set jsonl."""

import json
from collections import Counter
from pathlib import Path

from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.episodes import Episode
from localmem.evaluation.question_maker import question_lines
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt
from tests.fakes import session

PAST = session("My boat is blue.", "Lovely!", "I moved to Porto with my brother Rui.", name="s1")
ANSWERS = [
    {"question": "Where did the user go with Rui?", "answer": "Porto", "message": 2},
    {"question": "Is the boat blue?", "answer": "blue", "message": 0},
    {"question": "What is the dog called?", "answer": "Waffle", "message": 0},
    {"question": "Which city did Ana's brother move to?", "answer": "to Porto", "message": 2},
]


def _script(prompt: Prompt) -> str:
    assert "[2] User: I moved to Porto" in prompt.inputs["dialogue"]
    return json.dumps({"questions": ANSWERS})


def test_sound_questions_are_read_as_a_data_set_with_their_evidence(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    episode = Episode("ana", "report", (PAST,), ())
    path = tmp_path / "made.jsonl"
    lines = question_lines(ScriptedLLM(_script), episode, 4, counts)
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (read,) = read_dataset("jsonl", path).episodes
    assert [turn.text for turn in read.sessions[0].turns] == [turn.text for turn in PAST.turns]
    (probe,) = read.probes
    assert (probe.question, probe.answer, probe.evidence) == ("Where did the user go with Rui?", "Porto", ("s1.2",))
    assert counts["questions made"] == 1
    assert sum(count for name, count in counts.items() if "dropped" in name) == 3
