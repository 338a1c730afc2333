"""BM25Retriever: units by the words they share with the query, scored by bm25s.

Knows words only; no weights. A unit is tokenised once. Its term counts then stay in arrays sorted by term, from which
the eager score table of bm25s is made anew by a few vector operations when something has changed: the scores are
always those of an index built from scratch over the units that are there.
"""

import threading
import unicodedata
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import regex  # type: ignore[import-untyped]  # publishes no types
from numpy.typing import NDArray

from localmem.errors import BadSettings
from localmem.retrieval.base import Match
from localmem.retrieval.slots import Slots, best
from localmem.types import Unit

if TYPE_CHECKING:
    from bm25s.tokenization import Tokenizer

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

# Scripts written without spaces, or with endings glued to the word (Korean): runs become characters and pairs.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = regex.compile(
    rf"(?P<run>[{_UNSPACED}][{_UNSPACED}\p{{M}}]*)"
    r"|(?P<picture>\p{Extended_Pictographic}|\p{Regional_Indicator})"
    rf"|(?P<word>[\p{{L}}\p{{N}}--[{_UNSPACED}]](?:[\p{{L}}\p{{M}}\p{{N}}--[{_UNSPACED}]]|'(?=\p{{L}}))*)",
    regex.VERSION1,
)

# The languages that bm25s has stop words for; PyStemmer says itself which ones it stems.
_STOP_WORDS = frozenset({
    "chinese", "danish", "dutch", "english", "french", "german", "italian", "korean", "norwegian", "portuguese",
    "russian", "spanish", "swedish", "turkish",
})  # fmt: skip


def words(text: str) -> list[str]:
    """The words of a text, case folded; of scripts without spaces single characters and neighbouring pairs; emoji."""
    found: list[str] = []
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text).replace("’", "'").casefold()):
        token = match.group()
        if match.lastgroup == "run":
            found += [*token, *(first + second for first, second in pairwise(token))]
        else:
            found.append(token)
    return found


class BM25Retriever:
    """An index over the words of the units' keys; units that share no word with the query are no match.

    `language` sets stemming and stop words, where the libraries have them for it; "none" sets neither. `k1` and `b` are
    BM25's: how soon a repeated word stops counting, and how much long units pay. Scores follow Lucene's formula
    (Kamphuis et al., ECIR 2020, "Which BM25 do you mean?", table 1), which bm25s takes as its own.
    """

    def __init__(self, *, language: str = "english", k1: float = 1.5, b: float = 0.75) -> None:
        import bm25s

        self._tokenizer = _tokenizer(language)
        self._scorer = bm25s.BM25(k1=k1, b=b)
        self._k1, self._b = k1, b
        self._guard = threading.Lock()
        self._slots = Slots()
        self._counts = _Counts()
        self._stale = False

    def add(self, units: Sequence[Unit]) -> None:
        """Tokenise and index the keys of the units that are not there yet."""
        with self._guard:
            new = [units[index] for index in self._slots.unknown([unit.id for unit in units])]
            if new:
                self._counts.add(len(self._slots), self._terms([unit.key for unit in new], learn=True))
                self._slots.add([unit.id for unit in new])
                self._stale = True

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units. Their counts go when a fifth of all are dead."""
        with self._guard:
            if self._slots.remove(ids):
                self._stale = True
                if self._slots.wasteful:
                    self._counts.keep(self._slots.compact())

    def search(self, queries: Sequence[str], k: int) -> list[list[Match]]:
        """BM25 scores above 0, best first."""
        with self._guard:
            if k <= 0 or not self._slots.live:
                return [[] for _ in queries]
            if self._stale:
                self._refresh()
            return [self._matches(terms, k) for terms in self._terms(queries, learn=False)]

    def _terms(self, texts: Sequence[str], *, learn: bool) -> list[list[int]]:
        """The numbers of each text's terms; only units teach new terms, a query's unknown words are left out."""
        ids: list[list[int]] = self._tokenizer.tokenize(
            list(texts), update_vocab=learn, show_progress=False, allow_empty=False
        )
        return ids

    def _matches(self, terms: Sequence[int], k: int) -> list[Match]:
        if not terms:
            return []
        scores: Floats = self._scorer.get_scores_from_ids(terms)
        found = np.flatnonzero(scores > 0)
        order = found[best(scores[found], found, k)]
        return [Match(self._slots.id(int(slot)), float(scores[slot])) for slot in order]

    def _refresh(self) -> None:
        """The score table of bm25s for the units that are there: a column a term, a value for each unit that has it."""
        terms, slots, counts = self._counts.merged()
        alive = self._slots.alive
        live = alive[slots]
        holders = np.bincount(terms[live], minlength=self._counts.vocabulary)  # live units that hold each term
        rarity = np.log1p((self._slots.live - holders + 0.5) / (holders + 0.5))
        lengths = np.bincount(slots, weights=counts, minlength=len(alive))
        mean = lengths[alive].mean() or 1.0
        damping = self._k1 * (1 - self._b + self._b * lengths / mean)
        data = rarity[terms] * counts / (counts + damping[slots])
        data[~live] = 0
        starts = np.concatenate([[0], np.cumsum(np.bincount(terms, minlength=self._counts.vocabulary))])
        self._scorer.nonoccurrence_array = None  # Lucene's formula scores nothing for a word that is not there
        self._scorer.scores = {
            "data": data.astype(np.float32),
            "indices": slots,
            "indptr": starts,
            "num_docs": len(alive),
        }
        self._stale = False


class _Counts:
    """How often each term stands in each slot, sorted by term and then by slot.

    A term and a slot are one number, the term in the upper 32 bits. What is added is merged in when it is asked for.
    """

    def __init__(self) -> None:
        self.vocabulary = 0
        self._keys: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._new: list[NDArray[np.int64]] = []

    def add(self, start: int, units: Sequence[Sequence[int]]) -> None:
        """The terms of the units in the slots from `start` on, which no unit had before."""
        terms = np.fromiter(chain.from_iterable(units), dtype=np.int64)
        slots = np.repeat(np.arange(start, start + len(units)), [len(terms) for terms in units])
        self.vocabulary = max(self.vocabulary, int(terms.max(initial=-1)) + 1)
        self._new.append(terms << 32 | slots)

    def merged(self) -> tuple[Ints, Ints, NDArray[np.int64]]:
        """Terms, slots, counts."""
        if self._new:
            keys, counts = np.unique(np.concatenate(self._new), return_counts=True)
            at = np.searchsorted(self._keys, keys)
            self._keys, self._counts = np.insert(self._keys, at, keys), np.insert(self._counts, at, counts)
            self._new = []
        return (self._keys >> 32).astype(np.int32), self._keys.astype(np.int32), self._counts  # the cast keeps 32 bits

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Only these slots, which become 0, 1, 2, ..."""
        terms, slots, counts = self.merged()
        new_slot = np.full(int(max(kept.max(initial=-1), slots.max(initial=-1))) + 1, -1)
        new_slot[kept] = np.arange(len(kept))
        left = new_slot[slots] >= 0
        self._keys = terms[left].astype(np.int64) << 32 | new_slot[slots[left]]
        self._counts = counts[left]


def _tokenizer(language: str) -> "Tokenizer":
    import Stemmer
    from bm25s.tokenization import Tokenizer

    stems = Stemmer.algorithms()
    known = sorted({*stems, *_STOP_WORDS, "none"})
    if language not in known:
        near = get_close_matches(language, known, n=1)
        cure = f"did you mean {near[0]}?" if near else f"it knows {', '.join(known)}"
        raise BadSettings(f"bm25 knows no language {language!r}; {cure}")
    return Tokenizer(
        lower=False,  # `words` folds case
        splitter=words,
        stopwords=language if language in _STOP_WORDS else [],
        stemmer=Stemmer.Stemmer(language) if language in stems else None,
    )
