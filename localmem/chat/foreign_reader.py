"""Foreign reader: answers a question in another language than English by quoting what shares most of its words.

No scorer of sentences knows these languages, so up to three turns are quoted, the newest first, each with its day and
speaker and in words of the question's language. Where little is shared, they are introduced as the closest there is.
What shares nothing is left to the backbone, unless it is about the user. Writes nothing and calls no backbone.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from localmem.chat.quotes import Candidate, Sentence, choose_passage, read_sentences
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.languages import CODES
from localmem.systems.evidence.ranking import log_odds
from localmem.systems.evidence.units import ANSWER, STATEMENT
from localmem.text.provenance import origin_of
from localmem.times.annotate import write_dates
from localmem.turns.readings import Phrases, read_phrases
from localmem.turns.utterances import (
    asks_about_replies,
    asks_only,
    describe_asking,
    language_of,
    opens_request,
    speaks_of_self,
    without_frequent_words,
)
from localmem.types import DateRange, Hit, Unit

_QUOTED = 3  # turns
_LONGEST = 140  # characters of a turn that are quoted
_CERTAIN, _DOUBTED = 0.55, 0.3  # the shares of a question's words from which a turn is quoted as the answer, as close
_BESIDE = 0.12  # how far below the first a turn may be, if it is quoted beside it
_PLACE = 0.05  # what the log-odds of a turn's exchange weigh beside the share of words
_SIDE = 0.3  # what a turn of the other side loses than the one that the question is for
_LEAST = 1e-3  # the least probability of an exchange
_HOME = " homexyz "  # no word of any language
_WITHIN_SENTENCE = re.compile(r"(?<=\w\s)\w{3,}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BLANK = Unit("", "", "", STATEMENT, "", "", (), _EPOCH, _EPOCH)  # of which only the key is read
_STEMMED = {code: name for name, code in CODES.items()}


def quote_by_words(question: str, hits: Iterable[Hit], today: date) -> str:
    """The reply to a question, "" where it is left to the backbone: a request, or what nothing known answers."""
    language = language_of(question)
    phrases = read_phrases().get(language)
    if phrases is None or not asks_only(question):
        return ""
    wants_help = opens_request(question) or bool(describe_asking(question)["advice"])
    sentences = [each for each in read_sentences(hits, today) if not asks_only(each.text)]
    is_own = speaks_of_self(question) or asks_about_replies(question)
    is_about_user = is_own or (language != "de" and _shares_name(question, sentences))
    if sentences and all(language_of(each.text) != language for each in sentences):
        return ""  # words of two languages do not tell whether one answers the other
    turns = _rank(question, language, sentences)
    share = max((candidate.sure for turn in turns for candidate in turn), default=0.0)
    least = _CERTAIN if wants_help else _LEAST if is_about_user else _DOUBTED
    if share >= least and (is_about_user or not any(map(str.isdigit, question))):
        quotation = _quote(turns, phrases, language)
        return quotation if share >= _CERTAIN else f"{phrases.closest}\n{quotation}"
    return phrases.not_known if is_own and not wants_help else ""


def _shares_name(question: str, sentences: Iterable[Sentence]) -> bool:
    """Whether a question has a word that what was said writes with a capital within a sentence; not for German."""
    names = {name.casefold() for each in sentences for name in _WITHIN_SENTENCE.findall(each.text) if name[0].isupper()}
    return not names.isdisjoint(re.findall(r"\w+", question.casefold()))


def _rank(question: str, language: str, sentences: Sequence[Sentence]) -> list[list[Candidate]]:
    """The turns, likeliest first. A candidate is `sure` by the share of words that its turn and itself have."""
    turns: dict[str, list[Sentence]] = {}
    for sentence in sentences:
        turns.setdefault(sentence.unit.id, []).append(sentence)
    texts = [" ".join(sentence.text for sentence in turn) for turn in turns.values()]
    shares = _share_words(question, language, [*texts, *(each.text for turn in turns.values() for each in turn)])
    sentence_shares, ranked = iter(shares[len(texts) :]), list[list[Candidate]]()
    kind = ANSWER if asks_about_replies(question) else STATEMENT
    for turn, share in zip(turns.values(), shares, strict=False):
        side = 0.0 if turn[0].unit.kind == kind else -_SIDE
        place = _PLACE * log_odds(turn[0].hit.score, _LEAST) + side
        sure = [(share + next(sentence_shares)) / 2 for _ in turn]
        ranked.append([Candidate(each, value + place, value) for each, value in zip(turn, sure, strict=True)])
    _lift_corrections(ranked)
    return sorted(ranked, key=lambda turn: -max(candidate.rank for candidate in turn))


def _lift_corrections(turns: Iterable[list[Candidate]]) -> None:
    """Gives a turn that corrects another the rank of that one: it may share no word with the question."""
    by_unit = {turn[0].sentence.unit.id: turn for turn in turns}
    for turn in sorted(by_unit.values(), key=lambda turn: turn[0].sentence.unit.time):
        if correction := by_unit.get(turn[0].sentence.hit.corrected_by):
            best = max(turn, key=lambda candidate: candidate.rank)
            correction[0] = correction[0]._replace(rank=max(best.rank, correction[0].rank))


def _share_words(question: str, language: str, texts: Sequence[str]) -> list[float]:
    """For each text the weight of the question's words that it holds, as a part of all; frequent words do not count."""
    homes = re.compile(read_phrases()[language].homes, re.IGNORECASE)
    question, *texts = [homes.sub(_HOME, text) for text in (question, *texts)]
    words = without_frequent_words(question)
    index = BM25Retriever(language=_STEMMED.get(language, "none"), b=0)
    index.add([replace(_BLANK, id=str(number), key=text) for number, text in enumerate([words, *texts])])
    scores = {int(match.id): match.score for match in index.search([words], len(texts) + 1)[0]}
    return [scores.get(number, 0.0) / scores.get(0, 1.0) for number in range(1, len(texts) + 1)]


def _quote(turns: Sequence[Sequence[Candidate]], phrases: Phrases, language: str) -> str:
    """The likeliest turns, the newest first, each with the sentences that share most."""
    best = [max(turn, key=lambda candidate: candidate.rank) for turn in turns[:_QUOTED]]
    near = [number for number, each in enumerate(best) if each.rank >= best[0].rank - _BESIDE]
    near.sort(key=lambda number: best[number].sentence.unit.time, reverse=True)
    return "\n".join(_quote_turn(turns[number], phrases, language) for number in near)


def _quote_turn(turn: Sequence[Candidate], phrases: Phrases, language: str) -> str:
    first = max(range(len(turn)), key=lambda number: turn[number].rank)
    passage = choose_passage(turn, first, _LONGEST)
    text = " ".join(candidate.sentence.text for candidate in passage).replace('"', "'")
    unit = passage[0].sentence.unit
    form: str = getattr(phrases, origin_of(unit), phrases.noted)
    day = unit.time.date()
    return f'{form.format(day=write_dates(DateRange(day, day), language))}: "{text}"'
