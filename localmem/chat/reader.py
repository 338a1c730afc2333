"""Reader: answers a question about the user by quoting what was said, for backbones too small to read memory well.

- A reranker trained on sentences scores each sentence of what was recalled and of the open dialogue. The turns with the
  best ones are quoted with day and speaker, long turns in part, and of a numbered list the item that is asked for.
- Of a sentence that says more than the answer the clauses are quoted that answer, where the scorer can tell which.
- For a question about the present, a sentence that a later one replaced is left out, and so are turns before the best.
- A line that was worked out from the best turn is put before its quotation.
- A less likely answer is introduced as "the closest I have", and an unlikely one also as not told. Where nothing is
  likely and the question is surely about the user, the reply is that it was not told. Every other turn is left to the
  backbone, and so is a question about the assistant itself that nothing surely answers. The backbone's reply to a
  request is followed by a reminder of an instruction, or of something else, that matters.

Whether a turn asks is decided by its words and the scorer's vector of it, in English only. Writes nothing and calls no
backbone.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import date
from functools import cache
from itertools import accumulate, combinations_with_replacement
from math import inf
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from localmem.files import read_yaml
from localmem.retrieval.base import Reranker, WordFinder, WordShare
from localmem.systems.evidence.asking import log_odds_of_asking
from localmem.systems.evidence.dependents import SAID_BEFORE
from localmem.systems.evidence.instructions import instructs
from localmem.systems.evidence.ranking import log_odds
from localmem.systems.evidence.relevance import describe_request
from localmem.systems.evidence.units import ANSWER, STATEMENT, is_new, places, turn_units
from localmem.systems.evidence.updates import OMITTED, is_doubtful
from localmem.text.clauses import CUT, join_lists, split_clauses
from localmem.text.dialogue import IN_SIGHT, day
from localmem.text.provenance import origin_of
from localmem.times.annotate import show_times, with_spans
from localmem.times.questions import read_question
from localmem.turns.lists import LAST, named_item, split_items
from localmem.turns.reminders import write_reminder
from localmem.turns.utterances import asks_about_replies, asks_only, describe_asking, is_english
from localmem.types import Hit, Recall, Session, Unit, Working

NOT_KNOWN = "You haven't told me that."
CLOSEST = "The closest I have:"
_QUOTED = 3  # turns
_LONGEST = 80  # characters of a turn that are quoted
_LONGEST_LIST = 160  # of one whose list is asked for
_LONGEST_REMINDER = 160
_SHORTEST = 20  # of clauses, if others that say nothing of the answer stand beside them
_SILENT = 0.003  # the part of the answer below which a clause says nothing of it
_QUOTE = '{speaker}: "{passage}"'
_DATED_QUOTE = 'On {day} {speaker}: "{passage}"'
_NAMES_DAY = re.compile(r"\([^()]*\d{4}\)")  # as dates are written behind times
_SAYS = {"user": "you said", "assistant": "I said", "document": "you showed me a text that says"}
_LEAST = 1e-4  # the least probability of a score
_EVEN = 0.5  # the probability of a unit that no search has ranked
_COMPARED = 6  # of the likeliest sentences, which may replace one another
_LONGEST_REQUEST = 200  # characters of a turn below whose reply there is a reminder; a longer one says what it wants


class _Table(BaseModel):
    """The content of reader.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    asks: float
    surely_asks: float
    sure_asks: float
    about_user: float
    about_others: float
    about_assistant: str
    advice: str
    certain: float
    doubted: float
    quoted: float
    place: float
    sure_place: float
    side: float
    beside: float
    answer: float
    clauses: float
    past: str
    listing: str
    whether: str
    replaces: float
    matters: float
    surely_matters: float
    help: str


class _Sentence(NamedTuple):
    """A sentence of a unit as it is quoted, the one before it, the probability of its unit, and its place in a list."""

    text: str
    before: str
    unit: Unit
    likely: float
    item: int


class _QuoteRequest(NamedTuple):
    """What a question asks a quotation for: a whole list, a day, or yes or no."""

    listing: bool
    day: bool
    whether: bool


class _Candidate(NamedTuple):
    """A sentence, the log-odds by which it is put in order, and those by which it is quoted at all."""

    sentence: _Sentence
    rank: float
    sure: float


class Reader:
    """Reads the turns that `evidence` keeps with a scorer of sentences; for many threads.

    `first` scores which sentences one replaces and which instructions matter; by default the scorer does that too.
    Without `words`, which tell what part of a sentence answers, sentences are quoted whole.
    """

    def __init__(self, scorer: Reranker, first: Reranker | None = None, words: WordFinder | None = None) -> None:
        self._scorer = scorer
        self._first = first or scorer
        self._words = words

    def reply(self, dialogue: Session, recall: Recall, hidden: Container[str] = ()) -> str:
        """The reply to the dialogue's last turn, "" where it is left to the backbone. Nothing `hidden` is quoted."""
        question, today = dialogue.turns[-1].text, dialogue.turns[-1].time.date()
        table, asks = _table(), log_odds_of_asking(question, self._scorer)
        about_user = bool(describe_request(question)["self"])
        about_assistant = re.search(table.about_assistant, question, re.IGNORECASE) is not None
        if asks < (table.surely_asks if re.search(table.advice, question, re.IGNORECASE) else table.asks):
            return ""
        hits = [*recall.hits, *_hits_in_sight(dialogue, hidden)]
        sentences = [each for each in _sentences(hits, today) if not asks_only(each.text)]
        candidates = _judge(question, sentences, self._scorer)
        if not _speaks_of_past(question):
            candidates = self._retire(candidates)
        sure = max((candidate.sure for candidate in candidates), default=-inf)
        least = table.about_user if about_user else table.about_others
        if sure >= table.quoted and asks + table.sure_asks * sure >= least:
            quotation = self._quote(question, today, candidates, recall.workings)
            if sure >= table.certain:
                return quotation
            if not about_assistant:
                return _as_closest(quotation) if sure >= table.doubted else _as_unlikely(quotation)
        if asks < table.surely_asks or about_assistant:
            return ""
        if recall.workings:
            return _say_working(recall.workings[0])
        return NOT_KNOWN if about_user else ""

    def remind(self, dialogue: Session, recall: Recall) -> str:
        """What to add to the backbone's reply to a request: what the user said that matters for it, "" without any.

        Nor is anything added that a turn of the dialogue ends with.
        """
        question, today = dialogue.turns[-1].text, dialogue.turns[-1].time.date()
        if not _requests(question):
            return ""
        statements = [hit for hit in recall.hits if hit.unit.kind == STATEMENT]
        candidates = _judge(question, list(_sentences(statements, today)), self._first)
        best = max(candidates, key=_excess, default=None)
        if best is None or _excess(best) < 0:
            return ""
        turn = [each for each in candidates if each.sentence.unit.id == best.sentence.unit.id]
        passage = _passage(turn, turn.index(best), _LONGEST_REMINDER)
        reminder = write_reminder(_say(passage, _read_quote_request(question, today)))
        return "" if any(turn.text.endswith(reminder) for turn in dialogue.turns) else reminder

    def _retire(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """The candidates, where each of the likeliest that a later one replaced has given that one its place.

        Only a sentence that surely answers, too, replaces another: any other is about something else.
        """
        order = sorted(range(len(candidates)), key=lambda number: -candidates[number].rank)
        likely = [number for number in order if candidates[number].sentence.unit.kind == STATEMENT][:_COMPARED]
        answering = [number for number in likely if candidates[number].sure >= _table().certain]
        current = list(candidates)
        for new in sorted(answering, key=lambda number: current[number].sentence.unit.time):
            time = current[new].sentence.unit.time
            earlier = [number for number in likely if current[number].sentence.unit.time < time]
            texts = [_scored_text(current[number].sentence) for number in earlier]
            query = replacement_query(_scored_text(current[new].sentence))
            for old, score in zip(earlier, self._first.score(query, texts), strict=True):
                if log_odds(score, _LEAST) >= _table().replaces:
                    rank, sure = (max(pair) for pair in zip(current[old][1:], current[new][1:], strict=True))
                    current[new] = current[new]._replace(rank=rank, sure=sure)
                    current[old] = current[old]._replace(rank=-inf, sure=-inf)
        return current

    def _quote(self, question: str, today: date, candidates: Sequence[_Candidate], workings: Sequence[Working]) -> str:
        """What was worked out of the likeliest turn with that turn, the list item that is meant, or likely turns."""
        turns, request = _likely_turns(candidates), _read_quote_request(question, today)
        if workings and not set(workings[0].sources).isdisjoint(turns[0][0].sentence.unit.sources):
            return f"{_say_working(workings[0])}\n{_quote_turn(turns[0], request)}"
        if item := _find_item(question, turns):
            return _say([item], request)
        if not asks_about_replies(question) and not _speaks_of_past(question):
            first = turns[0][0].sentence.unit
            turns = [turn for turn in turns if turn[0].sentence.unit.time >= first.time or _kind(turn) != first.kind]
        quoted = turns[:_QUOTED]
        return "\n".join(_quote_turn(turn, request) for turn in self._shorten_turns(question, quoted, request))

    def _shorten_turns(
        self, question: str, turns: Sequence[Sequence[_Candidate]], request: _QuoteRequest
    ) -> Sequence[Sequence[_Candidate]]:
        """The turns; of one whose likeliest sentence says more than the answer, the clauses that answer alone."""
        if self._words is None or request.listing or request.whether:
            return turns
        best = [max(turn, key=lambda candidate: candidate.rank) for turn in turns]
        words = self._words.find_words(question, [_scored_text(candidate.sentence) for candidate in best])
        return [
            [candidate._replace(sentence=candidate.sentence._replace(text=clauses))]
            if not candidate.sentence.item and (clauses := _find_clauses(candidate.sentence, shares))
            else turn
            for turn, candidate, shares in zip(turns, best, words, strict=True)
        ]


def _find_clauses(sentence: _Sentence, words: Sequence[WordShare]) -> str:
    """The fewest clauses side by side with most of the answer, marked where it is cut; "" for a whole sentence."""
    text, start = sentence.text.removesuffix(SAID_BEFORE).rstrip(), len(sentence.unit.speaker) + 2
    clauses = join_lists(text, split_clauses(text))
    shares = [sum(word.share for word in words if begin <= word.start - start < end) for begin, end in clauses]
    if sum(shares) < _table().answer:
        return ""
    first, last = _find_densest(shares, _table().clauses * sum(shares))
    while clauses[last][1] - clauses[first][0] < _SHORTEST:
        silent = [place for place in (first - 1, last + 1) if 0 <= place < len(shares) and shares[place] < _SILENT]
        if not silent:
            break
        least = min(silent, key=lambda place: shares[place])
        first, last = min(first, least), max(last, least)
    if last - first + 1 == len(clauses):
        return ""
    begin, end = (f"{CUT} " if first else ""), (f" {CUT}" if last + 1 < len(clauses) else "")
    before = f" {SAID_BEFORE}" if is_doubtful(sentence.unit) else ""
    return f"{begin}{text[clauses[first][0] : clauses[last][1]].rstrip(',;:')}{end}{before}"


def _find_densest(shares: Sequence[float], least: float) -> tuple[int, int]:
    """The first and the last of the fewest neighbours that share at least so much, of equally many the largest."""
    sums = [0.0, *accumulate(shares)]
    runs = [
        (last - first, sums[first] - sums[last + 1], first, last)
        for first, last in combinations_with_replacement(range(len(shares)), 2)
        if sums[last + 1] - sums[first] >= least
    ]
    return min(runs)[2:] if runs else (0, len(shares) - 1)


def _judge(question: str, sentences: Sequence[_Sentence], scorer: Reranker) -> list[_Candidate]:
    """The sentences in their order. Those of the side that the question is not for are less likely to answer."""
    table, by_user = _table(), not asks_about_replies(question)
    scores = scorer.score(question, [_scored_text(sentence) for sentence in sentences])
    candidates = []
    for sentence, score in zip(sentences, scores, strict=True):
        side = 0.0 if sentence.unit.kind == STATEMENT else -table.side if by_user else table.side
        own, place = log_odds(score, _LEAST) + side, log_odds(sentence.likely, _LEAST)
        candidates.append(_Candidate(sentence, own + table.place * place, own + table.sure_place * place))
    return candidates


def replacement_query(text: str) -> str:
    """The query by which a scorer tells which sentences one replaces, of that one's text as it is scored itself."""
    return f"Now: {text.partition(': ')[2]}"


def _read_quote_request(question: str, today: date) -> _QuoteRequest:
    listing = re.search(_table().listing, question, re.IGNORECASE) is not None
    whether = re.search(_table().whether, question, re.IGNORECASE) is not None
    return _QuoteRequest(listing, "when" in read_question(question, today).kinds, whether)


def _as_closest(quotation: str) -> str:
    return f"{CLOSEST}\n{quotation}" if "\n" in quotation else f"{CLOSEST} {quotation}"


def _as_unlikely(quotation: str) -> str:
    return f"{NOT_KNOWN} {_as_closest(quotation)}"


def _likely_turns(candidates: Sequence[_Candidate]) -> list[list[_Candidate]]:
    """The turns whose likeliest sentence is nearly as likely as the first of all, each with all its sentences."""
    order = sorted(candidates, key=lambda candidate: -candidate.rank)
    near = [each.sentence.unit.id for each in order if each.rank >= order[0].rank - _table().beside]
    return [[each for each in candidates if each.sentence.unit.id == unit] for unit in dict.fromkeys(near)]


def _find_item(question: str, turns: Iterable[Sequence[_Candidate]]) -> _Candidate | None:
    """The item that the question names, of the first turn of the assistant that has so many."""
    number = named_item(question)
    for turn in turns if number else ():
        items = {each.sentence.item: each for each in turn if each.sentence.item}
        if items and _kind(turn) != STATEMENT and (item := items.get(max(items) if number == LAST else number or 0)):
            return item
    return None


def _quote_turn(turn: Sequence[_Candidate], request: _QuoteRequest) -> str:
    """The likeliest sentence: an item alone, another with those around it that the length allows, likelier first."""
    first = max(range(len(turn)), key=lambda number: turn[number].rank)
    longest = (_LONGEST_LIST if request.listing else 0) if turn[first].sentence.item else _LONGEST
    return _say(_passage(turn, first, longest), request)


def _passage(turn: Sequence[_Candidate], first: int, longest: int) -> Sequence[_Candidate]:
    """The sentence of that number and those around it that the length allows, likelier first."""
    last, length = first, len(turn[first].sentence.text)
    while True:
        beside = [number for number in (first - 1, last + 1) if 0 <= number < len(turn)]
        current = [number for number in beside if turn[number].rank > -inf]
        fitting = [number for number in current if length + 1 + len(turn[number].sentence.text) <= longest]
        if not fitting:
            break
        best = max(fitting, key=lambda number: turn[number].rank)
        length += 1 + len(turn[best].sentence.text)
        first, last = min(first, best), max(last, best)
    return turn[first : last + 1]


def _say(passage: Sequence[_Candidate], request: _QuoteRequest) -> str:
    """The sentences as a quotation with the speaker, and with its day unless a day is asked for that they name."""
    unit = passage[0].sentence.unit
    text = " ".join(each.sentence.text for each in passage).replace('"', "'")
    speaker = _SAYS.get(origin_of(unit), "I noted")
    if request.day and _NAMES_DAY.search(text):
        return _QUOTE.format(speaker=speaker[0].upper() + speaker[1:], passage=text)
    return _DATED_QUOTE.format(day=day(unit.time), speaker=speaker, passage=text)


def _kind(turn: Sequence[_Candidate]) -> str:
    return turn[0].sentence.unit.kind


def _speaks_of_past(question: str) -> bool:
    return re.search(_table().past, question, re.IGNORECASE) is not None


def _requests(text: str) -> bool:
    """Whether a turn, in English and not long, asks or tells the assistant to do something."""
    if len(text) > _LONGEST_REQUEST or not is_english(text):
        return False
    wants_help = re.search(_table().help, text, re.IGNORECASE) is not None
    return bool(wants_help or describe_asking(text) or describe_request(text)["task"])


def _excess(candidate: _Candidate) -> float:
    """By how much the log-odds that a sentence matters for a request exceed its limit, lower for an instruction."""
    return candidate.sure - (_table().matters if instructs(candidate.sentence.text) else _table().surely_matters)


def _hits_in_sight(dialogue: Session, hidden: Container[str]) -> list[Hit]:
    """What the user said in sight, which no search returns, and the replies, if they are asked for."""
    sides = ("user", "assistant") if asks_about_replies(dialogue.turns[-1].text) else ("user",)
    earlier = [place for place in places(dialogue)[-IN_SIGHT - 1 : -1] if place.turn.role in sides]
    units = [
        unit
        for place in earlier
        if place.turn.id not in hidden and is_new(place, ())
        for unit in turn_units(dialogue.id, place)
        if unit.id not in hidden
    ]
    return [Hit(unit, _EVEN) for unit in with_spans(units, dialogue.turns, None)]


def _sentences(hits: Iterable[Hit], today: date) -> Iterator[_Sentence]:
    for hit in hits:
        text = show_times(hit.unit, today).replace(OMITTED, " ")
        before = ""
        is_said = hit.unit.kind in (STATEMENT, ANSWER)
        for item, sentence in split_items((is_said and text.partition(": ")[2]) or text):
            yield _Sentence(sentence, before, hit.unit, hit.score, item)
            before = before if item else sentence  # before each item stands what leads to the list


def _scored_text(sentence: _Sentence) -> str:
    """What the scorer was trained to read."""
    return f"{sentence.unit.speaker}: {sentence.text}" + (f" [{sentence.before}]" if sentence.before else "")


def _say_working(working: Working) -> str:
    return working.text[:1].upper() + working.text[1:].rstrip(".") + "."


@cache
def _table() -> _Table:
    return _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
