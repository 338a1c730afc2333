"""How far a judge agrees with labelled verdicts: the figures by which it is believed or not.

Words and pairs are measured by accuracy and Cohen's kappa, numbers and grades by Spearman's rank correlation. A judge
is believable from `BELIEVABLE` on ("substantial" agreement in Landis and Koch, 1977), and when it passes at most
`PASSED` of the wrong answers that are vague. Knows no model and no file of results.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import BadInput, MissingExtra
from localmem.evaluation.judging.judges import Item, Judge, Pair, Words
from localmem.evaluation.judging.verdicts import FLIPS, Verdict
from localmem.files import parse_json, read_lines, read_text
from localmem.reporting.bootstrap import Estimate, estimate

BELIEVABLE = 0.6
PASSED = 0.2
VAGUE = "vague"
_NONE = "no verdict"


class Label(BaseModel):
    """A line of a labelled set: what is judged, the kind of case it is, and what a person says of it.

    `label` is the word of a judge of words, `scores` are the numbers of the others.
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
        """What is to be judged."""
        return [line.item for line in self.lines]


class Agreement(NamedTuple):
    """Of one kind of case: how many there are, how many the judge sees as the labels do."""

    items: int
    agreed: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one judge over one labelled set. `agreement` is the one that counts: kappa, or mean Spearman.

    `passed` is the share of wrong answers of each kind that were taken for right. `flipped` is the share of samples
    that named one place in both orders, `favoured` which place, as a share of those. `means` are the judge's mean
    numbers by labelled number. Figures that the judge's verdicts do not have are None or empty.
    """

    items: int
    unusable: int
    trimmed: int
    agreement: float
    accuracy: Estimate | None
    kinds: Mapping[str, Agreement]
    confusion: Mapping[str, Mapping[str, int]]
    passed: Mapping[str, float]
    flipped: float | None
    favoured: Mapping[str, float]
    spearman: Mapping[str, float]
    means: Mapping[str, Mapping[str, float]]

    @property
    def believable(self) -> bool:
        """Whether reports may lean on this judge."""
        return self.agreement >= BELIEVABLE and self.passed.get(VAGUE, 0.0) <= PASSED

    @property
    def line(self) -> str:
        """The same in a few words."""
        what = "mean Spearman" if self.spearman else "kappa"
        found = f"{what} {self.agreement:.2f}"
        if self.passed.get(VAGUE, 0.0) > PASSED:
            found += f", and it passes {self.passed[VAGUE]:.0%} of the vague wrong answers"
        return f"{'believable' if self.believable else 'not believable'}: {found}"


_CURE = "give JSON lines with item, label and kind"


def read_labelled_set(path: Path, judge: Judge) -> LabelledSet:
    """The labelled set of a judge. Raises BadInput with file and line."""
    text = read_text(path, _CURE)
    lines = [_line(place, line, judge) for place, line in read_lines(path, _CURE)]
    if not lines:
        raise BadInput(f"{path} does not contain labelled verdicts; {_CURE}")
    return LabelledSet(path.name, sha256(text.encode()).hexdigest(), tuple(lines))


def calibrate_judge(judge: Judge, labelled: LabelledSet, verdicts: Sequence[Verdict], *, seed: int = 0) -> Calibration:
    """The judge's verdicts on the labelled items against their labels. An item without a verdict counts as missed."""
    worded = isinstance(judge.verdict, Words | Pair)
    lines = labelled.lines
    right = [line.label for line in lines if line.label is not None]
    given = [verdict.label or _NONE for verdict in verdicts]
    spearman = {} if worded else {scale: _spearman(scale, lines, verdicts) for scale in judge.scales}
    return Calibration(
        items=len(lines),
        unusable=sum(not verdict.usable for verdict in verdicts),
        trimmed=sum(verdict.trimmed > 0 for verdict in verdicts),
        agreement=_kappa(right, given) if worded else sum(spearman.values()) / len(spearman),
        accuracy=estimate([float(a == b) for a, b in zip(right, given, strict=True)], seed=seed) if worded else None,
        kinds=_kinds(lines, given) if worded else {},
        confusion=_confusion(right, given) if worded else {},
        passed=_passed(judge.verdict, lines, given) if isinstance(judge.verdict, Words) else {},
        **_flips(verdicts if isinstance(judge.verdict, Pair) else []),  # type: ignore[arg-type]  # two fields by name
        spearman=spearman,
        means={} if worded else {scale: _means(scale, lines, verdicts) for scale in judge.scales},
    )


def _line(place: str, text: str, judge: Judge) -> Label:
    line = parse_json(place, text, Label, _CURE)
    lacking = [name for name in judge.inputs if name not in line.item]
    if lacking:
        raise BadInput(f"{place}: the item lacks {', '.join(lacking)}; the judge {judge.name!r} needs it")
    if isinstance(judge.verdict, Words | Pair):
        known = judge.verdict.of(line.item) if isinstance(judge.verdict, Words) else judge.scales
        if line.label not in known:
            raise BadInput(f"{place}: the label is {line.label!r}; this item can get {', '.join(known)}")
    elif set(line.scores) != set(judge.scales):
        raise BadInput(f"{place}: scores are of {sorted(line.scores)}; this judge gives {', '.join(judge.scales)}")
    return line


def _kappa(right: Sequence[str], given: Sequence[str]) -> float:
    """Cohen's kappa; where only one word occurs on both sides, nothing is shown, and it is 0."""
    try:
        from sklearn.metrics import cohen_kappa_score
    except ModuleNotFoundError as error:
        raise MissingExtra("calibration needs scikit-learn; run `pip install 'localmem[eval]'`") from error
    if len({*right, *given}) < 2:
        return 0.0
    return float(cohen_kappa_score(right, given))


def _spearman(scale: str, lines: Sequence[Label], verdicts: Sequence[Verdict]) -> float:
    """Over the items with a verdict; 0 where one side never changes."""
    try:
        from scipy.stats import spearmanr
    except ModuleNotFoundError as error:
        raise MissingExtra("calibration needs scipy; run `pip install 'localmem[eval]'`") from error
    pairs = [
        (line.scores[scale], verdict.scores[scale])
        for line, verdict in zip(lines, verdicts, strict=True)
        if scale in verdict.scores
    ]
    ours, theirs = [one for one, _ in pairs], [one for _, one in pairs]
    if len(set(ours)) < 2 or len(set(theirs)) < 2:
        return 0.0
    return float(spearmanr(ours, theirs).statistic)


def _kinds(lines: Sequence[Label], given: Sequence[str]) -> dict[str, Agreement]:
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for line, word in zip(lines, given, strict=True):
        found[line.kind].append(line.label == word)
    return {kind: Agreement(len(held), sum(held)) for kind, held in found.items()}


def _confusion(right: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, int]]:
    """Labelled word -> given word -> how often."""
    return {
        word: dict(Counter(b for a, b in zip(right, given, strict=True) if a == word)) for word in dict.fromkeys(right)
    }


def _passed(words: Words, lines: Sequence[Label], given: Sequence[str]) -> dict[str, float]:
    """Of the answers that are not right, by kind, the share whose given word is that of a right one."""
    if not words.right:
        return {}
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for line, word in zip(lines, given, strict=True):
        if not words.is_right(line.item, line.label or ""):
            found[line.kind].append(words.is_right(line.item, word))
    return {kind: sum(held) / len(held) for kind, held in found.items()}


def _flips(verdicts: Sequence[Verdict]) -> dict[str, object]:
    votes = sum((Counter(verdict.votes) for verdict in verdicts), Counter[str]())
    flips = {word: votes[word] for word in FLIPS}
    total = sum(flips.values())
    return {
        "flipped": total / votes.total() if votes.total() else None,
        "favoured": {word.removeprefix("flip to "): count / total for word, count in flips.items()} if total else {},
    }


def _means(scale: str, lines: Sequence[Label], verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The judge's mean number for each labelled number, from low to high."""
    found: defaultdict[float, list[float]] = defaultdict(list)
    for line, verdict in zip(lines, verdicts, strict=True):
        if scale in verdict.scores:
            found[line.scores[scale]].append(verdict.scores[scale])
    return {f"{label:g}": sum(held) / len(held) for label, held in sorted(found.items())}
