"""Compares classifiers of memory operations on labelled pairs: by pair, by the memory they leave behind, and by time.

Set F1 (Keep Me Updated, section 5.1.2) compares the memory M' after Algorithm 1 with the gold M'. For labelled pairs
with groups it is computed as follows: each new sentence of a group is the end of a session whose memory is every
remembered sentence of the group. All combinations of the two are classified; a combination without a gold label counts
as APPEND. The sentences of both M' are compared by F1 (1 if both are empty), and the result is the mean over all
session ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from time import perf_counter
from typing import Any

from pydantic import Field

from localmem.classification import OPERATIONS, Operation, PairClassifier
from localmem.config import Settings
from localmem.errors import BadInput, requires
from localmem.evaluation.datasets.labelled_pairs import SHIPPED, LabelledPair, read_operations
from localmem.experiments.runs import ExperimentRecipe, Notify, open_backbone
from localmem.reporting.provenance import versions
from localmem.reporting.sections import Report, Table
from localmem.retrieval.base import Encoder
from localmem.systems.carecall.memory_update import remaining, update

LLM = "llm"  # the name of the backbone among the classifiers

Pair = tuple[str, str]
Labels = Mapping[Pair, Operation]


class OperationsRecipe(ExperimentRecipe):
    """The options of a classifier comparison."""

    classifiers: tuple[str, ...] = Field(min_length=1)
    """Trained classifier by name or folder, or llm for the backbone."""
    limit: int | None = Field(default=None, ge=1)
    """Use only the first N pairs."""
    memories: int = Field(default=100, ge=2)
    """Timing: remembered sentences at a session end."""
    new: int = Field(default=5, ge=1)
    """Timing: new sentences at a session end."""
    shortlist: int = Field(default=10, ge=1)
    """Timing: nearest memories for each new sentence in the shortlist."""
    sessions: int = Field(default=2, ge=0)
    """Timing: session ends to time (0: none)."""
    seed: int = 0
    """Seed for sampling session ends."""


def compare_classifiers(
    settings: Settings,
    recipe: OperationsRecipe,
    path: Path | None = None,
    *,
    out: Path | None = None,
    notify: Notify = lambda _: None,
) -> Report:
    """Score classifiers on the pairs in `path`, by default the shipped ones; `out` receives the report.

    Raises BadInput.
    """
    from localmem.factory import bare_encoder

    path = path or SHIPPED
    pairs = read_operations(path).pairs[: recipe.limit]
    ends: list[SessionEnd] = []
    if recipe.sessions:
        ends = large_session_ends(pairs, recipe.memories, recipe.new, recipe.seed)[: recipe.sessions]
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for name in recipe.classifiers:
            notify(f"{name}: {len(pairs)} pairs")
            classifier = _load_classifier(name, settings, stack, notify)
            labels, speed = classify_pairs(classifier, pairs)
            row = {"model": name, **asdict(score_operations(pairs, labels)), "pairs_per_second": speed}
            if ends:
                encoder = bare_encoder(settings, remembers=False)
                row["session_end"] = session_end_cost(classifier, encoder, ends, recipe.shortlist)
            rows.append(row)
    note = f"{path.name}, {len(pairs)} pairs"
    figures = {"data": path.name, "pairs": len(pairs), "models": rows, "versions": versions()}
    report = Report(figures, _tables(note, rows), (note,))
    if out is not None:
        report.save(out, f"Operations {out.name}")
    return report


def _load_classifier(name: str, settings: Settings, stack: ExitStack, notify: Notify) -> PairClassifier:
    from localmem.classification import LLMClassifier
    from localmem.factory import pair_classifier

    if name != LLM:
        return pair_classifier(name, settings.retrieval.device)
    return LLMClassifier(open_backbone(settings, stack, notify))


def _tables(caption: str, rows: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    nested = ("f1", "confusion", "session_end")
    tables = [Table.of(caption, [{name: row[name] for name in row if name not in nested} for row in rows])]
    if ends := [{"model": row["model"], **row["session_end"]} for row in rows if "session_end" in row]:
        tables.append(Table.of("Session end", ends))
    tables += [confusion_table(row["model"], row["confusion"], row["f1"]) for row in rows]
    return tuple(tables)


def confusion_table(name: str, confusion: Sequence[Sequence[int]], f1: Mapping[str, float] | None = None) -> Table:
    """How often each true operation was predicted as which; `f1` adds a column."""
    rows = [
        {"": label, **({"F1": f1[label]} if f1 else {}), **dict(zip(OPERATIONS, counts, strict=True))}
        for label, counts in zip(OPERATIONS, confusion, strict=True)
    ]
    return Table.of(f"{name}: confusion (rows are the true labels)", rows)


# -- measures ----------------------------------------------------------------------------------------------------------


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
    macro_f1: float
    set_f1: float
    f1: dict[str, float]
    confusion: list[list[int]]


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


def classify_pairs(classifier: PairClassifier, pairs: Sequence[LabelledPair]) -> tuple[dict[Pair, Operation], float]:
    """Classify every pair of the session ends in one batch; also return the speed in pairs a second."""
    questions = list(dict.fromkeys(pair for end in session_ends(pairs) for pair in end.pairs()))
    classifier.classify(questions[:1])  # load the weights before the clock starts
    start = perf_counter()
    labels = _classify(classifier, questions)
    return labels, len(questions) / (perf_counter() - start)


def score_operations(pairs: Sequence[LabelledPair], labels: Labels) -> OperationScores:
    """Compare `labels` with the pairs' own. `labels` must cover every pair of their session ends."""
    with requires("measures need scikit-learn", "train"):
        from sklearn.metrics import confusion_matrix, f1_score
    expected = [pair.label for pair in pairs]
    predicted = [labels[pair.first, pair.second] for pair in pairs]
    f1 = f1_score(expected, predicted, labels=list(OPERATIONS), average=None, zero_division=0.0).tolist()
    return OperationScores(
        accuracy=fmean(a == b for a, b in zip(expected, predicted, strict=True)),
        macro_f1=fmean(f1),
        set_f1=fmean(end.f1(labels) for end in session_ends(pairs)),
        f1=dict(zip(OPERATIONS, f1, strict=True)),
        confusion=confusion_matrix(expected, predicted, labels=list(OPERATIONS)).tolist(),
    )


def session_end_cost(
    classifier: PairClassifier, encoder: Encoder, ends: Sequence[SessionEnd], shortlist: int
) -> dict[str, float]:
    """Mean cost of a session end: all pairs in one batch, pair by pair, and only the pairs on a shortlist.

    The shortlist holds `shortlist` memories for each new sentence (CareCall's option). Its seconds cover encoding the
    new sentences and searching; the remembered ones are encoded beforehand, as in an index. Gains are speed-ups over
    pair by pair; `shortlist_loss_points` are points of set F1, negative if the shortlist gains.
    """
    classifier.classify(ends[0].pairs()[:2])  # load both models before the clock starts
    encoder.encode(ends[0].new, "query")
    costs = [_time_session_end(classifier, encoder, end, shortlist) for end in ends]
    means = {name: fmean(cost[name] for cost in costs) for name in costs[0]}
    return {
        **means,
        "pairs": int(means["pairs"]),
        "shortlisted_pairs": int(means["shortlisted_pairs"]),
        "batch_gain": means["one_by_one_seconds"] / means["together_seconds"],
        "shortlist_gain": means["one_by_one_seconds"] / means["shortlist_seconds"],
        "shortlist_loss_points": 100 * (means["set_f1"] - means["shortlist_set_f1"]),
    }


def _time_session_end(
    classifier: PairClassifier, encoder: Encoder, end: SessionEnd, shortlist: int
) -> dict[str, float]:
    pairs, memory_vectors = end.pairs(), encoder.encode(end.memory, "passage")
    start = perf_counter()
    labels = _classify(classifier, pairs)
    together = perf_counter() - start
    for pair in pairs:
        classifier.classify([pair])
    one_by_one = perf_counter() - start - together
    start = perf_counter()
    order = (-(encoder.encode(end.new, "query") @ memory_vectors.T)).argsort(axis=1)[:, :shortlist].tolist()
    nearest = [(end.memory[m], sentence) for sentence, row in zip(end.new, order, strict=True) for m in row]
    short_labels = _classify(classifier, nearest)
    return {
        "pairs": len(pairs),
        "shortlisted_pairs": len(short_labels),
        "together_seconds": together,
        "one_by_one_seconds": one_by_one,
        "shortlist_seconds": perf_counter() - start,
        "set_f1": end.f1(labels),
        "shortlist_set_f1": end.f1(short_labels),
    }


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
