"""Labels for a compressor: which words of a text are kept, derived from the text and a shorter version of it.

The shorter version is an extract or a summary, written by people or by a local LLM. LLMLingua-2 (Pan et al., ACL 2024,
section 3.3) aligns the two word by word and drops texts for which the alignment is unreliable.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex  # type: ignore[import-untyped]  # publishes no types
from pydantic import AliasChoices, Field, TypeAdapter

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import Record, read_records
from localmem.files import JsonlLog
from localmem.llm.base import LLM
from localmem.llm.structured_output import generate_usable
from localmem.prompts import load, render
from localmem.text.dialogue import pack

Stem = Callable[[str], str]

WINDOW = 150  # words on each side in which a word is searched for, as in LLMLingua-2's code
PROMPT = "compressor/extract"

_MAX_VARIATION = 0.95  # quantile of texts to keep, by the words that their extract invented (section 3.3.1 drops 5%)
_MAX_GAP = 0.90  # and by the words that could not be aligned (section 3.3.2 drops 10%)
_PART = 256  # approximate tokens of a text that the labelling model sees at once; small models get lost in more
_BATCH = 16  # parts that are labelled before the answers are written down

# A word; in scripts without spaces, a character.
_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]|[\p{L}\p{M}\p{N}]+(?:['’]\p{L}+)*")


class CompressionPair(NamedTuple):
    """A text and a shorter version of it."""

    text: str
    short: str


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text with the spans of the words to keep, and how reliable the alignment is.

    `variation` is the share of the shorter text's words that the text does not contain. `gap` is the number of words
    that the text contains and that were still not aligned, as a share of the text's words.
    """

    text: str
    keep: tuple[tuple[int, int], ...]
    variation: float
    gap: float


class _Line(Record):
    text: str = Field(min_length=1, validation_alias=AliasChoices("text", "dialogue"))
    short: str | None = Field(default=None, validation_alias=AliasChoices("kept", "summary"))


def read_compression_pairs(path: Path) -> list[CompressionPair]:
    """Read JSONL of text and kept, or of dialogue and summary as in DialogSum. Raises BadInput."""
    pairs = []
    for place, line in read_records(path, _Line):
        if not (line.short or "").strip():
            raise BadInput(f"{place}: neither kept nor summary is set; add one, or label with --set label_with=MODEL")
        pairs.append(CompressionPair(line.text, str(line.short)))
    return pairs


def read_texts(path: Path) -> list[str]:
    """Read the texts of such a file without their labels. Raises BadInput."""
    return [line.text for _, line in read_records(path, _Line)]


def make_stemmer(language: str) -> Stem:
    """A function from a word to its stem in lower case; "none" only folds case. Raises BadInput."""
    import Stemmer

    if language != "none" and language not in Stemmer.algorithms():
        raise BadInput(f"unknown stemmer language {language!r}; use none or one of {', '.join(Stemmer.algorithms())}")
    stem = Stemmer.Stemmer(language).stemWord if language != "none" else str

    def normalise(word: str) -> str:
        return str(stem(unicodedata.normalize("NFKC", word).replace("’", "'").casefold()))

    return normalise


def align_words(pair: CompressionPair, stem: Stem, window: int = WINDOW) -> LabelledText:
    """Label the words of the text that the shorter version keeps."""
    spans = [match.span() for match in _WORD.finditer(pair.text)]
    words = [stem(pair.text[start:end]) for start, end in spans]
    targets = [stem(match.group()) for match in _WORD.finditer(pair.short)]
    marks = mark_kept_words(words, targets, window)
    vocabulary = set(words)
    common = sum(word in vocabulary for word in targets)
    return LabelledText(
        pair.text,
        tuple(span for span, keep in zip(spans, marks, strict=True) if keep),
        1 - common / max(1, len(targets)),
        (common - sum(marks)) / max(1, len(words)),
    )


def mark_kept_words(words: Sequence[str], targets: Sequence[str], window: int) -> list[bool]:
    """For each word, whether it is aligned with one of the targets (LLMLingua-2, section 3.3, algorithm 1).

    Each target takes the nearest free word with the same stem, after or before the previous match. The position moves
    forward by at most half a window, so that one distant match does not skip everything in between.
    """
    marks = [False] * len(words)
    position = 0
    for target in targets:
        near = (place for step in range(window) for place in (position + step, position - step))
        free = (place for place in near if 0 <= place < len(words) and words[place] == target and not marks[place])
        if (match := next(free, None)) is not None:
            marks[match] = True
            position = min(match, position + window // 2)
    return marks


def drop_unreliable(texts: Sequence[LabelledText]) -> tuple[list[LabelledText], Counter[str]]:
    """The texts that can be learned from, and how many others were dropped for each reason (section 3.3)."""
    dropped: Counter[str] = Counter()
    remaining = [text for text in texts if text.keep]
    dropped["no word in common"] = len(texts) - len(remaining)
    for name, quantile in (("variation", _MAX_VARIATION), ("gap", _MAX_GAP)):
        values = [getattr(text, name) for text in remaining]
        limit = np.quantile(values, quantile) if values else 0.0
        reliable = [text for text, value in zip(remaining, values, strict=True) if value <= limit]
        dropped[name] = len(remaining) - len(reliable)
        remaining = reliable
    return remaining, dropped


@dataclass(frozen=True, slots=True)
class _Extract:
    """An answer of the labelling model, as a line of the file: the digest of what was asked, and the extract."""

    digest: str
    extract: str


class Extractor:
    """Lets a local LLM cross words out of texts; LLMLingua-2, section 3.1, asks GPT-4.

    Answers are stored in `path`, so that an interrupted run continues where it stopped.
    """

    def __init__(self, llm: LLM, path: Path, notify: Callable[[str], None]) -> None:
        self._llm, self._path, self._notify = llm, path, notify
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, texts: Sequence[str]) -> list[CompressionPair]:
        """The parts of the texts in order, each with its extract; parts without a usable answer are dropped."""
        lines = [text.splitlines() for text in texts if text]
        runs = (run for text in lines for run in pack(text, self._llm.count_tokens(text), _PART))
        parts = {self._digest(part): part for part in map("\n".join, runs)}
        with JsonlLog(self._path, TypeAdapter(_Extract)) as log:
            extracts = {record.digest: record.extract for record in log.records}
            missing = [digest for digest in parts if digest not in extracts]
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                for digest, extract in zip(batch, self._ask([parts[digest] for digest in batch]), strict=True):
                    log.append(_Extract(digest, extract))
                    extracts[digest] = extract
                self._notify(f"labelled {start + len(batch)} of {len(missing)} parts")
        return [CompressionPair(part, extracts[digest]) for digest, part in parts.items() if extracts[digest].strip()]

    def _ask(self, parts: Sequence[str]) -> list[str]:
        sizes = self._llm.count_tokens(list(parts))
        prompts = [
            replace(render(PROMPT, dialogue=part), max_tokens=load(PROMPT).max_tokens + size)
            for part, size in zip(parts, sizes, strict=True)
        ]
        return [answer.text if answer else "" for answer in generate_usable(self._llm, prompts, self.fallbacks)]

    def _digest(self, part: str) -> str:
        return sha256(f"{self._llm.name}\0{load(PROMPT).digest}\0{part}".encode()).hexdigest()
