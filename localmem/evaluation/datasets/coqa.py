"""CoQA (Reddy et al., TACL 2019) as SeCom uses it (appendix A.9): questions about a passage among ten other passages.

Source: coqa-{train,dev}-v1.0.json of Stanford. Licence: by passage: CC BY-SA 4.0 (literature, Wikipedia), MSR-LA
(MCTest), RACE's own (non-commercial research), Apache-2.0 (CNN).

A passage is a session and each of its sentences a turn of the user, since SeCom treats sentences as turns. An episode
is a passage with the ten nearest in the file (five before and five after, more on one side at the ends); its questions
come in order, each with the previous questions and answers as its dialogue. The sentences that the marked span touches
are the evidence. There are no times: passages are a day apart from 1970 on. SeCom draws 50 of the dev file's 500
passages at random; `--limit` takes the first questions instead.
"""

import re
from collections import Counter
from datetime import timedelta
from itertools import chain
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import Record
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.files import read_json
from localmem.types import Session, Turn

COUNTS = (500, 7199)  # passages of dev and train
NEIGHBOURS = 10  # passages besides the episode's own (SeCom, appendix A.9)

_TEXT = "Text"
_SENTENCE = re.compile(r"\S.*?(?:[.!?]+[\"'”’)]*(?=\s|$)|$)", re.MULTILINE)


class _Text(Record):  # a question or an answer; only an answer has a span
    input_text: str
    turn_id: int
    span_start: int = -1
    span_end: int = -1


class _Passage(Record):
    id: str
    source: str = ""
    story: str = Field(min_length=1)
    questions: list[_Text]
    answers: list[_Text]
    additional_answers: dict[str, list[_Text]] = Field(default_factory=dict)


class _File(Record):
    data: list[object] = Field(min_length=1)


def read(path: Path) -> Dataset:
    """One episode per passage. Raises BadInput with file and record."""
    oddities: Counter[str] = Counter()
    values = read_json(path, _File, readers.CURE).data
    places = [f"{path}, record {number}" for number in range(1, len(values) + 1)]
    passages = [readers.parse_record(place, value, _Passage) for place, value in zip(places, values, strict=True)]
    sessions = [_session(number, passage) for number, passage in enumerate(passages)]
    episodes = []
    for number, passage in enumerate(passages):
        probes = _probes(places[number], passage, sessions[number], oddities)
        nearest = readers.nearest_sessions(sessions, number, NEIGHBOURS)
        episodes.append(Episode(passage.id, half_of(passage.id), nearest, probes))
    return readers.build_dataset("coqa", path, episodes, oddities, readers.size_note("passages", len(passages), COUNTS))


def _session(number: int, passage: _Passage) -> Session:
    utterances = ((_TEXT, match[0].strip()) for match in _SENTENCE.finditer(passage.story))
    return readers.build_session(passage.id, utterances, _TEXT, readers.UNDATED + timedelta(days=number))


def _probes(place: str, passage: _Passage, session: Session, oddities: Counter[str]) -> tuple[Probe, ...]:
    if [question.turn_id for question in passage.questions] != [answer.turn_id for answer in passage.answers]:
        raise BadInput(f"{place}: questions and answers have different turn ids; use CoQA's own file")
    probes: list[Probe] = []
    dialogue: list[Turn] = []
    time = session.turns[-1].time
    others: dict[int, tuple[str, ...]] = {}  # of the additional annotators (dev has three)
    for other in chain.from_iterable(passage.additional_answers.values()):
        others[other.turn_id] = (*others.get(other.turn_id, ()), other.input_text)
    for question, answer in zip(passage.questions, passage.answers, strict=True):
        evidence = tuple(
            turn.id
            for turn, span in zip(session.turns, _SENTENCE.finditer(passage.story), strict=True)
            if 0 <= answer.span_start < span.end() and span.start() < answer.span_end
        )
        oddities["questions without evidence"] += not evidence
        name = f"{passage.id}/q{question.turn_id}"
        probes.append(
            Probe(
                id=name,
                question=question.input_text,
                answer=answer.input_text,
                type=passage.source,
                evidence=evidence,
                sessions=(session.id,) if evidence else (),
                dialogue=tuple(dialogue),
                others=others.get(question.turn_id, ()),
            )
        )
        dialogue.append(Turn(name, "user", "User", question.input_text, time))
        dialogue.append(Turn(f"{name}.a", "assistant", "Assistant", answer.input_text, time))
    return tuple(probes)
