"""BM25Retriever: units by the words they share with the query, with the terms and the formula of bm25s.

Loads no weights. A unit is tokenised once and its term counts are stored. Scores are computed at the search, for the
query's terms alone: each addition changes the rarity of words and the mean length, and with them every score of the
table that bm25s would store. So scores are always those of an index built from scratch over the units in scope.
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import regex
from numpy.typing import NDArray

from localmem.errors import BadSettings
from localmem.retrieval.base import Match, Scope
from localmem.retrieval.languages import STOP_WORDS, detect_language, fold_accents, load_stop_words
from localmem.retrieval.row_ids import RowIds, top_candidates, top_k
from localmem.types import Unit

# Why not a dict of lists, one for each term: a bank grows by a few units at a time, between searches, and a new unit
# would append to as many lists as it has terms. Here a term and a row form one number, the term in the upper 32 bits,
# and all of these lie in sorted arrays ("runs"). All rows of a term are neighbours then, found by two binary searches
# and read without a copy, and adding a unit is one small sorted array.
#
# Why several runs: to insert into one array copies all of it for each addition. An addition is a run of its own, and a
# run is merged into the one before it as soon as it is at least a quarter of its size, as in a log-structured merge
# tree. So each entry is copied a number of times that is logarithmic in the size of the bank, and a look-up reads
# few runs (fewer than 8 after 61 additions, as the test asserts).
#
# Why the length of a row (how many terms it holds) is stored with each entry, although it is the same for all terms of
# a row: BM25 needs it for every entry, and gathering it row by row jumps through memory. Over 100,000 units, keeping
# it here and sorting only candidates (`top_candidates`) took a question's scores from 3.6 to 1.6 ms.
#
# Why a question's terms are looked up together: each numpy call costs microseconds whatever its size, and a question
# of 40 words over 1,000 units has short lists. One call for all terms took 0.28 ms in place of 0.64.

_K1 = 1.5  # of the formula: how soon a repeated word stops counting

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Run:
    """Sorted keys, how often the term occurs in the row, and the row's length; float32 counts exactly up to 2^24."""

    keys: Ints
    counts: Floats
    lengths: Floats

    @property
    def memory(self) -> int:
        return self.keys.nbytes + self.counts.nbytes + self.lengths.nbytes


@dataclass(frozen=True, slots=True)
class Entries:
    """One entry for each pair of a term and a row that holds it.

    `rows`, `counts` and `lengths` run over the entries: by run, and within a run by term. `sizes` (runs x terms) says
    how many entries each term has in each run.
    """

    rows: Ints
    counts: Floats
    lengths: Floats
    sizes: Ints

    def spread(self, values: NDArray[Number]) -> NDArray[Number]:
        """For each entry the value of its term."""
        spread: NDArray[Number] = np.repeat(np.tile(values, len(self.sizes)), self.sizes.ravel())
        return spread


_ROW_BITS = 0xFFFFFFFF
_MERGE_RATIO = 4  # a run is merged into the one before it from this part of its size


class Postings:
    """Empty at first. Not locked: the index that owns it is."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    @property
    def memory(self) -> int:
        return sum(run.memory for run in self._runs)

    def add(self, start: int, units: Sequence[Sequence[int]]) -> None:
        terms = np.fromiter(chain.from_iterable(units), dtype=np.int64)
        lengths = [len(terms) for terms in units]
        rows = np.repeat(np.arange(start, start + len(units)), lengths)
        keys, counts = np.unique(terms << 32 | rows, return_counts=True)
        row_lengths = np.array(lengths, dtype=np.float32)[(keys & _ROW_BITS) - start]
        self._runs.append(_Run(keys, counts.astype(np.float32), row_lengths))
        while len(self._runs) > 1 and len(self._runs[-1].keys) * _MERGE_RATIO >= len(self._runs[-2].keys):
            newest = self._runs.pop()
            self._runs.append(_merge(self._runs.pop(), newest))

    def lookup(self, terms: Sequence[int]) -> Entries:
        """The entries of these terms, which must be different."""
        keys = np.array(terms, dtype=np.int64)
        starts = np.array([np.searchsorted(run.keys, keys << 32) for run in self._runs], dtype=np.int64)
        ends = np.array([np.searchsorted(run.keys, (keys + 1) << 32) for run in self._runs], dtype=np.int64)
        slices = [
            (run, slice(*bounds))
            for run, *lists in zip(self._runs, starts.tolist(), ends.tolist(), strict=True)
            for bounds in zip(*lists, strict=True)
        ]
        return Entries(
            rows=_gather(slices, lambda run: run.keys, np.int64) & _ROW_BITS,
            counts=_gather(slices, lambda run: run.counts, np.float32),
            lengths=_gather(slices, lambda run: run.lengths, np.float32),
            sizes=ends - starts,
        )

    def select(self, rows: NDArray[np.intp]) -> None:
        self._runs = [_select(run, rows) for run in self._runs]


def _gather(
    slices: Sequence[tuple[_Run, slice]], field: Callable[[_Run], NDArray[np.generic]], dtype: type[np.generic]
) -> NDArray[Any]:
    return np.concatenate([field(run)[part] for run, part in slices]) if slices else np.zeros(0, dtype=dtype)


def _merge(older: _Run, newer: _Run) -> _Run:
    places = np.searchsorted(older.keys, newer.keys)
    return _Run(
        np.insert(older.keys, places, newer.keys),
        np.insert(older.counts, places, newer.counts),
        np.insert(older.lengths, places, newer.lengths),
    )


def _select(run: _Run, rows: NDArray[np.intp]) -> _Run:
    run_rows = run.keys & _ROW_BITS
    renumbered = np.searchsorted(rows, run_rows)
    present = np.zeros(len(run_rows), dtype=np.bool_)
    if len(rows):
        present = rows[np.minimum(renumbered, len(rows) - 1)] == run_rows
    keys = run.keys[present] >> 32 << 32 | renumbered[present]
    return _Run(keys, run.counts[present], run.lengths[present])


Scores = NDArray[np.float64]

_WORD_BYTES = 200  # of a word, its numbers and the dicts' entries for them

# Scripts written without spaces, or with endings attached to the word (Korean): runs become characters and pairs.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = regex.compile(
    rf"(?P<run>[{_UNSPACED}][{_UNSPACED}\p{{M}}]*)"
    r"|(?P<picture>\p{Extended_Pictographic}|\p{Regional_Indicator})"
    rf"|(?P<word>[\p{{L}}\p{{N}}--[{_UNSPACED}]](?:[\p{{L}}\p{{M}}\p{{N}}--[{_UNSPACED}]]|'(?=\p{{L}}))*)",
    regex.VERSION1,
)

_ASCII_WORD = re.compile(r"[a-z0-9](?:[a-z0-9]|'(?=[a-z]))*")  # what _TOKEN matches in a text of ASCII letters


def words(text: str) -> list[str]:
    """The words of a text, case folded; of scripts without spaces single characters and neighbouring pairs; emoji."""
    if text.isascii():  # as most English is; a large bank is tokenised at each start, and this pattern is much faster
        return _ASCII_WORD.findall(text.lower())
    tokens: list[str] = []
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text).replace("’", "'").casefold()):
        token = match.group()
        if match.lastgroup == "run":
            tokens += [*token, *(first + second for first, second in pairwise(token))]
        else:
            tokens.append(token)
    return tokens


@lru_cache(maxsize=256)  # a question is read by several indexes
def language_of(text: str) -> str | None:
    """The language of a text by its words; None where nothing decides."""
    return detect_language(text, words(text))


class BM25Retriever:
    """An index over the words of the units' keys; units that share no word with the query do not match.

    `language` sets stemming and stop words, where the libraries have them for it; "auto" detects that of each text, and
    "none" sets neither. `b` is BM25's: how much long units pay. Scores follow Lucene's formula
    (Kamphuis et al., ECIR 2020, "Which BM25 do you mean?", table 1), the default of bm25s.
    """

    def __init__(self, *, language: str = "english", b: float = 0.75) -> None:
        self._vocabulary = _Vocabulary(language)
        self._b = b
        self._guard = threading.Lock()
        self._ids = RowIds()
        self._postings = Postings()
        self._lengths: Scores = np.zeros(0)

    def add(self, units: Sequence[Unit]) -> None:
        with self._guard:
            new = [units[index] for index in self._ids.new_indices([unit.id for unit in units])]
            if not new:
                return
            terms = [self._vocabulary.terms(unit.key, learn=True) for unit in new]
            start = len(self._ids)
            self._ids.add(new)
            self._postings.add(start, terms)
            self._lengths = np.append(self._lengths, [float(len(unit_terms)) for unit_terms in terms])

    def remove(self, ids: Sequence[str]) -> None:
        """Removes these units. Their counts are freed when a fifth of all rows are dead."""
        with self._guard:
            if self._ids.remove(ids) and self._ids.needs_compaction:
                alive = self._ids.compact()
                self._postings.select(alive)
                self._lengths = self._lengths[alive]

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """BM25 scores above 0, best first. Rarity and mean length are those of the units within the scope."""
        with self._guard:
            mask = self._ids.scope_mask(scope)
            count = int(np.count_nonzero(mask))
            if k <= 0 or not count:
                return [[] for _ in queries]
            mean = float((self._lengths if count == len(mask) else self._lengths[mask]).mean()) or 1.0
            terms = [self._vocabulary.terms(query, learn=False) for query in queries]
            return [self._top(self._scores(each, mask, count, mean), k) for each in terms]

    @property
    def memory(self) -> int:
        return self._postings.memory + self._lengths.nbytes + len(self._vocabulary) * _WORD_BYTES + self._ids.memory

    def _scores(self, terms: Sequence[int], mask: NDArray[np.bool_], count: int, mean: float) -> Scores:
        """For each row its score, 0 for one that shares no term or is out of scope. A repeated term counts again."""
        repeats = Counter(terms)
        entries = self._postings.lookup(list(repeats))
        everything = count == len(mask)
        holders = entries.sizes.sum(axis=0) if everything else _count_holders(entries, mask)
        rarity = np.log1p((count - holders + 0.5) / (holders + 0.5)) * np.fromiter(repeats.values(), dtype=np.float64)
        # Entries are processed in place, at single precision: there are hundreds of thousands of them.
        damped = entries.lengths * np.float32(_K1 * self._b / mean)
        damped += np.float32(_K1 * (1 - self._b))
        damped += entries.counts
        shares = entries.spread(rarity.astype(np.float32))
        shares *= entries.counts
        shares /= damped
        scores = np.bincount(entries.rows, shares, minlength=len(mask)).astype(np.float64, copy=False)
        return scores if everything else scores * mask

    def _top(self, scores: Scores, k: int) -> list[Match]:
        candidates = top_candidates(scores, k)
        candidates = candidates[scores[candidates] > 0]
        rows = candidates[top_k(scores[candidates], candidates, k)]
        return self._ids.matches(rows, scores[rows])


def _count_holders(entries: Entries, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    terms = entries.sizes.shape[1]
    holders = np.bincount(entries.spread(np.arange(terms)), mask[entries.rows], minlength=terms)
    return holders.astype(np.float64, copy=False)


class _Vocabulary:
    """Words to term numbers, as the Tokenizer of bm25s gives them: without stop words, one number for each stem.

    With the language "auto" each text is read in its own; one too short to tell, in the language of most texts so far.
    """

    def __init__(self, language: str) -> None:
        import Stemmer

        self._stemmed = frozenset(Stemmer.algorithms())
        languages = sorted({*self._stemmed, *STOP_WORDS, "auto", "none"})
        if language not in languages:
            near = get_close_matches(language, languages, n=1)
            cure = f"did you mean {near[0]}?" if near else f"use one of {', '.join(languages)}"
            raise BadSettings(f"bm25 does not support the language {language!r}; {cure}")
        self._language = language
        self._seen: Counter[str] = Counter(english=1)
        self._readers: dict[str, _Reader] = {}
        self._by_stem: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_stem)

    def terms(self, text: str, *, learn: bool) -> list[int]:
        """The terms of a text; new words are added if `learn`, and left out otherwise."""
        tokens = words(text)
        reader = self._reader(self._language if self._language != "auto" else self._detect(text, learn=learn))
        return [term for word in tokens for term in self._terms(reader, word, learn=learn)]

    def _detect(self, text: str, *, learn: bool) -> str:
        language = language_of(text)
        if learn and language is not None:
            self._seen[language] += 1
        return language or self._seen.most_common(1)[0][0]

    def _reader(self, language: str) -> "_Reader":
        reader = self._readers.get(language)
        if reader is None:
            import Stemmer

            stem = Stemmer.Stemmer(language).stemWord if language in self._stemmed else str
            stop_words = load_stop_words(language) if language in STOP_WORDS else frozenset[str]()
            stop_words |= frozenset(map(fold_accents, stop_words))
            reader = self._readers[language] = _Reader(stem, stop_words, {})
        return reader

    def _terms(self, reader: "_Reader", word: str, *, learn: bool) -> Sequence[int]:
        """The terms of a word's stem and of the stem that it has where its accents are left out, mostly the same."""
        terms = reader.terms.get(word)
        if terms is not None or word in reader.stop_words:
            return terms or ()
        stems = dict.fromkeys(fold_accents(reader.stem(form)) for form in (word, fold_accents(word)))
        if not learn:
            return [term for stem in stems if (term := self._by_stem.get(stem)) is not None]
        terms = reader.terms[word] = tuple(self._by_stem.setdefault(stem, len(self._by_stem)) for stem in stems)
        return terms


class _Reader(NamedTuple):
    """How words of one language become stems, its stop words, and the terms of the words met so far."""

    stem: Callable[[str], str]
    stop_words: frozenset[str]
    terms: dict[str, tuple[int, ...]]
