"""Fitting what tells that a turn asks for what the user said: the vectors in localmem/systems/evidence/asking.yaml.

Learned from people's questions in both wordings against their ordinary requests, some of what they say in their
conversations, and lessons that are nobody's: plain turns of both kinds, requests, lookups, and groups of contrasts
that name the words of answers, whose questions are short. Requests for advice that a preference settles are left out.
Of turns without a question a model of their own tells elliptical questions from statements and requests. It learns from
the short sentences of what people say, too, as users say no more than one at times, but from no lookups.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import yaml

from finetune.contrasts import holds_contrasts, read_contrasts
from finetune.trainers.ranking import Figures, Request, fit_need
from localmem.errors import BadInput
from localmem.evaluation.datasets import scenarios
from localmem.evaluation.datasets.scenarios import Person
from localmem.files import read_text, writing
from localmem.retrieval.base import QueryReader
from localmem.systems.evidence.asking import describe_turn, may_ask
from localmem.systems.evidence.ranking import log_odds
from localmem.systems.evidence.relevance import Model
from localmem.turns.utterances import split_sentences

_SHIFT = -1.0  # of the bias, so that the limits of the model by words suit this one too (chosen in the reader's card)
_READ = -1.5  # the log-odds from which a turn is read as a question, where it is measured
_ELLIPTICAL_SHIFT = 1.25  # of the bias, so that few elliptical questions are taken for statements
_TURNS = 4  # of a person's turns every fourth is learned
_REPEATED = 6  # times that a plain turn is learned: these are few, and what most users ask first
_LOOKUPS_REPEATED = 3
_SENTENCE = range(12, 121)  # characters of a sentence that is learned as if it were a turn
_PREFERENCE = "preference"
_LESSONS = Path(__file__).parents[1] / "lessons"
_REQUESTS, _QUESTIONS, _LOOKUPS = (_LESSONS / f"{name}.txt" for name in ("requests", "questions", "lookups"))


def fit_asking(reader: object, folders: Iterable[Path], hold_out: Collection[str], out: Path) -> list[Figures]:
    """Fit on the English people and the contrasts of these folders and write asking.yaml to `out`.

    Returns, for each author who is held out, which shares of questions and of other turns are read as asking. Raises
    BadInput.
    """
    if not isinstance(reader, QueryReader):
        raise BadInput("the reranker describes no queries; choose a shipped one")
    groups = {folder: holds_contrasts(folder) for folder in folders}
    people = [
        person
        for folder, is_contrasts in groups.items()
        if not is_contrasts
        for person in scenarios.read_people(folder)
        if person.language == "en"
    ]
    learners = [person for person in people if person.author not in hold_out]
    if not any(asks for _, _, asks in _list_turns(learners)):
        raise BadInput("the people who are not held out have no questions; give others")
    with writing(out, "choose another --out"):  # before minutes of reading
        out.mkdir(parents=True, exist_ok=True)
    learned = list(read_turns(learners, reader))
    learned += [
        turn for folder, is_contrasts in groups.items() if is_contrasts for turn in _read_groups(folder, reader)
    ]
    sentences = read_sentences(learners, reader)
    text = asking_text([*learned, *_read_lookups(reader)], [*learned, *sentences], reader)
    with writing(out, "choose another --out"):
        (out / "asking.yaml").write_text(text, encoding="utf-8")
    models = {name: Model.model_validate(part) for name, part in yaml.safe_load(text).items()}
    return [
        _measure(author, models, [person for person in people if person.author == author], reader)
        for author in hold_out
    ]


def _measure(author: str, models: Mapping[str, Model], people: Iterable[Person], reader: QueryReader) -> Figures:
    is_read: dict[bool, list[bool]] = {True: [], False: []}
    for _, text, asks in _list_turns(people):
        if (vector := reader.read_query(text)) is not None:
            is_read[asks].append(_is_read_as_asking(text, vector.tolist(), models))
    shares: Figures = {"author": author}
    for name, own in (("questions", is_read[True]), ("other turns", is_read[False])):
        shares |= {name: len(own), f"{name} taken as questions": fmean(own) if own else 0.0}
    return shares


def _is_read_as_asking(text: str, vector: Sequence[float], models: Mapping[str, Model]) -> bool:
    cues = describe_turn(text)
    is_likely = log_odds(models["vectors"].probability(cues, vector), 0) >= _READ
    return is_likely and may_ask(text, cues, vector, models["elliptical"])


def read_turns(people: Sequence[Person], reader: QueryReader) -> Iterator[Request]:
    """What people ask, as needing memory, and what they request and say otherwise, as not; and lessons of nobody's."""
    rows = _list_turns(people)
    rows += [("", text, False) for text in _lines(_REQUESTS, "-")]
    rows += [("", text, mark == "?") for mark in "?!" for text in _lines(_QUESTIONS, mark)] * _REPEATED
    return _describe(rows, reader)


def _list_turns(people: Iterable[Person]) -> list[tuple[str, str, bool]]:
    """Author, text and whether it asks for what was said, of people's questions, requests and some turns."""
    people = list(people)
    rows = [
        (person.author, text, True)
        for person in people
        for probe in person.probes
        if probe.type != _PREFERENCE
        for text in filter(None, (probe.question, probe.paraphrase))
    ]
    rows += [
        (person.author, text, False) for person in people for text in (*person.ordinary, *_turns(person)[::_TURNS])
    ]
    return rows


def _read_lookups(reader: QueryReader) -> Iterator[Request]:
    return _describe([("", text, False) for text in _lines(_LOOKUPS, "-")] * _LOOKUPS_REPEATED, reader)


def _read_groups(folder: Path, reader: QueryReader) -> Iterator[Request]:
    """The questions of the groups that name words, and what their users say."""
    groups = [group for group in read_contrasts(folder) if any(question.words for question in group.questions)]
    rows = [("", question.text, True) for group in groups for question in group.questions]
    turns = [turn for group in groups for session in group.sessions for turn in session.turns]
    rows += [("", turn.text.replace("\n", " "), False) for turn in turns if turn.role == "user"]
    return _describe(rows, reader)


def _describe(rows: Iterable[tuple[str, str, bool]], reader: QueryReader) -> Iterator[Request]:
    """The turns by author and whether they ask, but those that the reader does not know the language of."""
    for author, text, asks in rows:
        if (vector := reader.read_query(text)) is not None:
            yield Request(author, describe_turn(text), asks, vector.tolist())


def _lines(file: Path, mark: str) -> list[str]:
    """The lessons of a file that begin with the mark, without it."""
    lines = read_text(file, "restore it").splitlines()
    return [line.removeprefix(f"{mark} ") for line in lines if line.startswith(f"{mark} ")]


def asking_text(turns: Sequence[Request], texts: Iterable[Request], reader: QueryReader) -> str:
    """The parts of asking.yaml: `vectors`, fitted on the turns, and `elliptical`, on texts in which no word asks."""
    fits = (
        ("vectors", turns, _SHIFT),
        ("elliptical", [turn for turn in texts if not turn.cues["asks"]], _ELLIPTICAL_SHIFT),
    )
    parts = {name: _round(fit_need(learned), shift, reader).model_dump(mode="json") for name, learned, shift in fits}
    return str(yaml.safe_dump(parts, sort_keys=False, default_flow_style=None, width=120))


def _round(model: Model, shift: float, reader: QueryReader) -> Model:
    rounded = {name: round(value, 2) for name, value in model.weights.items()}  # zeros too: they name the cues of turns
    update = {"bias": round(model.bias + shift, 2), "weights": rounded, "reader": reader.query_identity}
    return model.model_copy(update=update)


def read_sentences(people: Iterable[Person], reader: QueryReader) -> Iterator[Request]:
    """The short sentences of what people say."""
    turns = ((person.author, turn) for person in people for turn in _turns(person))
    sentences = ((author, sentence) for author, turn in turns for sentence in split_sentences(turn))
    return _describe([(author, text, False) for author, text in sentences if len(text) in _SENTENCE], reader)


def _turns(person: Person) -> list[str]:
    return [turn.text for session in person.sessions for turn in session.turns if turn.role == "user"]
