"""Corpus: statements, questions and the vectors of both, in files for many processes. Knows an encoder by contract.

Vectors of words drawn at random have no neighbours, and an index that walks a graph or sorts by centres looks worse on
them than it is. So statements are encoded; beyond `MOST_ENCODED` a vector is a mixture of two encoded ones with noise,
unless all are to be encoded. Without an encoder a text is the sum of its words' vectors, long words counting more.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from localmem.benchmark.sentences import batches, said
from localmem.retrieval.base import Encoder, Side

Rows = NDArray[np.float32]
Track = Callable[[Sequence[slice]], Iterable[slice]]

MOST_ENCODED = 10_000
SPARE = 200  # statements beyond the largest bank, which are added to banks
_SHARE = 0.6  # of the nearer of two vectors in a mixture, at least
_NOISE = 0.25  # length of the noise in a mixture of unit vectors
_STEP = 512


@dataclass(frozen=True, slots=True)
class Corpus:
    """`vectors` and `asked` are unit rows for `texts` and `questions`; the last SPARE texts are in no bank."""

    texts: Sequence[str]
    questions: Sequence[str]
    vectors: Rows
    asked: Rows
    encoded: int

    def save(self, folder: Path) -> None:
        """Into files of this folder."""
        words = {"texts": self.texts, "questions": self.questions, "encoded": self.encoded}
        (folder / "texts.json").write_text(json.dumps(words), encoding="utf-8")
        np.save(folder / "vectors.npy", self.vectors)
        np.save(folder / "asked.npy", self.asked)

    @classmethod
    def load(cls, folder: Path, units: int) -> "Corpus":
        """What `save` wrote, with a bank of `units`. Vectors are read when they are looked at."""
        words = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
        vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        texts = words["texts"]
        return cls(
            texts=[*texts[:units], *texts[-SPARE:]],
            questions=words["questions"],
            vectors=np.concatenate([vectors[:units], vectors[-SPARE:]]),
            asked=np.load(folder / "asked.npy"),
            encoded=words["encoded"],
        )


def corpus(
    encoder: Encoder, units: int, questions: int, seed: int, *, encode_all: bool = False, track: Track = iter
) -> Corpus:
    """For a largest bank of `units`, about any of which is asked. `track` sees slices of texts go by to be encoded."""
    total = units + SPARE
    pairs = said(total, seed)
    texts = [statement for statement, _ in pairs]
    encoded = total if encode_all else min(total, MOST_ENCODED)
    random = np.random.default_rng(seed)
    mixture = _Mixture(encoded, total, random)
    vectors = np.empty((total, encoder.dimension), dtype=np.float32)
    for part in track(list(batches(encoded, _STEP))):
        vectors[part] = encoder.encode(texts[part], "passage")
    for part in batches(total - encoded, _STEP):
        fresh = np.arange(encoded + part.start, encoded + part.stop)
        vectors[fresh] = mixture.of(fresh, vectors[mixture.one[fresh]], vectors[mixture.other[fresh]])
    chosen = random.choice(units, size=questions, replace=questions > units)
    asked = [
        encoder.encode([pairs[index][1] for index in parents[chosen]], "query")
        for parents in (mixture.one, mixture.other)
    ]
    return Corpus(texts, [pairs[index][1] for index in chosen], vectors, mixture.of(chosen, *asked), encoded)


class _Mixture:
    """Which two encoded texts each further one is mixed of, and how: a question about it is mixed alike."""

    def __init__(self, encoded: int, total: int, random: np.random.Generator) -> None:
        itself = np.arange(total) < encoded
        self.one = np.where(itself, np.arange(total), random.integers(encoded, size=total))
        self.other = np.where(itself, np.arange(total), random.integers(encoded, size=total))
        self._share = np.where(itself, 1.0, random.uniform(_SHARE, 1.0, size=total)).astype(np.float32)
        self._noise = np.where(itself, 0.0, _NOISE).astype(np.float32)
        self._random = random

    def of(self, which: NDArray[np.integer], one: Rows, other: Rows) -> Rows:
        """Rows of unit length for these texts, from those of their two."""
        share, noise = self._share[which, None], self._random.standard_normal(one.shape).astype(np.float32)
        noise *= self._noise[which, None] / np.linalg.norm(noise, axis=1, keepdims=True)
        return unit_length(share * one + (1 - share) * other + noise)


def unit_length(rows: Rows) -> Rows:
    """The rows, each divided by its length."""
    scaled: Rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return scaled


class WordVectors:
    """An encoder of any dimension without weights: each word has a direction, and long words weigh more."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.identity = f"words-{dimension}"
        self._directions: dict[str, Rows] = {}

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """(n, dimension) rows of unit length."""
        return unit_length(np.stack([np.sum([self._of(word) for word in _words(text)], axis=0) for text in texts]))

    def _of(self, word: str) -> Rows:
        """As long as the word, for short words are frequent and tell little."""
        if word not in self._directions:
            direction = np.random.default_rng(crc32(word.encode())).standard_normal(self.dimension)
            self._directions[word] = (direction * len(word)).astype(np.float32)
        return self._directions[word]


def _words(text: str) -> list[str]:
    return text.lower().replace("?", " ").replace(".", " ").replace(",", " ").split()
