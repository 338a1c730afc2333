"""LongMemEval (Wu et al., ICLR 2025): questions about a user's chats with an assistant, in either of two forms.

Source: xiaowu0162/longmemeval on the Hugging Face hub, longmemeval_{s,m,oracle}, 500 questions in each (about 50
sessions per question in S, 500 in M, the evidence alone in oracle). Licence: MIT.

Published haystacks: each question brings its own sessions, of which `answer_session_ids` contain the answer in turns
marked `has_answer`; a question is an episode. Evidence only (JSONL with `evidence_sessions`): the evidence of all
questions of a half is pooled into one episode, so the other questions' evidence serves as distractors. That pool is
smaller than a haystack and different in kind, and the notes say so. Times belong to the sessions, not to turns.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import (
    Reading,
    Record,
    build_dataset,
    build_session,
    parse_time,
    read_episodes,
    read_records,
    size_note,
)
from localmem.evaluation.episodes import Dataset, Episode, Half, Probe, half_of
from localmem.types import Session

COUNTS = (500,)  # questions

_TIME = "%Y/%m/%d (%a) %H:%M"
_ABSTENTION = "_abs"  # ends the id of a question that the sessions do not answer
_POOL = "evidence only: the sessions of all questions of a half are one pool, without the published distractors"


class _Message(Record):
    role: str
    content: str
    has_answer: bool = False


class _DatedSession(Record):
    date: str
    turns: list[_Message]

    @property
    def id(self) -> str:
        """From the content, since these sessions have none; two questions may date one session differently."""
        content = json.dumps([(turn.role, turn.content) for turn in self.turns])
        return sha256(content.encode()).hexdigest()[:12]


class _Question(Record):
    question_id: str
    question_type: str
    question: str | None
    answer: str
    question_date: str | None = None

    @property
    def is_abstention(self) -> bool:
        return self.question_id.endswith(_ABSTENTION)

    @property
    def half(self) -> Half:
        """A question and its unanswerable variant are about the same sessions, so they share a half."""
        return half_of(self.question_id.removesuffix(_ABSTENTION))


class _Evidence(_Question):
    evidence_sessions: list[_DatedSession]


class _Haystack(_Question):
    answer_session_ids: list[str]
    haystack_dates: list[str]
    haystack_session_ids: list[str]
    haystack_sessions: list[list[_Message]]


class _EitherForm(Record):
    evidence_sessions: object = None
    haystack_sessions: object = None


def read(path: Path) -> Dataset:
    """Both forms; the first record decides which it is. Raises BadInput with file and place."""
    place, first = next(read_records(path, _EitherForm))
    if first.haystack_sessions is not None:
        return read_episodes("longmemeval", path, _Haystack, _haystack, questions=COUNTS)
    if first.evidence_sessions is None:
        raise BadInput(f"{place}: neither haystack_sessions nor evidence_sessions; use LongMemEval's own file")
    return _read_pool(path)


def draw_haystacks(dataset: Dataset, size: int) -> Dataset:
    """Each question of a pool as an episode of its own: its evidence among `size` sessions of its half in all.

    The other sessions are drawn by a hash of both ids, so that a question always gets the same haystack. LongMemEval_S
    has about 50 sessions per question. Raises BadInput for published haystacks, which already have a size.
    """
    if _POOL not in dataset.notes:
        raise BadInput("only evidence-only data can be drawn from a pool; omit pool for published haystacks")
    episodes = tuple(
        Episode(probe.id, pool.half, _draw_sessions(pool, probe, size), (probe,))
        for pool in dataset.episodes
        for probe in pool.probes
    )
    note = f"each question is searched for among {size} sessions drawn from the pool of its half"
    return replace(dataset, episodes=episodes, notes=(*dataset.notes, note))


def merge_pools(dataset: Dataset) -> Dataset:
    """Both pools as one, which is harder to search than either; published haystacks stay as they are."""
    if _POOL not in dataset.notes:
        return dataset
    sessions = {session.id: session for pool in dataset.episodes for session in pool.sessions}
    probes = tuple(probe for pool in dataset.episodes for probe in pool.probes)
    episode = Episode("all", dataset.episodes[0].half, _sort_sessions(sessions.values()), probes)
    return replace(dataset, episodes=(episode,), notes=(*dataset.notes, "both halves are searched as one pool"))


def _draw_sessions(pool: Episode, probe: Probe, size: int) -> tuple[Session, ...]:
    others = [session for session in pool.sessions if session.id not in probe.sessions]
    others.sort(key=lambda session: sha256(f"{probe.id}/{session.id}".encode()).digest())
    ids = {*probe.sessions, *(session.id for session in others[: max(0, size - len(probe.sessions))])}
    return tuple(session for session in pool.sessions if session.id in ids)


def _haystack(place: str, record: _Haystack, reading: Reading) -> Episode:
    ids, dates, dialogues = record.haystack_session_ids, record.haystack_dates, record.haystack_sessions
    counts = [len(ids), len(dates), len(dialogues)]
    if len(set(counts)) > 1:
        raise BadInput(f"{place}: the haystack has different numbers of ids, dates and sessions ({counts}); correct it")
    gold = set() if record.is_abstention else set(record.answer_session_ids)
    sessions: dict[str, Session] = {}
    evidence: list[str] = []
    for key, date, turns in zip(ids, dates, dialogues, strict=True):
        name = f"{record.question_id}/{key}"
        if name in sessions:
            reading.oddities["sessions that occur twice in one haystack, read once"] += 1
            continue
        sessions[name] = _session(name, place, date, turns)
        marked = (f"{name}.{number}" for number, turn in enumerate(turns) if turn.has_answer)
        evidence += marked if key in gold else ()
    reading.oddities["questions without evidence turns"] += not evidence
    gold_ids = tuple(name for name in sessions if name.partition("/")[2] in gold)
    probe = _probe(place, record, tuple(evidence), gold_ids)
    return Episode(record.question_id, record.half, _sort_sessions(sessions.values()), (probe,))


def _read_pool(path: Path) -> Dataset:
    reading = Reading()
    oddities = reading.oddities
    pools: dict[Half, dict[str, Session]] = {"choose": {}, "report": {}}
    probes: dict[Half, list[Probe]] = {"choose": [], "report": []}
    for place, record in read_records(path, _Evidence, reading):
        if record.question is None:
            oddities["questions without a text in the file, left out"] += 1
            continue
        pool = pools[record.half]
        own = [_session(item.id, place, item.date, item.turns) for item in record.evidence_sessions]
        shared = sum(session.id in pool for session in own)
        oddities["sessions that are evidence of several questions, pooled once"] += shared
        pools[record.half] = {session.id: session for session in own} | pool
        gold = [] if record.is_abstention else own
        oddities["questions without evidence"] += not gold
        turns = tuple(turn.id for session in gold for turn in session.turns)
        ids = tuple(dict.fromkeys(session.id for session in gold))
        probes[record.half].append(_probe(place, record, turns, ids))
    reading.finish()
    episodes = [Episode(half, half, _sort_sessions(pool.values()), tuple(probes[half])) for half, pool in pools.items()]
    note = size_note("questions", sum(map(len, probes.values())), COUNTS)
    return build_dataset("longmemeval", path, episodes, oddities, note, first=_POOL)


def _session(name: str, place: str, date: str, messages: Iterable[_Message]) -> Session:
    utterances = (("Assistant" if item.role == "assistant" else "User", item.content) for item in messages)
    return build_session(name, utterances, "User", parse_time(date, _TIME, place))


def _probe(place: str, record: _Question, evidence: tuple[str, ...], sessions: tuple[str, ...]) -> Probe:
    return Probe(
        id=record.question_id,
        question=record.question or "",
        answer=record.answer,
        type="abstention" if record.is_abstention else record.question_type,
        time=parse_time(record.question_date, _TIME, place) if record.question_date else None,
        evidence=evidence,
        sessions=sessions,
    )


def _sort_sessions(sessions: Iterable[Session]) -> tuple[Session, ...]:
    return tuple(sorted((session for session in sessions if session.turns), key=lambda session: session.turns[0].time))
