"""Scenario measures: a memory reads a person's sessions and is asked that person's questions; each is measured.

Every question is asked in a new session a day after the last, and changes nothing. Evidence is found by exchange: a hit
stands for the exchanges of its source turns, in the order of the search by score, each exchange once, however much of
it is shown. What is shown is the recalled text: an evidence turn counts with the sentences that stand there. Depends on
no system; a measure that does not apply to a question, or to a system without an index, is missing from its row.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import fmean
from typing import Literal, NamedTuple

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.evaluation.datasets.readers import build_session
from localmem.evaluation.datasets.scenarios import ABSTENTION, FORGOTTEN, Person, ScenarioProbe
from localmem.evaluation.evidence_retrieval import recall_at, units_within
from localmem.evaluation.metrics.replies import abstains, contains_any
from localmem.memory import Memory
from localmem.retrieval.base import Scope
from localmem.text.dialogue import Count, utterance_units
from localmem.times.workings import work_out
from localmem.types import Recall, Session, Turn

Wording = Literal["question", "paraphrase"]
NewConversation = Callable[[Bank], Conversation]

DEPTHS = (5, 10)  # numbers of exchanges at which evidence recall is measured
BUDGET = 600  # tokens from the beginning of the recalled text
WORKED_OUT = frozenset({"temporal", "multi-session"})  # types of which many answers follow from what was said
SINGLE_FACT, ORDINARY = "single-fact", "ordinary"  # types: a fact that one turn tells, a request that needs no memory

_WIDTH = 50  # units searched for: enough for ten exchanges, and no more than a hybrid fuses anyway
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")
_BRACKETS = re.compile(r"\s?[(（][^()（）\n]{0,80}[)）]")  # what a memory adds to the words, such as dates
_DAY_FIRST = re.compile(r"(\d{1,2}) ([A-Z]\w+)")  # "21 November", which others write "November 21"
_DAY = timedelta(days=1)
_THREADS = 8
_DENIALS = {"de": "Das weiß ich nicht.", "en": "I don't know that.", "fr": "Je ne le sais pas.", "zh": "这个我不知道。"}


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """What is measured: `count` counts tokens, `answers` asks the backbone.

    With `asked_again`, each single fact is asked for and denied so many times in further sessions, then asked again.
    """

    count: Count
    answers: bool = False
    asked_again: int = 0


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """The measures of one question. `ranking` are the first exchanges by score, `session/number`."""

    person: str
    language: str
    probe: str
    type: str
    wording: Wording
    question: str
    measures: Mapping[str, float]
    ranking: tuple[str, ...] = ()
    recalled: str = ""
    reply: str = ""


def measure_person(person: Person, new_conversation: NewConversation, options: ScenarioOptions) -> list[ScenarioRow]:
    """Let a new memory read the sessions and ask it every question, paraphrase and ordinary request."""
    conversation = new_conversation(Bank())
    conversation.writer.read(person.sessions)
    questions, now = _questions(person), person.sessions[-1].turns[-1].time + _DAY
    dialogues = [_dialogue(f"{person.id}/probe{n}", question.text, now) for n, question in enumerate(questions)]
    replies = _ask(conversation, dialogues, answers=options.answers)
    rows = []
    for question, dialogue, (recall, reply) in zip(questions, dialogues, replies, strict=True):
        ranking = _rank_exchanges(conversation.memory, dialogue.turns[-1], person.sessions)
        measures = _measure_recall(question, recall, ranking, options.count)
        measures |= _measure_workings(question, recall, now.date())
        if options.answers:
            measures |= _measure_reply(person, question.probe, reply)
        if options.asked_again and question.wording == "question" and question.type == SINGLE_FACT:
            copy = new_conversation(conversation.memory.bank)
            measures |= _ask_again(person, question, copy, (recall, ranking), options.asked_again)
        rows.append(
            ScenarioRow(
                person.id, person.language, question.name, question.type, question.wording, question.text, measures,
                tuple(ranking or ())[: max(DEPTHS)], recall.text, reply,
            )
        )  # fmt: skip
    return rows


class _Question(NamedTuple):
    """A text to ask. `turns` hold its evidence, in these `exchanges`; an ordinary request has no probe."""

    name: str
    text: str
    wording: Wording = "question"
    probe: ScenarioProbe | None = None
    turns: tuple[Turn, ...] = ()
    exchanges: frozenset[str] = frozenset()

    @property
    def type(self) -> str:
        return self.probe.type if self.probe else ORDINARY


def _questions(person: Person) -> list[_Question]:
    turns = {turn.id: turn for session in person.sessions for turn in session.turns}
    exchange_of = _exchange_ids(person.sessions)
    questions = []
    for number, (probe, ids) in enumerate(zip(person.probes, person.evidence, strict=True)):
        evidence, exchanges = tuple(turns[key] for key in ids), frozenset(exchange_of[key] for key in ids)
        question = _Question(f"{person.id}/q{number}", probe.question, "question", probe, evidence, exchanges)
        questions.append(question)
        if probe.paraphrase:
            questions.append(question._replace(text=probe.paraphrase, wording="paraphrase"))
    return questions + [_Question(f"{person.id}/o{number}", text) for number, text in enumerate(person.ordinary)]


def _exchange_ids(sessions: Sequence[Session]) -> dict[str, str]:
    """The exchange of each turn."""
    return {
        turn.id: f"{session.id}/e{number}"
        for session in sessions
        for number, exchange in enumerate(session.exchanges())
        for turn in exchange.turns()
    }


def _dialogue(name: str, text: str, time: datetime, reply: str = "") -> Session:
    """A session of one question, and its reply if there is one."""
    texts = [text, reply] if reply else [text]
    return build_session(name, list(zip(("User", "Assistant"), texts, strict=False)), "User", time)


def _ask(conversation: Conversation, dialogues: Sequence[Session], *, answers: bool) -> list[tuple[Recall, str]]:
    """What is recalled for each question, and the reply if the backbone is asked."""
    responder = conversation.responder
    if not answers:
        return [(responder.memory.recall(dialogue), "") for dialogue in dialogues]
    with ThreadPoolExecutor(_THREADS) as pool:  # the backbone answers concurrent requests as one batch
        return [(reply.recall, reply.turn.text) for reply in pool.map(responder.answer, dialogues)]


def _rank_exchanges(memory: Memory, question: Turn, sessions: Sequence[Session]) -> list[str] | None:
    """The exchanges of what is found, best first; None for a system without an index."""
    if not memory.keeps_units:
        return None
    exchange_of = _exchange_ids(sessions)
    hits = memory.search(question.text, _WIDTH, Scope(now=question.time))
    return list(dict.fromkeys(exchange_of.get(source, source) for hit in hits for source in hit.unit.sources))


def _measure_recall(
    question: _Question, recall: Recall, ranking: Sequence[str] | None, count: Count
) -> dict[str, float]:
    if question.probe is None:
        return {"ordinary shown": float(bool(recall.text))}
    tokens = float(count([recall.text])[0]) if recall.text else 0.0
    measures = {"tokens": tokens}
    if question.type == FORGOTTEN:
        return measures | {"came up": float(_comes_up(question, recall))}
    if not question.turns:
        return measures
    if ranking is not None:
        measures |= {f"recall@{k}": recall_at([[name] for name in ranking], question.exchanges, k) for k in DEPTHS}
    beginning = recall.text if tokens <= BUDGET else _first_lines(recall.text, count)
    return measures | {
        "shown": _share_within(recall.text, question.turns),
        f"shown@{BUDGET}": _share_within(beginning, question.turns),
    }


def _measure_workings(question: _Question, recall: Recall, day: date) -> dict[str, float]:
    """Whether a result was worked out, and is right: from what was recalled, and from the evidence alone."""
    if question.type not in WORKED_OUT or question.probe is None:
        return {}
    units = [unit for turn in question.turns for unit in utterance_units(Session(turn.id, (turn,)))]
    results = {"": recall.workings, " from evidence": work_out(question.text, day, units)}
    measures = {f"worked out{source}": float(bool(workings)) for source, workings in results.items()}
    for source, workings in results.items():
        if workings:
            text = "\n".join(working.text for working in workings)
            in_both_orders = text + _DAY_FIRST.sub(r"\n\2 \1", text)
            measures[f"right lines{source}"] = float(contains_any(in_both_orders, question.probe.must_contain))
    return measures


def _comes_up(question: _Question, recall: Recall) -> bool:
    """Whether what was to be forgotten is recalled: one of its turns, or a unit from it that holds the secret.

    The secret alone proves nothing, for another turn may hold the same number. Without units the whole text counts.
    """
    sources = {turn.id for turn in question.turns}
    texts = [hit.unit.text for hit in recall.hits if not sources.isdisjoint(hit.unit.sources)]
    secrets = question.probe.must_not_contain if question.probe else ()
    derived = "\n".join(texts) if recall.hits else recall.text
    return _share_within(recall.text, question.turns) == 1 or contains_any(derived, secrets)


def _first_lines(text: str, count: Count) -> str:
    lines = text.split("\n")
    return "\n".join(lines[: units_within(count([f"{line}\n" for line in lines]), BUDGET)])


def _share_within(text: str, turns: Sequence[Turn]) -> float:
    """How much of the turns stands in the text, by sentences weighted by their length, white space and brackets aside.

    A long turn may be shown in part, so it counts in part.
    """
    words = " ".join(_without_brackets(text).split())
    shares = []
    for turn in turns:
        pieces = [" ".join(piece.split()) for piece in _SENTENCE_END.split(_without_brackets(turn.text))]
        shares.append(sum(len(piece) for piece in pieces if piece in words) / max(1, sum(map(len, pieces))))
    return fmean(shares)


def _without_brackets(text: str) -> str:
    return _BRACKETS.sub("", _BRACKETS.sub("", text))  # twice: some stand in others


def _measure_reply(person: Person, probe: ScenarioProbe | None, reply: str) -> dict[str, float]:
    denial = _is_denial(person, reply)
    if probe is None:
        return {"ordinary refused": float(denial)}
    rejected = contains_any(reply, probe.must_not_contain)
    if not probe.is_answerable:
        accepted = contains_any(reply, probe.must_contain) if probe.must_contain else denial
        return {"right denial": float(accepted and not rejected)}
    right = contains_any(reply, probe.must_contain or [probe.answer]) and not rejected
    return {"right": float(right), "false denial": float(denial and not right)}


def _is_denial(person: Person, reply: str) -> bool:
    """Whether a reply says that it does not know, in English or as the person's abstention probes list it."""
    phrases = [text for probe in person.probes if probe.type == ABSTENTION for text in probe.must_contain]
    return abstains(reply) or contains_any(reply, phrases)


def _ask_again(
    person: Person,
    question: _Question,
    conversation: Conversation,
    before: tuple[Recall, Sequence[str] | None],
    times: int,
) -> dict[str, float]:
    """Whether what was first, or shown, still is after the question was asked and denied so many times."""
    start, denial = person.sessions[-1].turns[-1].time, _DENIALS.get(person.language, _DENIALS["en"])
    denied = [_dialogue(f"{person.id}/again{n}", question.text, start + n * _DAY, denial) for n in range(1, times + 1)]
    conversation.writer.read(denied)
    dialogue = _dialogue(f"{person.id}/again", question.text, start + (times + 1) * _DAY)
    recall, memory = before[0], conversation.memory
    ranking = _rank_exchanges(memory, dialogue.turns[-1], (*person.sessions, *denied))
    measures = {}
    if _is_first(question, before[1]):
        measures["still first"] = float(_is_first(question, ranking))
    if _share_within(recall.text, question.turns) == 1:
        measures["still shown"] = _share_within(memory.recall(dialogue).text, question.turns)
    return measures


def _is_first(question: _Question, ranking: Sequence[str] | None) -> bool:
    return bool(ranking and ranking[0] in question.exchanges)
