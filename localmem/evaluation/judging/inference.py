"""The entailment judge by a trained NLI model in place of an LLM: the same items, the same verdicts.

Such models read one sentence against another, so every sentence of what is known is put before every sentence of the
answer (as SummaC does for summaries). Knows the model by its probabilities only.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadInput
from localmem.evaluation.judging.judges import JUDGES, Item
from localmem.evaluation.judging.verdicts import Verdict
from localmem.text.parse import sentences

_BEGINNINGS = {"entail": "entail", "neutral": "neutral", "contra": "contradict"}  # of a model's label, and our word


class PairProbabilities(Protocol):
    """What a `PairModel` gives."""

    @property
    def labels(self) -> Sequence[str]: ...

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]: ...


def infer_verdicts(model: PairProbabilities, items: Sequence[Item]) -> list[Verdict]:
    """A verdict for each item, from all its pairs of sentences; all items' pairs go to the model together.

    A sentence of the answer is what the pair that says most about it says: the largest probability of entailment or
    contradiction over what is known, if it is above a half. One contradicted sentence makes the answer contradict; else
    one entailed sentence makes it entail.
    """
    columns = _columns(model.labels)
    asked = [_pairs(item) for item in items]
    rows = iter(model.probabilities([pair for held in asked for pairs in held for pair in pairs]))
    found = []
    for held in asked:
        strongest = [_strongest(list(islice(rows, len(pairs))), columns) for pairs in held if pairs]
        found.append(_verdict(strongest))
    return found


def _columns(labels: Sequence[str]) -> Mapping[str, int]:
    known = {
        word: place
        for place, label in enumerate(labels)
        for start, word in _BEGINNINGS.items()
        if label.lower().startswith(start)
    }
    if set(known) != set(_BEGINNINGS.values()):
        raise BadInput(f"the model has the labels {list(labels)}; an NLI model has entailment, neutral, contradiction")
    return known


def _pairs(item: Item) -> list[list[tuple[str, str]]]:
    """For each sentence of the answer its pairs with all that is known."""
    lacking = [name for name in JUDGES["entailment"].inputs if name not in item]
    if lacking:
        raise BadInput(f"the judge 'entailment' needs {', '.join(lacking)}, and the item has {sorted(item)}")
    known = sentences(item["past"])
    return [[(premise, said) for premise in known] for said in sentences(item["answer"])]


def _strongest(rows: Sequence[NDArray[np.float32]], columns: Mapping[str, int]) -> dict[str, float]:
    """Of one sentence: the largest probabilities of both, and what is left for neutral."""
    held = np.stack(rows)
    entail, contradict = (float(held[:, columns[word]].max()) for word in ("entail", "contradict"))
    return {"entail": entail, "neutral": max(0.0, 1 - entail - contradict), "contradict": contradict}


def _verdict(strongest: Sequence[Mapping[str, float]]) -> Verdict:
    words = JUDGES["entailment"].scales
    said = [max(one, key=lambda word: one[word]) if max(one.values()) > 0.5 else "neutral" for one in strongest]
    label = next((word for word in ("contradict", "entail") if word in said), "neutral")
    whole = {word: max((one[word] for one in strongest), default=0.0) for word in words}
    total = sum(whole.values()) or 1.0
    probabilities = {word: value / total for word, value in whole.items()}
    return Verdict(label, {word: float(word == label) for word in words}, {label: 1}, probabilities)
