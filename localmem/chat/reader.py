"""Reader: answers a question about the user by quoting what was said, for backbones too small to read memory well.

- A reranker trained on sentences scores each sentence of what was recalled and of the open dialogue. The turns with the
  best ones are quoted with day and speaker, long turns in part, and of a list the item that is asked for.
- Of a sentence that says more than the answer the clauses are quoted that answer, where the scorer can tell which.
- For a question about the present, a sentence that a later one replaced is left out, and so are turns before the best.
- A correction is quoted in place of what it corrects, or before it, if it says too little by itself.
- A line that was worked out from the best turn is put before its quotation.
- A less likely answer is introduced as "the closest I have", and an unlikely one also as not told; one that is less
  likely still is not quoted, but denied. Where nothing answers at all, a question is denied that is surely about the
  user, or about somebody of whom the user told.
- Every other turn is left to the backbone, and so is what nothing surely answers of a question about the assistant
  itself and of a turn with a verb in which no word asks, for it may be a statement. The backbone's reply to a request
  is followed by a reminder of an instruction, or of something else, that matters.

Whether a turn asks is decided by its words and the scorer's vector of it; a turn in another language is read by
`foreign_reader`. Writes nothing and calls no backbone.
"""

import re
from collections.abc import Container, Iterable, Sequence
from datetime import date
from functools import cache
from itertools import pairwise
from math import inf, nextafter
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from localmem.chat.answer_clauses import choose_clauses
from localmem.chat.foreign_reader import quote_by_words
from localmem.chat.quotes import (
    Candidate,
    QuoteRequest,
    Sentence,
    as_closest,
    as_unlikely,
    choose_passage,
    find_corrections,
    is_remainder,
    quote_passage,
    quote_turn,
    read_sentences,
    scored_text,
    share_words,
    wants_text,
)
from localmem.files import read_yaml
from localmem.retrieval.base import Reranker, WordFinder, WordShare
from localmem.systems.evidence.asking import log_odds_of_asking
from localmem.systems.evidence.dependents import SAID_BEFORE
from localmem.systems.evidence.instructions import instructs
from localmem.systems.evidence.ranking import log_odds
from localmem.systems.evidence.relevance import describe_request
from localmem.systems.evidence.units import ANSWER, STATEMENT, first_unit, is_new, places, turn_units
from localmem.text.clauses import CUT
from localmem.text.dialogue import IN_SIGHT
from localmem.times.annotate import with_spans
from localmem.times.questions import read_question
from localmem.turns.acquaintances import names_acquaintance
from localmem.turns.lists import find_enumerated, named_item, place_in
from localmem.turns.readings import NOT_KNOWN
from localmem.turns.reminders import write_reminder
from localmem.turns.subjects import may_share_subject
from localmem.turns.utterances import (
    asks_about_past,
    asks_about_replies,
    asks_only,
    describe_asking,
    has_verb,
    is_correction,
    is_english,
)
from localmem.types import Hit, Recall, Session, Unit, Working

_QUOTED = 3  # turns
_LONGEST_REMINDER = 160
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
    unlikely: float
    denied: float
    place: float
    sure_place: float
    side: float
    beside: float
    answer: float
    clauses: float
    past: str
    outcome: str
    listing: str
    whether: str
    text: str
    replaces: float
    matters: float
    surely_matters: float
    help: str
    confides: str


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
        if not is_english(question):
            return quote_by_words(question, [*recall.hits, *_hits_in_sight(dialogue, hidden)], today)
        table, asks = _table(), log_odds_of_asking(question, self._scorer)
        about_assistant = re.search(table.about_assistant, question, re.IGNORECASE) is not None
        may_guess = bool(describe_asking(question) or not has_verb(question)) and not about_assistant
        if asks < (table.surely_asks if re.search(table.advice, question, re.IGNORECASE) else table.asks):
            return ""
        hits = [*recall.hits, *_hits_in_sight(dialogue, hidden)]
        about_user, request = _is_about_user(question, hits), _read_quote_request(question, today)
        asking = {ANSWER} if request.text else set[str]()  # whose questions are quoted, too
        sentences = [
            each for each in read_sentences(hits, today) if each.unit.kind in asking or not asks_only(each.text)
        ]
        candidates = _judge(question, sentences, self._scorer)
        if not asks_about_past(question):
            candidates = self._correct(candidates)
        if not _speaks_of_past(question):
            candidates = self._retire(candidates)
        sure = max((candidate.sure for candidate in candidates), default=-inf)
        is_meant = about_user or (asks_about_replies(question) and sure >= table.certain)
        least = table.about_user if is_meant else table.about_others
        answers = sure >= table.denied and asks + table.sure_asks * sure >= least
        if answers and (may_guess or sure >= table.certain):
            quotation = self._quote(question, request, candidates, recall.workings)
            return _introduce(quotation, sure, is_text=request.text)
        if asks < table.surely_asks or about_assistant:
            return ""
        if recall.workings:
            return _say_working(recall.workings[0])
        return NOT_KNOWN if about_user and may_guess else ""

    def remind(self, dialogue: Session, recall: Recall) -> str:
        """What to add to the backbone's reply to a request: what the user said that matters for it, "" without any.

        Nor is anything added that a turn of the dialogue ends with.
        """
        question, today = dialogue.turns[-1].text, dialogue.turns[-1].time.date()
        if not _requests(question):
            return ""
        statements = [hit for hit in recall.hits if hit.unit.kind == STATEMENT]
        candidates = _judge(question, list(read_sentences(statements, today)), self._first)
        best = max(candidates, key=_excess, default=None)
        if best is None or _excess(best) < 0:
            return ""
        place, candidates = candidates.index(best), self._correct(candidates)
        while (best := candidates[place]).sentence.is_corrected:
            later = [n for n, each in enumerate(candidates) if each.sentence.unit.id == best.sentence.hit.corrected_by]
            place = max(later, key=lambda number: candidates[number].rank)
        turn = [each for each in candidates if each.sentence.unit.id == best.sentence.unit.id]
        passage = choose_passage(turn, turn.index(best), _LONGEST_REMINDER)
        reminder = write_reminder(quote_passage(passage, _read_quote_request(question, today)))
        return "" if any(turn.text.endswith(reminder) for turn in dialogue.turns) else reminder

    def _correct(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, where each sentence that was corrected has given its place to what corrects it.

        It is still quoted after a correction that does not surely answer by itself ("Scrap that, it's Friday now").
        """
        current = list(candidates)
        hits = {candidate.sentence.unit.id: candidate.sentence.hit for candidate in candidates}
        for hit in sorted(hits.values(), key=lambda hit: hit.unit.time):
            news = [n for n, each in enumerate(current) if each.sentence.unit.id == hit.corrected_by]
            if not news:
                continue
            olds = [n for n, each in enumerate(current) if each.sentence.unit.id == hit.unit.id]
            new = max(news, key=lambda number: current[number].rank)
            query = replacement_query(scored_text(current[new].sentence))
            scores = self._first.score(query, [scored_text(current[number].sentence) for number in olds])
            old = olds[scores.index(max(scores))]
            rank, sure = (max(pair) for pair in zip(current[old][1:], current[new][1:], strict=True))
            corrected = current[old].sentence._replace(is_corrected=True)
            is_clear = current[new].sure >= _table().certain and share_words(corrected, current[new].sentence)
            lower = -inf if is_clear else min(current[old].rank, nextafter(rank, -inf))
            current[old] = Candidate(corrected, lower, -inf)
            current[new] = current[new]._replace(rank=rank, sure=sure)
        return current

    def _retire(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, where each of the likeliest that a later one replaced has given that one its place.

        Only a sentence that surely answers, too, replaces another, and none of another person or what is left of one:
        any other is about something else.
        """
        order = sorted(range(len(candidates)), key=lambda number: -candidates[number].rank)
        likely = [number for number in order if candidates[number].sentence.unit.kind == STATEMENT][:_COMPARED]
        answering = [number for number in likely if candidates[number].sure >= _table().certain]
        current = list(candidates)
        for new in sorted(answering, key=lambda number: current[number].sentence.unit.time):
            time = current[new].sentence.unit.time
            earlier = [
                number
                for number in likely
                if current[number].sentence.unit.time < time
                and not is_remainder(current[number].sentence)
                and may_share_subject(current[number].sentence.text, current[new].sentence.text)
            ]
            texts = [scored_text(current[number].sentence) for number in earlier]
            query = replacement_query(scored_text(current[new].sentence))
            for old, score in zip(earlier, self._first.score(query, texts), strict=True):
                if log_odds(score, _LEAST) >= _table().replaces:
                    rank, sure = (max(pair) for pair in zip(current[old][1:], current[new][1:], strict=True))
                    current[new] = current[new]._replace(rank=rank, sure=sure)
                    current[old] = current[old]._replace(rank=-inf, sure=-inf)
        return current

    def _quote(
        self, question: str, request: QuoteRequest, candidates: Sequence[Candidate], workings: Sequence[Working]
    ) -> str:
        """What was worked out of the likeliest turn with that turn, the list item that is meant, or likely turns."""
        turns = _likely_turns(candidates)
        if workings and not set(workings[0].sources).isdisjoint(turns[0][0].sentence.unit.sources):
            return f"{_say_working(workings[0])}\n{quote_turn(turns[0], request)}"
        if item := _find_item(question, turns):
            return quote_passage([item], request)
        if not asks_about_replies(question) and not _speaks_of_past(question):
            first = turns[0][0].sentence.unit
            turns = [turn for turn in turns if _is_current(turn, first)]
        quoted = turns[:_QUOTED]
        return "\n".join(quote_turn(turn, request) for turn in self._shorten_turns(question, quoted, request))

    def _shorten_turns(
        self, question: str, turns: Sequence[Sequence[Candidate]], request: QuoteRequest
    ) -> Sequence[Sequence[Candidate]]:
        """The turns; of one whose likeliest sentence says more than the answer, the clauses that answer alone."""
        if self._words is None or request.listing or request.whether:
            return turns
        best = [max(turn, key=lambda candidate: candidate.rank) for turn in turns]
        words = self._words.find_words(question, [scored_text(candidate.sentence) for candidate in best])
        return [
            [
                candidate._replace(sentence=candidate.sentence._replace(text=clauses)),
                *find_corrections(turn, turn.index(candidate)),
            ]
            if not (wants_text(turn, request) or candidate.sentence.item or candidate.sentence.is_corrected)
            and (clauses := _find_clauses(candidate.sentence, shares))
            else turn
            for turn, candidate, shares in zip(turns, best, words, strict=True)
        ]


def _introduce(quotation: str, sure: float, *, is_text: bool) -> str:
    """The quotation as its certainty allows: alone, as the closest, behind a denial, or the denial alone."""
    table = _table()
    if sure >= table.certain:
        return quotation
    if sure >= table.doubted or is_text:
        return as_closest(quotation)
    return as_unlikely(quotation) if sure >= table.unlikely else NOT_KNOWN


def _find_clauses(sentence: Sentence, words: Sequence[WordShare]) -> str:
    """The clauses that answer, marked where the sentence is cut; "" for a whole one."""
    start, table = len(sentence.unit.speaker) + 2, _table()
    own = [word._replace(start=word.start - start, end=word.end - start) for word in words]
    clauses = choose_clauses(sentence.text.replace(f" {SAID_BEFORE}", ""), own, table.answer, table.clauses)
    return f"{clauses.rstrip('.!')} {SAID_BEFORE}" if clauses and SAID_BEFORE in sentence.text else clauses


def _judge(question: str, sentences: Sequence[Sentence], scorer: Reranker) -> list[Candidate]:
    """The sentences in their order. Those of the side that the question is not for are less likely to answer."""
    table, by_user = _table(), not asks_about_replies(question)
    scores = scorer.score(question, [scored_text(sentence) for sentence in sentences])
    candidates = []
    for sentence, score in zip(sentences, scores, strict=True):
        side = 0.0 if sentence.unit.kind == STATEMENT else -table.side if by_user else table.side
        own, place = log_odds(score, _LEAST) + side, log_odds(sentence.hit.score, _LEAST)
        candidates.append(Candidate(sentence, own + table.place * place, own + table.sure_place * place))
    return candidates


def replacement_query(text: str) -> str:
    """The query by which a scorer tells which sentences one replaces, of that one's text as it is scored itself."""
    return f"Now: {text.partition(': ')[2]}"


def _read_quote_request(question: str, today: date) -> QuoteRequest:
    listing = re.search(_table().listing, question, re.IGNORECASE) is not None
    whether = re.search(_table().whether, question, re.IGNORECASE) is not None
    text = asks_about_replies(question) and re.search(_table().text, question, re.IGNORECASE) is not None
    return QuoteRequest(listing, "when" in read_question(question, today).kinds, whether, text)


def _likely_turns(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """The turns whose likeliest sentence is nearly as likely as the first of all, each with all its sentences."""
    order = sorted(candidates, key=lambda candidate: -candidate.rank)
    near = [each.sentence.unit.id for each in order if each.rank >= order[0].rank - _table().beside]
    return [[each for each in candidates if each.sentence.unit.id == unit] for unit in dict.fromkeys(near)]


def _find_item(question: str, turns: Iterable[Sequence[Candidate]]) -> Candidate | None:
    """The item that the question names, of the first turn of the assistant that has so many."""
    number = named_item(question)
    if number is None:
        return None
    for turn in (turn for turn in turns if _kind(turn) != STATEMENT):
        items = {each.sentence.item: each for each in turn if each.sentence.item}
        if items and (item := items.get(place_in(max(items), number))):
            return item
        best = max(turn, key=lambda candidate: candidate.rank)
        if not items and (text := find_enumerated(question, best.sentence.text)):
            return best._replace(sentence=best.sentence._replace(text=f"{CUT} {text} {CUT}"))
    return None


def _is_current(turn: Sequence[Candidate], first: Unit) -> bool:
    """Whether a turn is no older than the likeliest one, nor of its side, or shows what that corrects."""
    is_late = turn[0].sentence.unit.time >= first.time or _kind(turn) != first.kind
    return is_late or turn[0].sentence.hit.corrected_by == first.id


def _kind(turn: Sequence[Candidate]) -> str:
    return turn[0].sentence.unit.kind


def _speaks_of_past(question: str) -> bool:
    """Whether a question has a word of the past, and none of how things turned out."""
    past, outcome = (re.search(words, question, re.IGNORECASE) for words in (_table().past, _table().outcome))
    return past is not None and outcome is None


def _requests(text: str) -> bool:
    """Whether a turn, in English and not long, asks or tells the assistant to do something."""
    if len(text) > _LONGEST_REQUEST or not is_english(text):
        return False
    text = re.sub(_table().confides, " ", text, flags=re.IGNORECASE)
    wants_help = re.search(_table().help, text, re.IGNORECASE) is not None
    return bool(wants_help or describe_asking(text) or describe_request(text)["task"])


def _excess(candidate: Candidate) -> float:
    """By how much the log-odds that a sentence matters for a request exceed its limit, lower for an instruction."""
    return candidate.sure - (_table().matters if instructs(candidate.sentence.text) else _table().surely_matters)


def _is_about_user(question: str, hits: Iterable[Hit]) -> bool:
    """Whether a question names the user, or somebody of whom the user has told."""
    statements = (hit.unit.text.partition(": ")[2] for hit in hits if hit.unit.kind == STATEMENT)
    return bool(describe_request(question)["self"]) or names_acquaintance(question, statements)


def _hits_in_sight(dialogue: Session, hidden: Container[str]) -> list[Hit]:
    """What the user said in sight, which no search returns, and replies but the reader's own, if they are asked for."""
    sides = ("user", "assistant") if asks_about_replies(dialogue.turns[-1].text) else ("user",)
    earlier = [place for place in places(dialogue)[-IN_SIGHT - 1 : -1] if place.turn.role in sides]
    units = [
        unit
        for place in earlier
        if place.turn.id not in hidden and is_new(place, ())
        for unit in turn_units(dialogue.id, place)
        if unit.id not in hidden
    ]
    user_turns = (turn for turn in dialogue.turns if turn.role == "user")
    corrections = {first_unit(old): first_unit(new) for old, new in pairwise(user_turns) if is_correction(new.text)}
    return [Hit(unit, _EVEN, corrections.get(unit.id, "")) for unit in with_spans(units, dialogue.turns, None)]


def _say_working(working: Working) -> str:
    return working.text[:1].upper() + working.text[1:].rstrip(".") + "."


@cache
def _table() -> _Table:
    return _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
