"""CoQA (Reddy et al., TACL 2019) as SeCom uses it (appendix A.9): questions about a passage among ten other passages.

Source: coqa-{train,dev}-v1.0.json of Stanford. Licence: by passage: CC BY-SA 4.0 (literature, Wikipedia), MSR-LA
(MCTest), RACE's own (non-commercial research), Apache-2.0 (CNN).

A passage is a session, and each of its sentences a turn of the user's, for SeCom puts sentences in the place of turns.
An episode is a passage with the ten around it in the file (five before and five after, more on one side at the ends);
its questions are asked in order, each with the questions and answers before it as its dialogue. The sentences that the
marked span touches are the evidence. There are no times: passages stand a day apart from 1970 on. SeCom draws 50
passages of the dev file's 500 at random; `--limit` takes the first questions instead.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import UNDATED, session, surrounding
from localmem.evaluation.datasets.files import Record, checked, file_sha256, single
from localmem.evaluation.episodes import Dataset, Episode, Probe, counted, differing, half_of
from localmem.types import Session, Turn

COUNTS = (500, 7199)  # passages of dev and train
AROUND = 10  # passages beside one's own (SeCom, appendix A.9)

_READER, _TEXT = "User", "Text"
_SENTENCE = re.compile(r"\S.*?(?:[.!?]+[\"'”’)]*(?=\s|$)|$)", re.MULTILINE)


class _Question(Record):
    input_text: str
    turn_id: int


class _Answer(Record):
    input_text: str
    turn_id: int
    span_start: int = -1
    span_end: int = -1


class _Passage(Record):
    id: str
    source: str = ""
    story: str = Field(min_length=1)
    questions: list[_Question]
    answers: list[_Answer]
    additional_answers: dict[str, list[_Answer]] = Field(default_factory=dict)


class _File(Record):
    data: list[object] = Field(min_length=1)


def read(path: Path) -> Dataset:
    """Every passage as an episode. Raises BadInput with file and record."""
    oddities: Counter[str] = Counter()
    values = single(path, _File).data
    places = [f"{path}, record {number}" for number in range(1, len(values) + 1)]
    items = [checked(place, value, _Passage) for place, value in zip(places, values, strict=True)]
    held = [_session(number, item) for number, item in enumerate(items)]
    episodes = tuple(
        Episode(
            id=item.id,
            half=half_of(item.id),
            sessions=surrounding(held, number, AROUND),
            probes=_probes(places[number], item, held[number], oddities),
        )
        for number, item in enumerate(items)
    )
    return Dataset(
        "coqa", file_sha256(path), episodes, (*counted(oddities), *differing("passages", len(items), COUNTS))
    )


def _session(number: int, item: _Passage) -> Session:
    said = ((_TEXT, match[0].strip()) for match in _SENTENCE.finditer(item.story))
    return session(item.id, said, _TEXT, UNDATED + timedelta(days=number))


def _probes(place: str, item: _Passage, passage: Session, oddities: Counter[str]) -> tuple[Probe, ...]:
    if [one.turn_id for one in item.questions] != [one.turn_id for one in item.answers]:
        raise BadInput(f"{place}: questions and answers are not of the same turns; give CoQA's own file")
    probes: list[Probe] = []
    before: list[Turn] = []
    after = passage.turns[-1].time
    others = _others(item)
    for question, answer in zip(item.questions, item.answers, strict=True):
        evidence = _evidence(item, answer, passage)
        oddities["questions without evidence"] += not evidence
        name = f"{item.id}/q{question.turn_id}"
        probes.append(
            Probe(
                id=name,
                question=question.input_text,
                answer=answer.input_text,
                type=item.source,
                time=None,
                evidence=evidence,
                sessions=(passage.id,) if evidence else (),
                dialogue=tuple(before),
                others=others.get(question.turn_id, ()),
            )
        )
        before.append(Turn(name, "user", _READER, question.input_text, after))
        before.append(Turn(f"{name}.a", "assistant", "Assistant", answer.input_text, after))
    return tuple(probes)


def _others(item: _Passage) -> Mapping[int, tuple[str, ...]]:
    """By turn, the answers of the further annotators (dev has three)."""
    found: dict[int, tuple[str, ...]] = {}
    for answers in item.additional_answers.values():
        for one in answers:
            found[one.turn_id] = (*found.get(one.turn_id, ()), one.input_text)
    return found


def _evidence(item: _Passage, answer: _Answer, passage: Session) -> tuple[str, ...]:
    spans: Sequence[re.Match[str]] = list(_SENTENCE.finditer(item.story))
    return tuple(
        turn.id
        for turn, span in zip(passage.turns, spans, strict=True)
        if 0 <= answer.span_start < span.end() and span.start() < answer.span_end
    )
