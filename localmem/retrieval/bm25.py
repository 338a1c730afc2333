"""BM25Retriever: units by the words they share with the query, with the tokens and the formula of bm25s.

Knows words only; no weights. A unit is tokenised once and its term counts are kept. Scores are worked out at the
search, for the query's terms alone: an addition changes the rarity of words and the mean length, and so every score of
the table that bm25s would keep. They are always those of an index built from scratch over the units that are admitted.
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import regex  # type: ignore[import-untyped]  # publishes no types
from numpy.typing import NDArray

from localmem.errors import BadSettings
from localmem.retrieval.base import Match, Scope
from localmem.retrieval.postings import Found, Postings
from localmem.retrieval.row_ids import RowIds, best, contenders
from localmem.types import Unit

if TYPE_CHECKING:
    from bm25s.tokenization import Tokenizer

Floats = NDArray[np.float64]

_WORD = 150  # bytes of a word, its number and the dicts' entries for them

# Scripts written without spaces, or with endings glued to the word (Korean): runs become characters and pairs.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = regex.compile(
    rf"(?P<run>[{_UNSPACED}][{_UNSPACED}\p{{M}}]*)"
    r"|(?P<picture>\p{Extended_Pictographic}|\p{Regional_Indicator})"
    rf"|(?P<word>[\p{{L}}\p{{N}}--[{_UNSPACED}]](?:[\p{{L}}\p{{M}}\p{{N}}--[{_UNSPACED}]]|'(?=\p{{L}}))*)",
    regex.VERSION1,
)

_ASCII_WORD = re.compile(r"[a-z0-9](?:[a-z0-9]|'(?=[a-z]))*")  # what _TOKEN finds where there are no other letters

# The languages that bm25s has stop words for; PyStemmer says itself which ones it stems.
_STOP_WORDS = frozenset({
    "chinese", "danish", "dutch", "english", "french", "german", "italian", "korean", "norwegian", "portuguese",
    "russian", "spanish", "swedish", "turkish",
})  # fmt: skip


def words(text: str) -> list[str]:
    """The words of a text, case folded; of scripts without spaces single characters and neighbouring pairs; emoji."""
    if text.isascii():  # most English is, and a bank of 100,000 units is read anew at each start
        return _ASCII_WORD.findall(text.lower())
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
        self._tokenizer = _tokenizer(language)
        self._k1, self._b = k1, b
        self._guard = threading.Lock()
        self._slots = RowIds()
        self._counts = Postings()
        self._lengths: Floats = np.zeros(0)

    def add(self, units: Sequence[Unit]) -> None:
        """Tokenise and index the keys of the units that are not there yet."""
        with self._guard:
            new = [units[index] for index in self._slots.unknown([unit.id for unit in units])]
            if not new:
                return
            terms = self._terms([unit.key for unit in new], learn=True)
            start = len(self._slots)
            self._slots.add(new)
            self._counts.add(start, terms)
            self._lengths = np.append(self._lengths, [float(len(found)) for found in terms])

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units. Their counts go when a fifth of all are dead."""
        with self._guard:
            if self._slots.remove(ids) and self._slots.wasteful:
                kept = self._slots.compact()
                self._counts.keep(kept)
                self._lengths = self._lengths[kept]

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """BM25 scores above 0, best first. Rarity and mean length are those of the units within the scope."""
        with self._guard:
            admitted = self._slots.admitted(scope)
            count = int(np.count_nonzero(admitted))
            if k <= 0 or not count:
                return [[] for _ in queries]
            mean = float((self._lengths if count == len(admitted) else self._lengths[admitted]).mean()) or 1.0
            return [
                self._matches(self._scores(terms, admitted, count, mean), k)
                for terms in self._terms(queries, learn=False)
            ]

    @property
    def memory(self) -> int:
        """Bytes of the counts, the lengths, the words and the ids, about."""
        words = len(self._tokenizer.get_vocab_dict()) * _WORD
        return self._counts.memory + self._lengths.nbytes + words + self._slots.memory

    def _terms(self, texts: Sequence[str], *, learn: bool) -> list[list[int]]:
        """The numbers of each text's terms; only units teach new terms, a query's unknown words are left out."""
        ids: list[list[int]] = self._tokenizer.tokenize(
            list(texts), update_vocab=learn, show_progress=False, allow_empty=False
        )
        return ids

    def _scores(self, terms: Sequence[int], admitted: NDArray[np.bool_], count: int, mean: float) -> Floats:
        """For each slot its score, 0 for one that shares no term or is not admitted. A repeated term counts again."""
        times = Counter(terms)
        found = self._counts.of(list(times))
        everything = count == len(admitted)
        holders = found.sizes.sum(axis=0) if everything else _admitted(found, admitted)
        rarity = np.log1p((count - holders + 0.5) / (holders + 0.5)) * np.fromiter(times.values(), dtype=np.float64)
        # What is done for each entry is done in place, at single precision: there are hundreds of thousands of them.
        damped = found.lengths * np.float32(self._k1 * self._b / mean)
        damped += np.float32(self._k1 * (1 - self._b))
        damped += found.counts
        shares = found.spread(rarity.astype(np.float32))
        shares *= found.counts
        shares /= damped
        scores = np.bincount(found.slots, shares, minlength=len(admitted)).astype(np.float64, copy=False)
        return scores if everything else scores * admitted

    def _matches(self, scores: Floats, k: int) -> list[Match]:
        found = contenders(scores, k)
        found = found[scores[found] > 0]
        order = found[best(scores[found], found, k)]
        return self._slots.matches(order, scores[order])


def _admitted(found: Found, admitted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How many admitted slots hold each term."""
    terms = found.sizes.shape[1]
    held = np.bincount(found.spread(np.arange(terms)), admitted[found.slots], minlength=terms)
    return held.astype(np.float64, copy=False)


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
