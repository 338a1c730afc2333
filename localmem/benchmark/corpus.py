"""Generated statements, questions and the vectors of both, in files that many processes can read.

No dataset is needed. Words are drawn uniformly from short lists, unlike in real conversations: names and places recur
far more often, so nearest neighbours are closer and a search has more to tell apart. Random vectors have no neighbours,
and an index that walks a graph or clusters vectors looks worse on them than it is. So statements are encoded; beyond
MAX_ENCODED a vector is a mixture of two encoded ones with noise, unless all are encoded.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np
import yaml
from numpy.typing import NDArray

from localmem.retrieval.base import Encoder, Side

Statement = tuple[str, str]  # with its question
Rows = NDArray[np.float32]
Track = Callable[[Sequence[slice]], Iterable[slice]]

MAX_ENCODED = 10_000
SPARE = 200  # statements beyond the largest bank, which are added to banks
_MIN_SHARE = 0.6  # of the nearer of the two vectors in a mixture
_NOISE = 0.25  # length of the noise in a mixture of unit vectors
_BATCH = 512


def generate_statements(count: int, seed: int) -> list[Statement]:
    """`count` different statements with their questions; a smaller count gives a prefix of a larger one."""
    random = Random(seed)  # noqa: S311  # words for a benchmark
    data = yaml.safe_load((files("localmem.benchmark") / "statements.yaml").read_text(encoding="utf-8"))
    statements: dict[str, str] = {}
    while len(statements) < count:
        statement, question = random.choice(data["templates"])
        chosen = {slot: random.choice(choices) for slot, choices in data["slots"].items()}
        statements.setdefault(statement.format(**chosen), question.format(**chosen))
    return list(statements.items())


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices that cover `count` items."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts and questions with unit vectors, a row each; the last SPARE texts are in no bank."""

    texts: Sequence[str]
    questions: Sequence[str]
    vectors: Rows
    question_vectors: Rows
    encoded: int

    def save(self, folder: Path) -> None:
        texts = {"texts": self.texts, "questions": self.questions, "encoded": self.encoded}
        (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        np.save(folder / "vectors.npy", self.vectors)
        np.save(folder / "questions.npy", self.question_vectors)

    @classmethod
    def load(cls, folder: Path, units: int) -> "Corpus":
        """What `save` wrote, with a bank of the first `units` texts."""
        content = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
        vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        texts = content["texts"]
        return cls(
            texts=[*texts[:units], *texts[-SPARE:]],
            questions=content["questions"],
            vectors=np.concatenate([vectors[:units], vectors[-SPARE:]]),
            question_vectors=np.load(folder / "questions.npy"),
            encoded=content["encoded"],
        )


def make_corpus(
    encoder: Encoder, units: int, questions: int, seed: int, *, encode_all: bool = False, track: Track = iter
) -> Corpus:
    """A corpus for banks of up to `units`, with questions about random ones. `track` wraps the batches to encode."""
    total = units + SPARE
    pairs = generate_statements(total, seed)
    texts = [statement for statement, _ in pairs]
    encoded = total if encode_all else min(total, MAX_ENCODED)
    random = np.random.default_rng(seed)
    mixture = _Mixture(encoded, total, random)
    vectors = np.empty((total, encoder.dimension), dtype=np.float32)
    for part in track(list(batches(encoded, _BATCH))):
        vectors[part] = encoder.encode(texts[part], "passage")
    for part in batches(total - encoded, _BATCH):
        rows = np.arange(encoded + part.start, encoded + part.stop)
        vectors[rows] = mixture.mix(rows, vectors[mixture.first[rows]], vectors[mixture.second[rows]])
    targets = random.choice(units, size=questions, replace=questions > units)
    parent_vectors = [
        encoder.encode([pairs[index][1] for index in parents[targets]], "query")
        for parents in (mixture.first, mixture.second)
    ]
    question_vectors = mixture.mix(targets, *parent_vectors)
    return Corpus(texts, [pairs[index][1] for index in targets], vectors, question_vectors, encoded)


class _Mixture:
    """The two encoded texts that each further one is mixed of; a question about it is mixed in the same way."""

    def __init__(self, encoded: int, total: int, random: np.random.Generator) -> None:
        is_encoded = np.arange(total) < encoded
        self.first = np.where(is_encoded, np.arange(total), random.integers(encoded, size=total))
        self.second = np.where(is_encoded, np.arange(total), random.integers(encoded, size=total))
        self._share = np.where(is_encoded, 1.0, random.uniform(_MIN_SHARE, 1.0, size=total)).astype(np.float32)
        self._noise = np.where(is_encoded, 0.0, _NOISE).astype(np.float32)
        self._random = random

    def mix(self, indices: NDArray[np.integer], first: Rows, second: Rows) -> Rows:
        share, noise = self._share[indices, None], self._random.standard_normal(first.shape).astype(np.float32)
        noise *= self._noise[indices, None] / np.linalg.norm(noise, axis=1, keepdims=True)
        return unit_length(share * first + (1 - share) * second + noise)


def unit_length(rows: Rows) -> Rows:
    """The rows, each divided by its length."""
    scaled: Rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return scaled


class WordVectors:
    """An encoder without weights: a text is the sum of its words' random directions, each as long as its word.

    Short words are frequent and say little, so they weigh less.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.identity = f"words-{dimension}"
        self._directions: dict[str, Rows] = {}

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        words = [text.lower().translate(str.maketrans("?.,", "   ")).split() for text in texts]
        return unit_length(np.stack([np.sum([self._direction(word) for word in each], axis=0) for each in words]))

    def _direction(self, word: str) -> Rows:
        if word not in self._directions:
            direction = np.random.default_rng(crc32(word.encode())).standard_normal(self.dimension)
            self._directions[word] = (direction * len(word)).astype(np.float32)
        return self._directions[word]
