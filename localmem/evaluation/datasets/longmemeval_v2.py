"""LongMemEval-V2 (Wu et al., 2026): questions about the experience of a web agent, from hundreds of its trajectories.

Source: xiaowu0162/longmemeval-v2 on the Hugging Face hub. The path is haystacks/lme_v2_small.json or lme_v2_medium.json
(question id -> trajectory ids), with questions.jsonl and trajectories.jsonl in the folder above. Licence: Apache-2.0.

A question is an episode and each of its trajectories a session: the goal and the text of each page are the user's, the
agent's thoughts and actions the assistant's. Screenshots are not read. There are no times: sessions are a day apart
from 1970 on, in the order of the haystack. Types that end in "-abs" ask for what the pages do not support.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import UNDATED, Reading, Record, build_session, read_records
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.files import read_json
from localmem.types import Session

COUNTS = (451,)  # questions

_AGENT, _PAGE = "Agent", "Page"


class _Question(Record):
    id: str
    question: str
    question_type: str
    answer: str | list[str]
    image: str | None = None

    @property
    def text(self) -> str:
        """The gold answer; parts of one are joined."""
        return self.answer if isinstance(self.answer, str) else ", ".join(self.answer)


class _State(Record):
    url: str = ""
    action: str | None = None
    thought: str | None = None
    accessibility_tree: str = ""


class _Trajectory(Record):
    id: str
    goal: str | list[str]
    states: list[_State] = Field(min_length=1)
    outcome: str | None = None


def read(path: Path) -> Dataset:
    """One episode per question of the haystack file. Raises BadInput with file and place."""
    haystacks = read_json(path, dict[str, list[str]], readers.CURE)
    folder, reading = path.parent.parent, Reading()
    sessions: dict[str, Session] = {}
    for _, trajectory in read_records(folder / "trajectories.jsonl", _Trajectory, reading):
        sessions[trajectory.id] = build_session(trajectory.id, _utterances(trajectory), _PAGE, UNDATED)
    episodes: list[Episode] = []
    for place, question in read_records(folder / "questions.jsonl", _Question, reading):
        if question.id in haystacks:
            with reading.skipping():
                episodes.append(_episode(place, question, haystacks[question.id], sessions))
                reading.oddities["questions with an image, which is not read"] += question.image is not None
    reading.finish()
    note = readers.size_note("questions", len(episodes), COUNTS)
    return readers.build_dataset("longmemeval_v2", path, episodes, reading.oddities, note)


def _episode(place: str, question: _Question, ids: list[str], sessions: dict[str, Session]) -> Episode:
    if missing := [name for name in ids if name not in sessions]:
        raise BadInput(f"{place}: there is no trajectory {missing[0]!r}; use LongMemEval-V2's own files")
    haystack = tuple(_with_date(sessions[name], day) for day, name in enumerate(ids))
    probe = Probe(question.id, question.question, question.text, question.question_type)
    return Episode(question.id, half_of(question.id), haystack, (probe,))


def _with_date(session: Session, day: int) -> Session:
    wait = timedelta(days=day)
    return replace(session, turns=tuple(replace(turn, time=turn.time + wait) for turn in session.turns))


def _utterances(trajectory: _Trajectory) -> Iterator[tuple[str, str]]:
    goal = trajectory.goal if isinstance(trajectory.goal, str) else " ".join(trajectory.goal)
    yield _PAGE, f"Goal: {goal}"
    for state in trajectory.states:
        yield _PAGE, f"{state.url}\n{state.accessibility_tree}".strip()
        if step := "\n".join(filter(None, [state.thought, state.action])):
            yield _AGENT, step
    if trajectory.outcome:
        yield _PAGE, f"Outcome: {trajectory.outcome}"
