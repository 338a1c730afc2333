"""Measures for classifiers of memory operations: by pair, by the memory they leave behind, and by time.

Does not depend on any model. Set F1 (Keep Me Updated, section 5.1.2) compares the memory M' after Algorithm 1 with the
gold M'. For labelled pairs with groups it is computed as follows: each new sentence of a group is the end of a session
whose memory is every remembered sentence of the group. All combinations of the two are classified; a combination
without a gold label counts as APPEND. The sentences of both M' are compared by F1 (1 if both are empty), and the result
is the mean over all session ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from localmem.classification import OPERATIONS, Operation, PairClassifier
from localmem.errors import BadInput, MissingExtra
from localmem.evaluation.datasets.labelled_pairs import LabelledPair
from localmem.retrieval.base import Encoder
from localmem.systems.carecall.memory_update import remaining, update

Pair = tuple[str, str]
Labels = Mapping[Pair, Operation]


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """One session end: the remembered sentences, the new ones, and the gold labels of the labelled pairs."""

    memory: tuple[str, ...]
    new: tuple[str, ...]
    gold: Labels

    def pairs(self) -> list[Pair]:
        """Every remembered sentence with every new one."""
        return [(memory, sentence) for memory in self.memory for sentence in self.new]

    def f1(self, labels: Labels) -> float:
        """F1 of the memory that `labels` lead to against the gold memory; a missing pair is an APPEND."""
        predicted, gold = self._memory_after(labels), self._memory_after(self.gold)
        return 2 * len(predicted & gold) / (len(predicted) + len(gold)) if predicted or gold else 1.0

    def _memory_after(self, labels: Labels) -> set[str]:
        old = {f"m{number}": text for number, text in enumerate(self.memory)}  # a sentence may occur on both sides
        new = {f"s{number}": text for number, text in enumerate(self.new)}
        named = {(m, s): labels[old[m], new[s]] for m in old for s in new if (old[m], new[s]) in labels}
        texts = old | new
        return {texts[name] for name in remaining(update(list(old), list(new), named))}


@dataclass(frozen=True, slots=True)
class OperationScores:
    """Scores over labelled pairs; `f1` by operation, `macro_f1` its mean, rows of `confusion` are the true labels."""

    accuracy: float
    f1: dict[str, float]
    macro_f1: float
    confusion: list[list[int]]
    set_f1: float


@dataclass(frozen=True, slots=True)
class SessionEndCost:
    """Mean cost of a session end: all pairs in one batch, pair by pair, and only the pairs on a shortlist.

    `shortlist_seconds` covers encoding the new sentences and searching; the remembered ones are encoded beforehand, as
    in an index. The gains are speed-ups over pair by pair. `shortlist_loss_points` is the loss in points of set F1.
    """

    pairs: int
    shortlisted_pairs: int
    together_seconds: float
    one_by_one_seconds: float
    shortlist_seconds: float
    batch_gain: float
    shortlist_gain: float
    set_f1: float
    shortlist_set_f1: float
    shortlist_loss_points: float


def session_ends(pairs: Iterable[LabelledPair]) -> list[SessionEnd]:
    """Each new sentence of each group together with all remembered sentences of the group."""
    ends = []
    for group in _by_group(pairs).values():
        memory = tuple(dict.fromkeys(pair.first for pair in group))
        gold = _gold_labels(group)
        ends += [SessionEnd(memory, (sentence,), gold) for sentence in dict.fromkeys(pair.second for pair in group)]
    return ends


def large_session_ends(pairs: Sequence[LabelledPair], memories: int, new: int, seed: int) -> list[SessionEnd]:
    """As many session ends as the pairs allow, each with `memories` remembered and `new` new sentences.

    The memory comes from several groups, shuffled by `seed`; each new sentence comes from a different one of them.
    Combinations across groups count as APPEND. Raises BadInput if there are too few pairs for one session end.
    """
    random = Random(seed)  # noqa: S311  # not used for security
    groups = _by_group(pairs)
    names = sorted(groups)
    random.shuffle(names)
    ends: list[SessionEnd] = []
    batch: list[list[LabelledPair]] = []
    for name in names:
        batch.append(groups[name])
        memory = tuple(dict.fromkeys(pair.first for group in batch for pair in group))
        if len(memory) >= memories and len(batch) >= new:
            sampled = random.sample(batch[:-1] or batch, min(new, len(batch)))
            sentences = tuple(random.choice(group).second for group in sampled)
            gold = _gold_labels(pair for group in batch for pair in group)
            ends.append(SessionEnd(memory[:memories], sentences, gold))
            batch = []
    if not ends:
        raise BadInput(
            f"{len(pairs)} pairs hold fewer than {memories} remembered sentences; add data or use a smaller memory"
        )
    return ends


def pairs_to_classify(ends: Iterable[SessionEnd]) -> list[Pair]:
    """Every pair of the session ends, without duplicates."""
    return list(dict.fromkeys(pair for end in ends for pair in end.pairs()))


def classify_pairs(classifier: PairClassifier, pairs: Sequence[LabelledPair]) -> tuple[dict[Pair, Operation], float]:
    """Classify everything that `score_operations` needs in one batch; also return the speed in pairs a second."""
    questions = pairs_to_classify(session_ends(pairs))
    classifier.classify(questions[:1])  # load the weights before the clock starts
    start = perf_counter()
    labels = _classify(classifier, questions)
    return labels, len(questions) / (perf_counter() - start)


def score_operations(pairs: Sequence[LabelledPair], labels: Labels) -> OperationScores:
    """Compare `labels` with the pairs' own. `labels` must cover `pairs_to_classify(session_ends(pairs))`."""
    try:
        from sklearn.metrics import confusion_matrix, f1_score
    except ImportError as error:
        raise MissingExtra("measures need scikit-learn; run `pip install 'localmem[train]'`") from error
    expected = [pair.label for pair in pairs]
    predicted = [labels[pair.first, pair.second] for pair in pairs]
    f1 = f1_score(expected, predicted, labels=list(OPERATIONS), average=None, zero_division=0.0).tolist()
    ends = session_ends(pairs)
    return OperationScores(
        accuracy=sum(a == b for a, b in zip(expected, predicted, strict=True)) / len(pairs),
        f1=dict(zip(OPERATIONS, f1, strict=True)),
        macro_f1=sum(f1) / len(f1),
        confusion=confusion_matrix(expected, predicted, labels=list(OPERATIONS)).tolist(),
        set_f1=sum(end.f1(labels) for end in ends) / len(ends),
    )


def measure_session_end_cost(
    classifier: PairClassifier, encoder: Encoder, ends: Sequence[SessionEnd], shortlist: int
) -> SessionEndCost:
    """Time the session ends, with a shortlist of `shortlist` memories for each new sentence (CareCall's option)."""
    classifier.classify(ends[0].pairs()[:2])  # load both models before the clock starts
    encoder.encode(ends[0].new, "query")
    timings = [_time_session_end(classifier, encoder, end, shortlist) for end in ends]
    together, single, short = (
        fmean(seconds) for seconds in zip(*((run.together, run.one_by_one, run.short) for run in timings), strict=True)
    )
    set_f1 = fmean(end.f1(run.labels) for end, run in zip(ends, timings, strict=True))
    short_set_f1 = fmean(end.f1(run.short_labels) for end, run in zip(ends, timings, strict=True))
    return SessionEndCost(
        pairs=sum(len(end.pairs()) for end in ends) // len(ends),
        shortlisted_pairs=sum(len(run.short_labels) for run in timings) // len(ends),
        together_seconds=together,
        one_by_one_seconds=single,
        shortlist_seconds=short,
        batch_gain=single / together,
        shortlist_gain=single / short,
        set_f1=set_f1,
        shortlist_set_f1=short_set_f1,
        shortlist_loss_points=100 * (set_f1 - short_set_f1),
    )


@dataclass(frozen=True, slots=True)
class _Timing:
    labels: Labels
    short_labels: Labels
    together: float
    one_by_one: float
    short: float


def _time_session_end(classifier: PairClassifier, encoder: Encoder, end: SessionEnd, shortlist: int) -> _Timing:
    pairs, memory_vectors = end.pairs(), encoder.encode(end.memory, "passage")
    start = perf_counter()
    labels = _classify(classifier, pairs)
    together = perf_counter() - start
    for pair in pairs:
        classifier.classify([pair])
    one_by_one = perf_counter() - start - together
    start = perf_counter()
    short_labels = _classify(classifier, _nearest_pairs(encoder, end, memory_vectors, shortlist))
    return _Timing(labels, short_labels, together, one_by_one, perf_counter() - start)


def _nearest_pairs(
    encoder: Encoder, end: SessionEnd, memory_vectors: NDArray[np.float32], shortlist: int
) -> list[Pair]:
    order = (-(encoder.encode(end.new, "query") @ memory_vectors.T)).argsort(axis=1)[:, :shortlist]
    return [(end.memory[m], sentence) for sentence, row in zip(end.new, order.tolist(), strict=True) for m in row]


def _classify(classifier: PairClassifier, pairs: Sequence[Pair]) -> dict[Pair, Operation]:
    labels = classifier.classify(pairs)
    return {pair: label.operation for pair, label in zip(pairs, labels, strict=True)}


def _by_group(pairs: Iterable[LabelledPair]) -> dict[str, list[LabelledPair]]:
    groups: dict[str, list[LabelledPair]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair)
    return groups


def _gold_labels(pairs: Iterable[LabelledPair]) -> dict[Pair, Operation]:
    return {(pair.first, pair.second): name for pair in pairs for name in OPERATIONS if name == pair.label}
