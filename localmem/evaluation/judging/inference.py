"""The entailment judge with a trained NLI model instead of an LLM: the same items, the same verdicts.

Such models compare two sentences, so every sentence of what is known is paired with every sentence of the answer (as
SummaC does for summaries). Depends only on the model's probabilities.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadInput
from localmem.evaluation.judging.judges import JUDGES, Item, check_item
from localmem.evaluation.judging.verdicts import Verdict
from localmem.text.parse import sentences

_PREFIXES = {"entail": "entail", "neutral": "neutral", "contra": "contradict"}  # of a model's label -> our word
_ENTAILMENT = JUDGES["entailment"]


class PairProbabilities(Protocol):
    """The part of a `PairModel` that is needed here."""

    @property
    def labels(self) -> Sequence[str]:
        """The names of the columns."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(pairs, labels) float32."""


def infer_verdicts(model: PairProbabilities, items: Sequence[Item]) -> list[Verdict]:
    """A verdict for each item, from all its pairs of sentences; the pairs of all items go to the model together.

    A sentence of the answer gets the most decisive word: the largest probability of entailment or contradiction over
    what is known, if above one half. One contradicted sentence makes the answer contradict; otherwise one entailed
    sentence makes it entail.
    """
    columns = _columns(model.labels)
    pairs_by_item = [_sentence_pairs(item) for item in items]
    rows = iter(model.probabilities([pair for groups in pairs_by_item for pairs in groups for pair in pairs]))
    return [
        _verdict([_strongest(list(islice(rows, len(pairs))), columns) for pairs in groups if pairs])
        for groups in pairs_by_item
    ]


def _columns(labels: Sequence[str]) -> Mapping[str, int]:
    columns = {
        word: index
        for index, label in enumerate(labels)
        for prefix, word in _PREFIXES.items()
        if label.lower().startswith(prefix)
    }
    if set(columns) != set(_PREFIXES.values()):
        raise BadInput(f"the model has the labels {list(labels)}; an NLI model has entailment, neutral, contradiction")
    return columns


def _sentence_pairs(item: Item) -> list[list[tuple[str, str]]]:
    """For each sentence of the answer its pairs with everything that is known."""
    check_item(_ENTAILMENT, item)
    premises = sentences(item["past"])
    return [[(premise, sentence) for premise in premises] for sentence in sentences(item["answer"])]


def _strongest(rows: Sequence[NDArray[np.float32]], columns: Mapping[str, int]) -> dict[str, float]:
    """For one sentence: the largest probability of either, and the remainder for neutral."""
    table = np.stack(rows)
    entail, contradict = (float(table[:, columns[word]].max()) for word in ("entail", "contradict"))
    return {"entail": entail, "neutral": max(0.0, 1 - entail - contradict), "contradict": contradict}


def _verdict(strongest: Sequence[Mapping[str, float]]) -> Verdict:
    scales = _ENTAILMENT.scales
    words = [max(row, key=lambda word: row[word]) if max(row.values()) > 0.5 else "neutral" for row in strongest]
    label = next((word for word in ("contradict", "entail") if word in words), "neutral")
    highest = {word: max((row[word] for row in strongest), default=0.0) for word in scales}
    total = sum(highest.values()) or 1.0
    probabilities = {word: value / total for word, value in highest.items()}
    return Verdict(label, {word: float(word == label) for word in scales}, {label: 1}, probabilities)
