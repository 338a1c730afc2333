"""Which words of a text are kept: labels for a compressor, out of the text and a shorter one made of it.

The shorter text is an extract or a summary, by people or by an LLM. LLMLingua-2 (Pan et al., ACL 2024, section 3.3)
aligns the two word by word and drops texts where that cannot go well. Knows no model.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import regex  # type: ignore[import-untyped]  # publishes no types
from pydantic import AliasChoices, Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.files import Record, read_records

Stem = Callable[[str], str]

WINDOW = 150  # words to either side in which a word is looked for, as LLMLingua-2's code has it
_VARIED = 0.95  # the share of texts that stay, by the words that their extract made up (section 3.3.1: 5% go)
_GAPPED = 0.90  # and by the words that could not be aligned (section 3.3.2: 10% go)

# A word; of scripts without spaces, a character.
_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]|[\p{L}\p{M}\p{N}]+(?:['’]\p{L}+)*")


class Shortened(NamedTuple):
    """A text, and what stands for its kept words."""

    text: str
    kept: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text with the places of its kept words, and how well the alignment went.

    `variation` is the share of the shorter text's words that the text does not hold; `gap` are the words that it holds
    and that were aligned with none, in shares of the text's words.
    """

    text: str
    kept: tuple[tuple[int, int], ...]
    variation: float
    gap: float


class _Given(Record):
    text: str = Field(min_length=1, validation_alias=AliasChoices("text", "dialogue"))
    kept: str | None = Field(default=None, validation_alias=AliasChoices("kept", "summary"))


def read_shortened(path: Path) -> list[Shortened]:
    """JSONL of text and kept, or of dialogue and summary as DialogSum has them. Raises BadInput."""
    found = []
    for place, item in read_records(path, _Given):
        if not (item.kept or "").strip():
            raise BadInput(
                f"{place}: it has neither kept nor summary; give one, or let a model label with --label-with"
            )
        found.append(Shortened(item.text, str(item.kept)))
    return found


def read_texts(path: Path) -> list[str]:
    """The texts alone, of the same files."""
    return [item.text for _, item in read_records(path, _Given)]


def stemmer(language: str) -> Stem:
    """Words to what they have in common with their other forms; "none" folds case alone. Raises BadInput."""
    import Stemmer

    if language != "none" and language not in Stemmer.algorithms():
        raise BadInput(f"no stemmer knows {language!r}; give none, or one of {', '.join(Stemmer.algorithms())}")
    stem = Stemmer.Stemmer(language).stemWord if language != "none" else str

    def plain(word: str) -> str:
        return str(stem(unicodedata.normalize("NFKC", word).replace("’", "'").casefold()))

    return plain


def labelled(pair: Shortened, stem: Stem, window: int = WINDOW) -> Labelled:
    """The text with the words that the shorter one was found to keep."""
    spans = [match.span() for match in _WORD.finditer(pair.text)]
    words = [stem(pair.text[start:end]) for start, end in spans]
    wanted = [stem(match.group()) for match in _WORD.finditer(pair.kept)]
    marks = aligned(words, wanted, window)
    there = set(words)
    met = sum(word in there for word in wanted)
    return Labelled(
        pair.text,
        tuple(span for span, kept in zip(spans, marks, strict=True) if kept),
        1 - met / max(1, len(wanted)),
        (met - sum(marks)) / max(1, len(words)),
    )


def aligned(words: Sequence[str], wanted: Sequence[str], window: int) -> list[bool]:
    """For each word whether it is one of those that are wanted (LLMLingua-2, section 3.3, algorithm 1).

    Each wanted word takes the nearest like word that is free, ahead or behind of where the last one was found. Ahead
    the place moves by half a window at most, so that one far match does not lose all that lies between.
    """
    marks = [False] * len(words)
    place = 0
    for word in wanted:
        found = _nearest(words, marks, word, place, window)
        if found is not None:
            marks[found] = True
            place = min(found, place + window // 2)
    return marks


def sound(found: Sequence[Labelled]) -> tuple[list[Labelled], Counter[str]]:
    """The texts that can be learned from, and why how many others cannot (LLMLingua-2, section 3.3)."""
    import numpy as np

    dropped: Counter[str] = Counter()
    kept = [one for one in found if one.kept]
    dropped["no word in common"] = len(found) - len(kept)
    for name, share in (("variation", _VARIED), ("gap", _GAPPED)):
        values = [getattr(one, name) for one in kept]
        limit = np.quantile(values, share) if values else 0.0
        left = [one for one, value in zip(kept, values, strict=True) if value <= limit]
        dropped[name] = len(kept) - len(left)
        kept = left
    return kept, dropped


def _nearest(words: Sequence[str], marks: Sequence[bool], word: str, place: int, window: int) -> int | None:
    for step in range(window):
        for at in (place + step, place - step):
            if 0 <= at < len(words) and words[at] == word and not marks[at]:
                return at
    return None
