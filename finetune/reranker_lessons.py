"""What a reranker learns from: questions, each with exchanges that answer it and with plausible ones that do not.

Read from a folder of scenarios (one file a person), a folder of contrasts, or from LongMemEval's evidence. The wrong
exchanges are what a search by vectors and words finds first, and the question itself as it was asked before and denied.
Does not depend on any model.
"""

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from finetune.contrasts import Contrast, holds_contrasts, read_contrasts
from localmem.chat.reader import replacement_query
from localmem.errors import BadInput
from localmem.evaluation.datasets import longmemeval, scenarios
from localmem.evaluation.evidence_retrieval import build_exchanges
from localmem.evaluation.metrics.replies import contains_any
from localmem.retrieval.base import Retriever
from localmem.systems.evidence.instructions import instructs
from localmem.text.dialogue import transcript, utterance_units
from localmem.times.annotate import show_times, with_spans
from localmem.turns.utterances import split_sentences
from localmem.types import Session, Turn

WRONG, RIGHT, OUTDATED = 0, 1, 2
_UPDATE = "knowledge-update"
_USER = "User: "
_FEWEST = 3  # wrong sentences from which something is learned
_NUMBER = re.compile(r"\d")

# Replies of an assistant that does not know. The exchange in which a question was denied resembles the question most.
_DENIALS = (
    "I don't know that.",
    "You haven't told me that.",
    "I'm sorry, I don't have any record of that.",
    "I don't think you've mentioned it. Could you tell me?",
    "You haven't said, as far as I can see.",
    "I can't find that in what you've told me.",
    "That hasn't come up between us yet.",
    "No idea, I'm afraid. What is it?",
    "I have no information about that.",
    "I don't have access to that. Where might you have written it down?",
    "Hmm, I don't remember that one. Can you remind me?",
    "I'm not sure, you'd have to tell me.",
)


Places = tuple[tuple[int, int], ...]  # where in a text something begins and ends, in characters


class Lesson(NamedTuple):
    """A question, exchanges as the search ranks them, and for each whether it is right, wrong or outdated.

    Of sentences, `words` has for each the places of the words that answer; none where that is unknown.
    """

    person: str
    query: str
    texts: tuple[str, ...]
    labels: tuple[int, ...]
    words: tuple[Places, ...] = ()

    def select(self, places: Sequence[int]) -> "Lesson":
        """The same question with the texts at these places, in their order."""
        return self._replace(
            texts=tuple(self.texts[place] for place in places),
            labels=tuple(self.labels[place] for place in places),
            words=tuple(self.words[place] for place in places if self.words),
        )


class Question(NamedTuple):
    """A question with the ids of its evidence turns; `other` is the same in other words, `outdated` its old values.

    A right answer contains one of `accepted` and none of `rejected`. One of `words` is enough of it.
    """

    query: str
    evidence: Collection[str]
    other: str = ""
    outdated: Sequence[str] = ()
    accepted: Sequence[str] = ()
    rejected: Sequence[str] = ()
    words: Sequence[str] = ()


def read_lessons(
    path: Path, new_index: Callable[[], Retriever], depth: int, *, sentences: bool = False
) -> list[Lesson]:
    """The lessons of a folder of scenarios or of contrasts, or of a file of LongMemEval's evidence (.jsonl).

    Of each question the first `depth` exchanges of the search, then its evidence that is not among them. People who do
    not write in English are left out. With `sentences` the texts are the sentences of these exchanges, with the dates
    that recall writes beside times, each with the one before it in brackets, as a reader scores them. Raises BadInput.
    """
    groups: list[tuple[str, Sequence[Session], Sequence[Question]]]
    if path.is_dir() and holds_contrasts(path):
        groups = [(group.id, group.sessions, _contrast_questions(group)) for group in read_contrasts(path)]
    elif path.is_dir():
        people = [person for person in scenarios.read_people(path) if person.language == "en"]
        groups = [(person.id, person.sessions, _questions(person)) for person in people]
    else:
        episodes = longmemeval.read(path).episodes
        groups = [
            (episode.id, episode.sessions, [Question(probe.question, probe.evidence) for probe in episode.probes])
            for episode in episodes
        ]
    lessons = [lesson for group in groups for lesson in _rank(*group, new_index(), depth, sentences=sentences)]
    if not any(RIGHT in lesson.labels for lesson in lessons):
        raise BadInput(f"{path} has no question with evidence; give conversations with questions about them")
    return lessons


def _questions(person: scenarios.Person) -> list[Question]:
    questions = [Question(request, ()) for request in person.ordinary]
    for probe, evidence in zip(person.probes, person.evidence, strict=True):
        outdated = tuple(text.lower() for text in probe.must_not_contain) if probe.type == _UPDATE else ()
        if probe.type != scenarios.FORGOTTEN:
            accepted = probe.must_contain or tuple(filter(None, [probe.answer]))
            other, rejected = probe.paraphrase, probe.must_not_contain
            question = Question(probe.question, evidence, other, outdated, accepted, rejected, accepted)
            questions.append(question)
            if probe.paraphrase:
                questions.append(question._replace(query=probe.paraphrase, other=probe.question))
    return questions


def _contrast_questions(group: Contrast) -> list[Question]:
    return [
        Question(
            question.text,
            [group.turn_of[sentence] for sentence in question.answers],
            outdated=tuple(map(str.lower, question.outdated)),
            accepted=question.answers,
            words=(question.words,) if question.words else (),
        )
        for question in group.questions
    ]


def _rank(
    person: str,
    sessions: Sequence[Session],
    questions: Sequence[Question],
    index: Retriever,
    depth: int,
    *,
    sentences: bool,
) -> list[Lesson]:
    turns = {turn.id: turn for session in sessions for turn in session.turns}
    units = build_exchanges(sessions)
    index.add(units)
    texts = {unit.id: transcript(turns[source] for source in unit.sources) for unit in units}
    sources = {unit.id: unit.sources for unit in units}
    sentences_of = _sentences_of(sessions) if sentences else {}
    lessons = []
    results = index.search([question.query for question in questions], depth)
    for question, matches in zip(questions, results, strict=True):
        right = [unit.id for unit in units if not set(unit.sources).isdisjoint(question.evidence)]
        ids = dict.fromkeys([*(match.id for match in matches), *right])
        if sentences:
            read = [turns[source] for key in ids for source in sources[key]]
            if lesson := _sentence_lesson(person, question, read, sentences_of):
                lessons.append(lesson)
            continue
        labels = tuple(_label(texts[key], sources[key], question) for key in ids)
        denied = _denials_of(person, question)
        lessons.append(
            Lesson(person, question.query, (*(texts[key] for key in ids), *denied), (*labels, *(WRONG for _ in denied)))
        )
    return lessons


class _Sentence(NamedTuple):
    """A sentence as it was said, and as recall shows it, with dates beside times."""

    text: str
    dated: str


def _sentences_of(sessions: Sequence[Session]) -> dict[str, list[_Sentence]]:
    """The sentences of each turn, by its id."""
    units = [unit for session in sessions for unit in with_spans(utterance_units(session), session.turns)]
    today = max((unit.time.date() for unit in units), default=date.max)
    sentences = {}
    for unit in units:
        texts = split_sentences(unit.key)
        dated = split_sentences(show_times(unit, today).removeprefix(f"{unit.speaker}: "))
        pairs = zip(texts, dated if len(dated) == len(texts) else texts, strict=True)
        sentences[unit.sources[0]] = [_Sentence(*pair) for pair in pairs]
    return sentences


def _sentence_lesson(
    person: str, question: Question, turns: Sequence[Turn], sentences_of: Mapping[str, Sequence[_Sentence]]
) -> Lesson | None:
    """Right are the sentences of evidence that answer; others that happen to hold an answer are left out.

    None where something answers and it is unknown which sentence: it would pass for a question without an answer.
    """
    evidence = [sentence for turn in turns if turn.id in question.evidence for sentence in sentences_of[turn.id]]
    answers = _answers_among(evidence, question)
    if question.evidence and not answers:
        return None
    texts, labels, words = [], [], []
    for turn in turns:
        before = ""
        for sentence in sentences_of[turn.id]:
            is_answer = turn.id in question.evidence and sentence in answers
            if is_answer or not _answers_alone(sentence, question):
                text = f"{turn.speaker}: {sentence.dated}"
                texts.append(text + (f" [{before}]" if before else ""))
                labels.append(
                    RIGHT if is_answer else OUTDATED if contains_any(sentence.text, question.outdated) else WRONG
                )
                words.append(_places_of(question.words if is_answer else (), text, len(turn.speaker) + 2))
            before = sentence.dated
    return Lesson(person, question.query, tuple(texts), tuple(labels), tuple(words))


def _places_of(words: Sequence[str], text: str, start: int) -> Places:
    """Where in a text, from the character `start`, any of the words stand."""
    pattern = "|".join(map(re.escape, words))
    matches = re.finditer(pattern, text, re.IGNORECASE) if words else ()
    return tuple(match.span() for match in matches if match.start() >= start)


def _answers_among(sentences: Sequence[_Sentence], question: Question) -> list[_Sentence]:
    """Those of the evidence that hold an accepted value, if possible without a rejected one.

    Without any, what the answer is worked out from: those with a number for a number, and instructions for a way.
    """
    if holding := [sentence for sentence in sentences if contains_any("\n".join(sentence), question.accepted)]:
        return [sentence for sentence in holding if _answers_alone(sentence, question)] or holding
    if _NUMBER.search(" ".join(question.accepted)):
        return [sentence for sentence in sentences if _NUMBER.search(sentence.dated)]
    return [sentence for sentence in sentences if instructs(sentence.text)]


def _answers_alone(sentence: _Sentence, question: Question) -> bool:
    text = "\n".join(sentence)
    return contains_any(text, question.accepted) and not contains_any(text, question.rejected)


def _label(text: str, sources: Sequence[str], question: Question) -> int:
    if not set(sources).isdisjoint(question.evidence):
        return RIGHT
    return OUTDATED if any(value in text.lower() for value in question.outdated) else WRONG


def _denials_of(person: str, question: Question) -> tuple[str, ...]:
    """An earlier exchange in which the same was asked and denied; reproducible."""
    rng = random.Random(f"{person}/{question.query}")  # noqa: S311  # not used for security
    query = rng.choice([question.query, question.other or question.query])
    return (f"User: {query}\nAssistant: {rng.choice(_DENIALS)}",)


def replacement_lessons(lessons: Sequence[Lesson], seed: int) -> list[Lesson]:
    """Of lessons of sentences: which others one of the user's replaces; half of these sentences replace none.

    A right sentence replaces those that are outdated. It is read as `localmem.chat.reader.replacement_query` writes it.
    """
    replacing, others = list[Lesson](), list[Lesson]()
    for lesson in lessons:
        own = [(text, label) for text, label in zip(lesson.texts, lesson.labels, strict=True) if text.startswith(_USER)]
        right = [text for text, label in own if label == RIGHT]
        earlier = [(text, label) for text, label in own if label != RIGHT]
        if sum(label == WRONG for _, label in earlier) < _FEWEST:
            continue
        texts, labels = zip(*((text, RIGHT if label == OUTDATED else WRONG) for text, label in earlier), strict=True)
        group = replacing if RIGHT in labels else others
        group += [Lesson(lesson.person, replacement_query(text), texts, labels) for text in right[:2]]
    rng = random.Random(seed)  # noqa: S311  # not used for security
    return replacing + rng.sample(others, min(len(others), len(replacing)))


def hold_out_people(lessons: Sequence[Lesson], held_out: Collection[str]) -> tuple[list[Lesson], list[Lesson]]:
    """Divide by person or author (the id up to "-"); without names every tenth person is held out. Raises BadInput."""
    people = sorted({lesson.person for lesson in lessons})
    authors: Mapping[str, str] = {person: person.partition("-")[0] for person in people}
    if unknown := sorted(set(held_out) - {*people, *authors.values()}):
        raise BadInput(f"{unknown[0]!r} is no person and no author of the data; choose of {', '.join(people)}")
    names = set(held_out) or {*people[::-10]}
    apart = {person for person in people if not names.isdisjoint((person, authors[person]))}
    learned = [lesson for lesson in lessons if lesson.person not in apart]
    if not learned:
        raise BadInput("every person is held out; leave some to learn from")
    return learned, [lesson for lesson in lessons if lesson.person in apart and RIGHT in lesson.labels]


def sample_texts(lesson: Lesson, count: int, seed: int) -> Lesson:
    """Two right exchanges at most, one outdated, and `count` wrong ones: two of three found first, one found later."""
    rng = random.Random(f"{seed}/{lesson.person}/{lesson.query}")  # noqa: S311  # not used for security
    places: dict[int, list[int]] = {label: [] for label in (WRONG, RIGHT, OUTDATED)}
    for place, label in enumerate(lesson.labels):
        places[label].append(place)
    *ranked, denial = places[WRONG]  # of sentences, the last of what was found last
    near, far = ranked[:15], ranked[15:]
    chosen = rng.sample(near, min(len(near), 2 * count // 3))
    others = [place for place in (*near, *far) if place not in chosen]
    chosen += rng.sample(others, min(len(others), max(0, count - 1 - len(chosen))))
    picked = [*rng.sample(places[RIGHT], min(2, len(places[RIGHT]))), *chosen, denial]
    picked += rng.sample(places[OUTDATED], min(1, len(places[OUTDATED])))
    return lesson.select(picked)
