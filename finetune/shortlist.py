"""What a session's end costs with a classifier: all pairs together, one by one, and the nearest memories only.

Times and set F1 over sessions' ends with a large memory. Knows no model; the shortlist is that of CareCall's option.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from finetune.operation_metrics import Ending, Pair, Said
from localmem.retrieval.base import Encoder
from localmem.text.base import Operation, PairClassifier

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds are the mean of a session's end; `pairs` of all, `short_pairs` of those on the shortlist.

    `short_seconds` holds the encoding of the new sentences and the search; what is remembered is encoded already, as it
    is in an index.
    """

    pairs: int
    short_pairs: int
    together_seconds: float
    one_by_one_seconds: float
    short_seconds: float
    set_f1: float
    short_set_f1: float

    @property
    def batch_gain(self) -> float:
        """How many times faster together than one by one."""
        return self.one_by_one_seconds / self.together_seconds

    @property
    def short_gain(self) -> float:
        """How many times faster with the shortlist than all pairs one by one."""
        return self.one_by_one_seconds / self.short_seconds

    @property
    def loss(self) -> float:
        """Points of set F1 that the shortlist costs; below zero where it gains."""
        return 100 * (self.set_f1 - self.short_set_f1)


def cost(classifier: PairClassifier, encoder: Encoder, sessions: Sequence[Ending], keep: int) -> Cost:
    """Over the sessions, with a shortlist of `keep` memories for each new sentence. What loads is loaded before."""
    classifier.classify(sessions[0].pairs()[:2])
    encoder.encode(sessions[0].new, "query")
    timed = [_timed(classifier, encoder, session, keep) for session in sessions]
    number = len(sessions)
    return Cost(
        pairs=sum(len(session.pairs()) for session in sessions) // number,
        short_pairs=sum(len(one.near) for one in timed) // number,
        together_seconds=sum(one.together for one in timed) / number,
        one_by_one_seconds=sum(one.one_by_one for one in timed) / number,
        short_seconds=sum(one.short for one in timed) / number,
        set_f1=sum(session.f1(one.said) for session, one in zip(sessions, timed, strict=True)) / number,
        short_set_f1=sum(session.f1(one.near) for session, one in zip(sessions, timed, strict=True)) / number,
    )


@dataclass(frozen=True, slots=True)
class _Timed:
    said: Said
    near: Said
    together: float
    one_by_one: float
    short: float


def _timed(classifier: PairClassifier, encoder: Encoder, session: Ending, keep: int) -> _Timed:
    pairs, held = session.pairs(), encoder.encode(session.memory, "passage")
    began = perf_counter()
    said = _said(classifier, pairs)
    together = perf_counter() - began
    for pair in pairs:
        classifier.classify([pair])
    one_by_one = perf_counter() - began - together
    began = perf_counter()
    near = _said(classifier, _near(encoder, session, held, keep))
    return _Timed(said, near, together, one_by_one, perf_counter() - began)


def _said(classifier: PairClassifier, pairs: Sequence[Pair]) -> dict[Pair, Operation]:
    labels = classifier.classify(pairs)
    return {pair: label.operation for pair, label in zip(pairs, labels, strict=True)}


def _near(encoder: Encoder, session: Ending, held: Vectors, keep: int) -> list[Pair]:
    order = (-(encoder.encode(session.new, "query") @ held.T)).argsort(axis=1)[:, :keep]
    return [(session.memory[m], new) for new, row in zip(session.new, order.tolist(), strict=True) for m in row]
