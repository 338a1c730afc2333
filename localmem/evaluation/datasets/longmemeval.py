"""LongMemEval (Wu et al., ICLR 2025): questions about a user's chats with an assistant, in either of two forms.

Source: xiaowu0162/longmemeval on the Hugging Face hub, longmemeval_{s,m,oracle}, 500 questions in each (about 50
sessions a question in S, 500 in M, the evidence alone in oracle). Licence: MIT.

The published haystacks: each question brings its own sessions, of which `answer_session_ids` hold the answer in turns
marked `has_answer`; a question is an episode. Evidence only (JSONL with `evidence_sessions`): the evidence of all
questions of a half is pooled into one episode, and each question finds the others' evidence as distractors. That pool
is smaller than a haystack and of another kind, and the notes say so. Times come with the sessions, not with turns.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from localmem.errors import BadInput
from localmem.evaluation.datasets.files import Record, file_sha256, moment, read_records
from localmem.evaluation.episodes import Dataset, Episode, Half, Probe, counted, differing, half_of
from localmem.types import Role, Session, Turn

COUNTS = (500,)  # questions

_TIME = "%Y/%m/%d (%a) %H:%M"
_ABSTAIN = "_abs"  # ends the id of a question that the sessions do not answer
_POOLED = "evidence only: the sessions of all questions of a half are one pool, without the published distractors"


class _Said(Record):
    role: str
    content: str
    has_answer: bool = False


class _Dated(Record):
    date: str
    turns: list[_Said]


class _Question(Record):
    question_id: str
    question_type: str
    question: str | None
    answer: str
    question_date: str | None = None


class _Evidence(_Question):
    evidence_sessions: list[_Dated]


class _Haystack(_Question):
    answer_session_ids: list[str]
    haystack_dates: list[str]
    haystack_session_ids: list[str]
    haystack_sessions: list[list[_Said]]


class _Either(Record):
    evidence_sessions: object = None
    haystack_sessions: object = None


def read(path: Path) -> Dataset:
    """Both forms, told apart by the first record. Raises BadInput with file and place."""
    place, first = next(read_records(path, _Either))
    if first.haystack_sessions is not None:
        return _haystacks(path)
    if first.evidence_sessions is None:
        raise BadInput(f"{place}: it has neither haystack_sessions nor evidence_sessions; give LongMemEval's own file")
    return _pooled(path)


def among(data: Dataset, size: int) -> Dataset:
    """Pooled questions, each an episode of its own: its evidence among so many sessions of its half in all.

    The other sessions are drawn by a hash of both ids, so that a question's haystack is always the same. LongMemEval_S
    has about 50 sessions a question. Raises BadInput for the published haystacks, which have a size already.
    """
    if _POOLED not in data.notes:
        raise BadInput("a pool can be drawn from evidence-only data alone; leave --pool away for published haystacks")
    episodes = tuple(
        Episode(probe.id, pool.half, _drawn(pool, probe, size), (probe,))
        for pool in data.episodes
        for probe in pool.probes
    )
    note = f"each question is searched for among {size} sessions drawn from the pool of its half"
    return replace(data, episodes=episodes, notes=(*data.notes, note))


def _drawn(pool: Episode, probe: Probe, size: int) -> tuple[Session, ...]:
    others = [session for session in pool.sessions if session.id not in probe.sessions]
    others.sort(key=lambda session: sha256(f"{probe.id}/{session.id}".encode()).file_sha256())
    kept = {*probe.sessions, *(session.id for session in others[: max(0, size - len(probe.sessions))])}
    return tuple(session for session in pool.sessions if session.id in kept)


def _haystacks(path: Path) -> Dataset:
    oddities: Counter[str] = Counter()
    episodes = [_haystack(place, item, oddities) for place, item in read_records(path, _Haystack)]
    notes = (*counted(oddities), *differing("questions", len(episodes), COUNTS))
    return Dataset("longmemeval", file_sha256(path), tuple(episodes), notes)


def _haystack(place: str, item: _Haystack, oddities: Counter[str]) -> Episode:
    counts = [len(item.haystack_session_ids), len(item.haystack_dates), len(item.haystack_sessions)]
    if len(set(counts)) > 1:
        raise BadInput(f"{place}: ids, dates and sessions of the haystack are not as many ({counts}); mend the file")
    gold = set(item.answer_session_ids)
    sessions: dict[str, Session] = {}
    evidence: list[str] = []
    for key, date, turns in zip(item.haystack_session_ids, item.haystack_dates, item.haystack_sessions, strict=True):
        name = f"{item.question_id}/{key}"
        if name in sessions:
            oddities["sessions that stand twice in one haystack, read once"] += 1
            continue
        sessions[name] = _session(name, moment(date, _TIME, place), turns)
        marked = (f"{name}.{number}" for number, turn in enumerate(turns) if turn.has_answer)
        evidence += marked if key in gold else ()
    if _abstains(item):
        evidence, gold = [], set()
    oddities["questions without evidence turns"] += not evidence
    named = tuple(name for name in sessions if name.partition("/")[2] in gold)
    probe = _probe(place, item, tuple(evidence), named)
    return Episode(item.question_id, _half(item.question_id), _in_order(sessions.values()), (probe,))


def _pooled(path: Path) -> Dataset:
    oddities: Counter[str] = Counter()
    pools: dict[Half, dict[str, Session]] = {"choose": {}, "report": {}}
    probes: dict[Half, list[Probe]] = {"choose": [], "report": []}
    for place, item in read_records(path, _Evidence):
        if item.question is None:
            oddities["questions that the file does not word, left out"] += 1
            continue
        half = _half(item.question_id)
        own = [_session(_name(one), moment(one.date, _TIME, place), one.turns) for one in item.evidence_sessions]
        oddities["sessions that are evidence of several questions, pooled once"] += sum(
            session.id in pools[half] for session in own
        )
        pools[half] = {session.id: session for session in own} | pools[half]
        gold = [] if _abstains(item) else own
        oddities["questions without evidence"] += not gold
        turns = tuple(turn.id for session in gold for turn in session.turns)
        probes[half].append(_probe(place, item, turns, tuple(dict.fromkeys(session.id for session in gold))))
    episodes = [Episode(half, half, _in_order(pools[half].values()), tuple(probes[half])) for half in pools]
    notes = (*counted(oddities), *differing("questions", sum(map(len, probes.values())), COUNTS))
    return Dataset("longmemeval", file_sha256(path), tuple(episodes), (_POOLED, *notes))


def _half(question_id: str) -> Half:
    """A question and its unanswerable variant are about the same sessions, so they share a half."""
    return half_of(question_id.removesuffix(_ABSTAIN))


def _abstains(item: _Question) -> bool:
    return item.question_id.endswith(_ABSTAIN)


def _name(session: _Dated) -> str:
    """An id out of what was said, for these sessions have none; two questions may date one differently."""
    content = json.dumps([(turn.role, turn.content) for turn in session.turns])
    return sha256(content.encode()).hexdigest()[:12]


def _session(name: str, start: datetime, turns: Iterable[_Said]) -> Session:
    roles: Mapping[str, tuple[Role, str]] = {"user": ("user", "User"), "assistant": ("assistant", "Assistant")}
    return Session(
        name,
        tuple(
            Turn(f"{name}.{number}", *roles.get(turn.role, roles["user"]), turn.content, _later(start, number))
            for number, turn in enumerate(turns)
        ),
    )


def _later(start: datetime, number: int) -> datetime:
    return start + timedelta(seconds=number)


def _probe(place: str, item: _Question, evidence: tuple[str, ...], sessions: tuple[str, ...]) -> Probe:
    return Probe(
        id=item.question_id,
        question=item.question or "",
        answer=item.answer,
        type="abstention" if _abstains(item) else item.question_type,
        time=moment(item.question_date, _TIME, place) if item.question_date else None,
        evidence=evidence,
        sessions=sessions,
    )


def _in_order(sessions: Iterable[Session]) -> tuple[Session, ...]:
    return tuple(sorted((one for one in sessions if one.turns), key=lambda session: session.turns[0].time))
