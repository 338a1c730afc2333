"""ViewRetriever: exchanges searched from several sides, by the words of both turns and by single sentences.

A unit of an exchange is one of its turns. It is indexed by its key (the exchange so far) and by each sentence of its
text, and matches count for the exchange. Does not depend on how the inner indexes search.

What an encoder reads of a unit is a function of the unit alone (`index_texts`), so an erasure finds all of its vectors.
"""

import re
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from localmem.retrieval.base import Match, ReadsAhead, Retriever, Scope, require_aware
from localmem.retrieval.bm25 import language_of
from localmem.retrieval.hybrid import fuse_ranks
from localmem.types import Unit

SIDE_MARK = "@"  # between the id of an exchange and that of one of its turns; stands in URLs as it is
_VIEW_MARK = "\t"  # between the id of a unit and that of one of its texts
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_SHORTEST = 12  # characters of a sentence that is indexed by itself

# Chosen on the scenarios of authors a, b and d and on half of LoCoMo's questions: a view by whole turns adds nothing to
# these, plain BM25 serves chats with an assistant, and BM25 with the exchange before it those of two people.
_WEIGHTS = {"exchange": 1.0, "sentence": 1.0, "words": 0.7, "context": 0.7}
_FOREIGN = 0.3  # of a vector's view, where the encoder does not know the question's language
FUSION_CONSTANT = 5.0
_DEPTH = 50  # exchanges of each view that are fused
_ROWS = 4  # texts looked at for each exchange wanted: an exchange has several
_THREADS = ThreadPoolExecutor(64, "localmem-view")  # starts a thread when it is first needed


class Indexes(NamedTuple):
    """The inner indexes: vectors, words, and words together with the exchange before; None for what is not used."""

    dense: Retriever | None
    words: Retriever | None
    context: Retriever | None


class SentenceMatch(NamedTuple):
    """A sentence by its unit and its number among the unit's `index_texts`, and its cosine."""

    unit: str
    number: int
    score: float


def exchange_of(unit_id: str) -> str:
    """The exchange that a unit belongs to: its id up to the mark, or the whole id of a unit without one."""
    return unit_id.rpartition(SIDE_MARK)[0] or unit_id


@lru_cache(maxsize=4096)  # a turn is compared with the same statements as the one before it
def split_sentences(text: str) -> tuple[str, ...]:
    """The sentences and lines of a text, without very short ones."""
    return tuple(part for piece in _SENTENCE_END.split(text) if len(part := piece.strip()) >= _SHORTEST)


def index_texts(unit: Unit) -> tuple[str, ...]:
    """All texts of a unit that an encoder may read, the key first."""
    sentences = split_sentences(_own_words(unit)) if SIDE_MARK in unit.id else ()
    return (unit.key, *(sentence for sentence in sentences if sentence != unit.key))


def _own_words(unit: Unit) -> str:
    return unit.text.removeprefix(f"{unit.speaker}: ")


class ViewRetriever:
    """Returns one unit for each matching exchange, the one with the best text; scores are fused ranks.

    `languages` are those that the encoder knows; none given, it knows all. To a question in another language the words
    count for more than the vectors.
    """

    def __init__(self, indexes: Indexes, languages: Collection[str] = ()) -> None:
        self._indexes = indexes
        self._languages = languages
        self._guard = threading.Lock()
        self._rows: dict[str, int] = {}  # texts of each unit

    def add(self, units: Sequence[Unit]) -> None:
        with self._guard:
            new = [unit for unit in units if unit.id not in self._rows]
            for unit in new:
                require_aware(unit.time, f"the time of unit {unit.id!r}")
            texts = [index_texts(unit) for unit in new]
            self._rows |= {unit.id: len(views) for unit, views in zip(new, texts, strict=True)}
        try:
            self._index(new, texts)
        except BaseException:  # an interruption too: units that are recorded here are never indexed again
            self.remove([unit.id for unit in new])
            raise

    def _index(self, units: Sequence[Unit], texts: Sequence[Sequence[str]]) -> None:
        dense, words, context = self._indexes
        if dense:
            dense.add(
                [
                    replace(unit, id=f"{unit.id}{_VIEW_MARK}{number}", key=text)
                    for unit, views in zip(units, texts, strict=True)
                    for number, text in enumerate(views)
                ]
            )
        if words:
            words.add(units)
        if context:
            context.add([unit for unit in units if _is_reply(unit)])

    def remove(self, ids: Sequence[str]) -> None:
        with self._guard:
            rows = [f"{unit_id}{_VIEW_MARK}{number}" for unit_id in ids for number in range(self._rows.pop(unit_id, 0))]
        dense, *lexical = self._indexes
        if dense:
            dense.remove(rows)
        for index in filter(None, lexical):
            index.remove(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        if k <= 0:
            return [[] for _ in queries]
        depth = max(k, _DEPTH)
        views = self._rank(queries, depth, scope)
        return [_fuse(view, self._weights(query), depth)[:k] for query, view in zip(queries, views, strict=True)]

    def search_views(self, query: str, k: int, scope: Scope | None = None) -> dict[str, list[Match]]:
        """At most `k` matches of each view by itself, as they are before their ranks are fused."""
        (views,) = self._rank([query], max(k, _DEPTH), scope)
        return {name: list(matches)[:k] for name, matches in views.items()}

    def _rank(self, queries: Sequence[str], depth: int, scope: Scope | None) -> list[dict[str, Sequence[Match]]]:
        dense, words, context = self._indexes
        lexical = {"words": words, "context": context}
        searches = {
            name: _THREADS.submit(copy_context().run, index.search, queries, 2 * depth, scope)
            for name, index in lexical.items()
            if index
        }
        rows = dense.search(queries, _ROWS * depth, scope) if dense else [[] for _ in queries]
        views = [_split_views(matches) for matches in rows]
        for name, search in searches.items():
            for view, matches in zip(views, search.result(), strict=True):
                view[name] = matches
        return views

    def _weights(self, query: str) -> dict[str, float]:
        language = language_of(query) if self._languages else None
        factor = _FOREIGN if language is not None and language not in self._languages else 1.0
        return _WEIGHTS | {view: factor * _WEIGHTS[view] for view in ("exchange", "sentence")}

    def read_ahead(self, units: Sequence[Unit]) -> None:
        """Encode all texts of units together whose sentences are about to be searched for, and which are then added."""
        dense: object = self._indexes.dense
        if isinstance(dense, ReadsAhead):
            dense.read_ahead([text for unit in units for text in index_texts(unit)])

    def search_sentences(self, texts: Sequence[str], k: int) -> list[list[SentenceMatch]]:
        """For each text at most `k` sentences by their cosine, nearest first; none without an index of vectors."""
        rows = self._indexes.dense.search(texts, k) if self._indexes.dense else [[] for _ in texts]
        return [[_sentence(row) for row in matches if not row.id.endswith(f"{_VIEW_MARK}0")] for matches in rows]

    @property
    def memory(self) -> int:
        return sum(index.memory for index in self._indexes if index)


def _sentence(row: Match) -> SentenceMatch:
    unit_id, _, number = row.id.rpartition(_VIEW_MARK)
    return SentenceMatch(unit_id, int(number), row.score)


def _is_reply(unit: Unit) -> bool:
    """Whether the unit ends an exchange, so that its key holds the request too."""
    return unit.id.rpartition(SIDE_MARK)[2].startswith("a")


def _split_views(rows: Sequence[Match]) -> dict[str, Sequence[Match]]:
    """The rows of vectors by view: a unit's first text is its exchange, the others are sentences."""
    views: dict[str, list[Match]] = {"exchange": [], "sentence": []}
    for row in rows:
        unit_id, _, number = row.id.rpartition(_VIEW_MARK)
        views["exchange" if number == "0" else "sentence"].append(Match(unit_id, row.score))
    return dict(views)


def _fuse(views: Mapping[str, Sequence[Match]], weights: Mapping[str, float], depth: int) -> list[Match]:
    """The exchanges by fused rank, each as the unit that has the best sentence, else as the first that matched."""
    units: dict[str, dict[str, str]] = {name: {} for name in views}  # the first of each exchange
    for name, matches in views.items():
        for match in matches:
            units[name].setdefault(exchange_of(match.id), match.id)
    rankings = [(weights[name], list(first)[:depth]) for name, first in units.items()]
    best_units: dict[str, str] = {}
    for name in ("context", "exchange", "words", "sentence"):
        best_units |= units.get(name, {})
    return [Match(best_units[exchange], score) for exchange, score in fuse_ranks(rankings, FUSION_CONSTANT)]
