"""Agreement of a judge with labelled verdicts, from which it counts as believable or not.

Words and pairs are measured by accuracy and Cohen's kappa, numbers and grades by Spearman's rank correlation. A judge
is believable from `MIN_AGREEMENT` on ("substantial" agreement in Landis and Koch, 1977), if it also accepts at most
`MAX_VAGUE_ACCEPTED` of the wrong answers that are vague. Does not depend on a model.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import BadInput, MissingExtra
from localmem.evaluation.judging.judges import Item, Judge, Pair, Words, check_item
from localmem.evaluation.judging.verdicts import FLIPS, Verdict
from localmem.files import parse_json, read_lines, read_text
from localmem.reporting.bootstrap import Estimate, estimate

MIN_AGREEMENT = 0.6
MAX_VAGUE_ACCEPTED = 0.2
VAGUE = "vague"
_NO_VERDICT = "no verdict"
_CURE = "give JSON lines with item, label and kind"


class Label(BaseModel):
    """A line of a labelled set: the item to judge, the kind of case, and the correct verdict.

    `label` is the word for a judge of words, `scores` are the numbers for the others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    item: dict[str, str]
    kind: str = ""
    label: str | None = None
    scores: dict[str, float] = Field(default_factory=dict)


class LabelledSet(NamedTuple):
    """A labelled set as read."""

    name: str
    sha256: str
    lines: tuple[Label, ...]

    @property
    def items(self) -> list[Item]:
        """The items to judge."""
        return [line.item for line in self.lines]


class KindAgreement(NamedTuple):
    """For one kind of case: the number of items, and on how many the judge agrees with the label."""

    items: int
    agreed: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one judge on one labelled set. `agreement` is the decisive one: kappa, or mean Spearman.

    `passed` is the share of wrong answers of each kind that were accepted as right. `flipped` is the share of samples
    that named one position in both orders, and `favoured` how these divide by position. `means` are the judge's mean
    numbers by labelled number. Figures that the judge's kind of verdict does not have are None or empty.
    """

    items: int
    unusable: int
    trimmed: int
    agreement: float
    accuracy: Estimate | None
    kinds: Mapping[str, KindAgreement]
    confusion: Mapping[str, Mapping[str, int]]
    passed: Mapping[str, float]
    flipped: float | None
    favoured: Mapping[str, float]
    spearman: Mapping[str, float]
    means: Mapping[str, Mapping[str, float]]

    @property
    def believable(self) -> bool:
        """Whether reports may rely on this judge."""
        return self.agreement >= MIN_AGREEMENT and self.passed.get(VAGUE, 0.0) <= MAX_VAGUE_ACCEPTED

    @property
    def line(self) -> str:
        """A summary in a few words."""
        measure = "mean Spearman" if self.spearman else "kappa"
        figures = f"{measure} {self.agreement:.2f}"
        if self.passed.get(VAGUE, 0.0) > MAX_VAGUE_ACCEPTED:
            figures += f", and it accepts {self.passed[VAGUE]:.0%} of the vague wrong answers"
        return f"{'believable' if self.believable else 'not believable'}: {figures}"


def read_labelled_set(path: Path, judge: Judge) -> LabelledSet:
    """The labelled set of a judge. Raises BadInput with file and line."""
    text = read_text(path, _CURE)
    lines = [_parse_line(place, line, judge) for place, line in read_lines(path, _CURE)]
    if not lines:
        raise BadInput(f"{path} does not contain labelled verdicts; {_CURE}")
    return LabelledSet(path.name, sha256(text.encode()).hexdigest(), tuple(lines))


def calibrate_judge(judge: Judge, labelled: LabelledSet, verdicts: Sequence[Verdict], *, seed: int = 0) -> Calibration:
    """Compare the judge's verdicts on the labelled items with the labels. An item without a verdict is a miss."""
    has_words = isinstance(judge.verdict, Words | Pair)
    lines = labelled.lines
    labels = [line.label for line in lines if line.label is not None]
    words = [verdict.label or _NO_VERDICT for verdict in verdicts]
    hits = [float(word == label) for word, label in zip(words, labels, strict=True)] if has_words else []
    spearman = {} if has_words else {scale: _spearman(scale, lines, verdicts) for scale in judge.scales}
    flipped, favoured = _flips(verdicts) if isinstance(judge.verdict, Pair) else (None, {})
    return Calibration(
        items=len(lines),
        unusable=sum(not verdict.usable for verdict in verdicts),
        trimmed=sum(verdict.trimmed > 0 for verdict in verdicts),
        agreement=_kappa(labels, words) if has_words else fmean(spearman.values()),
        accuracy=estimate(hits, seed=seed) if has_words else None,
        kinds=_kinds(lines, words) if has_words else {},
        confusion=_confusion(labels, words) if has_words else {},
        passed=_acceptance(judge.verdict, lines, words) if isinstance(judge.verdict, Words) else {},
        flipped=flipped,
        favoured=favoured,
        spearman=spearman,
        means={} if has_words else {scale: _means(scale, lines, verdicts) for scale in judge.scales},
    )


def _parse_line(place: str, text: str, judge: Judge) -> Label:
    line = parse_json(place, text, Label, _CURE)
    check_item(judge, line.item, f"{place}: ")
    if isinstance(judge.verdict, Words | Pair):
        options = judge.verdict.options_of(line.item) if isinstance(judge.verdict, Words) else judge.scales
        if line.label not in options:
            raise BadInput(f"{place}: the label is {line.label!r}; this item can get {', '.join(options)}")
    elif set(line.scores) != set(judge.scales):
        raise BadInput(f"{place}: scores has {sorted(line.scores)}; this judge gives {', '.join(judge.scales)}")
    return line


def _kappa(labels: Sequence[str], words: Sequence[str]) -> float:
    """Cohen's kappa; 0 if only one word occurs on both sides, which shows nothing."""
    try:
        from sklearn.metrics import cohen_kappa_score
    except ModuleNotFoundError as error:
        raise MissingExtra("calibration needs scikit-learn; run `pip install 'localmem[eval]'`") from error
    if len({*labels, *words}) < 2:
        return 0.0
    return float(cohen_kappa_score(labels, words))


def _spearman(scale: str, lines: Sequence[Label], verdicts: Sequence[Verdict]) -> float:
    """Over the items with a verdict; 0 if one side is constant."""
    try:
        from scipy.stats import spearmanr
    except ModuleNotFoundError as error:
        raise MissingExtra("calibration needs scipy; run `pip install 'localmem[eval]'`") from error
    pairs = _score_pairs(scale, lines, verdicts)
    labels, scores = [label for label, _ in pairs], [score for _, score in pairs]
    if len(set(labels)) < 2 or len(set(scores)) < 2:
        return 0.0
    return float(spearmanr(labels, scores).statistic)


def _kinds(lines: Sequence[Label], words: Sequence[str]) -> dict[str, KindAgreement]:
    hits: defaultdict[str, list[bool]] = defaultdict(list)
    for line, word in zip(lines, words, strict=True):
        hits[line.kind].append(line.label == word)
    return {kind: KindAgreement(len(values), sum(values)) for kind, values in hits.items()}


def _confusion(labels: Sequence[str], words: Sequence[str]) -> dict[str, dict[str, int]]:
    """Label -> the judge's word -> count."""
    pairs = list(zip(labels, words, strict=True))
    return {label: dict(Counter(word for other, word in pairs if other == label)) for label in dict.fromkeys(labels)}


def _acceptance(verdict: Words, lines: Sequence[Label], words: Sequence[str]) -> dict[str, float]:
    """Kind -> the share of its wrong answers that get the word of a right one."""
    if not verdict.right:
        return {}
    hits: defaultdict[str, list[bool]] = defaultdict(list)
    for line, word in zip(lines, words, strict=True):
        if not verdict.is_right(line.item, line.label or ""):
            hits[line.kind].append(verdict.is_right(line.item, word))
    return {kind: sum(values) / len(values) for kind, values in hits.items()}


def _flips(verdicts: Sequence[Verdict]) -> tuple[float | None, dict[str, float]]:
    """The share of samples that named one position in both orders, and how these divide by position."""
    votes = sum((Counter(verdict.votes) for verdict in verdicts), Counter[str]())
    flips = {word: votes[word] for word in FLIPS}
    total = sum(flips.values())
    favoured = {word.removeprefix("flip to "): count / total for word, count in flips.items()} if total else {}
    return total / votes.total() if votes.total() else None, favoured


def _means(scale: str, lines: Sequence[Label], verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The judge's mean number for each labelled number, in ascending order."""
    scores: defaultdict[float, list[float]] = defaultdict(list)
    for label, score in _score_pairs(scale, lines, verdicts):
        scores[label].append(score)
    return {f"{label:g}": fmean(values) for label, values in sorted(scores.items())}


def _score_pairs(scale: str, lines: Sequence[Label], verdicts: Sequence[Verdict]) -> list[tuple[float, float]]:
    """(labelled number, the judge's number) of the items with a verdict."""
    pairs = zip(lines, verdicts, strict=True)
    return [(line.scores[scale], verdict.scores[scale]) for line, verdict in pairs if scale in verdict.scores]
