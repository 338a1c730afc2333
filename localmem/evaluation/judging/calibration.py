"""Agreement of a judge with labelled verdicts, from which it counts as believable or not.

Words and pairs are measured by accuracy and Cohen's kappa, numbers and grades by Spearman's rank correlation. A verdict
that is missing agrees with nothing: it is a word of its own, or the middle of the scale. A judge is believable from
`MIN_AGREEMENT` on ("substantial" agreement in Landis and Koch, 1977), if the interval of its agreement begins at
`MIN_LOW` or above ("moderate"), and if it accepts at most `MAX_VAGUE_ACCEPTED` of the wrong answers that are vague.

Calibrations are stored in one file of the data directory. Each is valid for one judge with its samples, one version of
its prompt and one model; any other combination has not been measured.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from localmem.config import Settings
from localmem.errors import BadInput, requires
from localmem.evaluation.judging.judges import Item, Judge, Numbers, Pair, Words, check_item
from localmem.evaluation.judging.verdicts import FLIPS, Verdict
from localmem.files import parse_json, read_json, read_lines, read_text, write_json
from localmem.llm.base import route
from localmem.prompts import load
from localmem.reporting.intervals import Estimate, estimate
from localmem.weights.folder import adapter_folder, file_sums
from localmem.weights.manifest import Manifest

FILE = "calibration.json"
MIN_AGREEMENT = 0.6
MIN_LOW = 0.4
MAX_VAGUE_ACCEPTED = 0.2
VAGUE = "vague"
_NO_VERDICT = "no verdict"
_RESAMPLES = 500
_CURE = "give JSON lines with item, label and kind"


T = TypeVar("T")


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

    `low` and `high` are its 95 % percentile bootstrap interval over the items; none for fewer than five.
    `passed` is the share of wrong answers of each kind that were accepted as right. `flipped` is the share of samples
    that named one position in both orders, and `favoured` how these divide by position. `means` are the judge's mean
    numbers by labelled number. Figures that the judge's kind of verdict does not have are None or empty.
    """

    items: int
    unusable: int
    trimmed: int
    agreement: float
    accuracy: Estimate | None = None
    kinds: Mapping[str, KindAgreement] = field(default_factory=dict)
    confusion: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    passed: Mapping[str, float] = field(default_factory=dict)
    flipped: float | None = None
    favoured: Mapping[str, float] = field(default_factory=dict)
    spearman: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None

    @property
    def believable(self) -> bool:
        """Whether reports may rely on this judge."""
        is_certain = self.low is not None and self.low >= MIN_LOW
        return self.agreement >= MIN_AGREEMENT and is_certain and self.passed.get(VAGUE, 0.0) <= MAX_VAGUE_ACCEPTED

    @property
    def line(self) -> str:
        """A summary in a few words."""
        measure = "mean Spearman" if self.spearman else "kappa"
        interval = "" if self.low is None or self.high is None else f" [{self.low:.2f}, {self.high:.2f}]"
        figures = f"{measure} {self.agreement:.2f}{interval}"
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
    lines = labelled.lines
    unusable = sum(not verdict.usable for verdict in verdicts)
    counts = len(lines), unusable, sum(verdict.trimmed > 0 for verdict in verdicts)
    if isinstance(judge.verdict, Numbers):
        middle = (judge.verdict.low + judge.verdict.high) / 2
        pairs = {scale: _score_pairs(scale, lines, verdicts, middle) for scale in judge.scales}
        spearman = {scale: _spearman(values) for scale, values in pairs.items()}
        means = {scale: _means(values) for scale, values in pairs.items()}
        rows = list(zip(*pairs.values(), strict=True))
        low, high = _interval(lambda drawn: fmean(map(_spearman, zip(*drawn, strict=True))), rows, seed)
        return Calibration(*counts, fmean(spearman.values()), spearman=spearman, means=means, low=low, high=high)
    labels = [line.label for line in lines if line.label is not None]
    words = [verdict.label or _NO_VERDICT for verdict in verdicts]
    flipped, favoured = _flips(verdicts) if isinstance(judge.verdict, Pair) else (None, {})
    hits: defaultdict[str, list[bool]] = defaultdict(list)
    confusion: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line, label, word in zip(lines, labels, words, strict=True):
        hits[line.kind].append(label == word)
        confusion[label][word] += 1
    low, high = _interval(_kappa, list(zip(labels, words, strict=True)), seed)
    return Calibration(
        *counts,
        agreement=_kappa(list(zip(labels, words, strict=True))),
        accuracy=estimate([float(label == word) for label, word in zip(labels, words, strict=True)]),
        kinds={kind: KindAgreement(len(values), sum(values)) for kind, values in hits.items()},
        confusion={label: dict(row) for label, row in confusion.items()},
        passed=_acceptance(judge.verdict, lines, words) if isinstance(judge.verdict, Words) else {},
        flipped=flipped,
        favoured=favoured,
        low=low,
        high=high,
    )


def _interval(
    statistic: Callable[[Sequence[T]], float], items: Sequence[T], seed: int
) -> tuple[float, float] | tuple[None, None]:
    """The 95 % percentile bootstrap interval of a statistic of the items; none for fewer than five."""
    if len(items) < 5:
        return None, None
    random = Random(seed)  # noqa: S311  # not used for security
    values = sorted(statistic(random.choices(items, k=len(items))) for _ in range(_RESAMPLES))
    return values[round(0.025 * _RESAMPLES)], values[round(0.975 * _RESAMPLES) - 1]


def _parse_line(place: str, text: str, judge: Judge) -> Label:
    line = parse_json(place, text, Label, _CURE)
    check_item(judge, line.item, f"{place}: ")
    options = judge.verdict.options_of(line.item) if isinstance(judge.verdict, Words) else judge.scales
    if isinstance(judge.verdict, Numbers):
        if set(line.scores) != set(options):
            raise BadInput(f"{place}: scores has {sorted(line.scores)}; this judge gives {', '.join(options)}")
    elif line.label not in options:
        raise BadInput(f"{place}: the label is {line.label!r}; this item can get {', '.join(options)}")
    return line


def _kappa(pairs: Sequence[tuple[str, str]]) -> float:
    """Cohen's kappa of (label, word); 0 if only one word occurs on both sides, which shows nothing."""
    with requires("calibration needs scikit-learn", "eval"):
        from sklearn.metrics import cohen_kappa_score
    labels, words = zip(*pairs, strict=True)
    if len({*labels, *words}) < 2:
        return 0.0
    return float(cohen_kappa_score(labels, words))


def _spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Of (labelled number, the judge's number); 0 if one side is constant."""
    with requires("calibration needs scipy", "eval"):
        from scipy.stats import spearmanr
    labels, scores = [label for label, _ in pairs], [score for _, score in pairs]
    if len(set(labels)) < 2 or len(set(scores)) < 2:
        return 0.0
    return float(spearmanr(labels, scores).statistic)


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


def _means(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The judge's mean number for each labelled number, in ascending order."""
    scores: defaultdict[float, list[float]] = defaultdict(list)
    for label, score in pairs:
        scores[label].append(score)
    return {f"{label:g}": fmean(values) for label, values in sorted(scores.items())}


def _score_pairs(
    scale: str, lines: Sequence[Label], verdicts: Sequence[Verdict], missing: float
) -> list[tuple[float, float]]:
    """(labelled number, the judge's number) of each item, with `missing` where there is no verdict."""
    pairs = zip(lines, verdicts, strict=True)
    return [(line.scores[scale], verdict.scores.get(scale, missing)) for line, verdict in pairs]


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model behind a judge. `checksum` is over its files; "" if a server holds weights that are not here."""

    name: str
    checksum: str


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """A calibration and what it is valid for. `labelled` and `labelled_sha256` identify the labelled set."""

    judge: str
    prompt_sha256: str
    samples: int
    temperature: float
    model: ModelIdentity
    labelled: str
    labelled_sha256: str
    seed: int
    figures: Calibration


_RECORDS = TypeAdapter(dict[str, CalibrationRecord])


def model_identity(settings: Settings, judge: Judge | None = None) -> ModelIdentity:
    """The configured backbone, with the adapter that serves the judge's prompt, if there is one."""
    served = settings.llm.url is not None
    name = settings.llm.served_as or settings.model if served else settings.model
    folders = {prompt: str(adapter_folder(folder)) for prompt, folder in settings.llm.adapters.items()}
    adapter = route(folders, judge.prompt) if judge else None
    entry = Manifest.load().models.get(settings.model)
    checksum = (entry.checksum or "") if entry and not served else ""
    if adapter is None:
        return ModelIdentity(name, checksum)
    folder = Path(adapter)
    return ModelIdentity(f"{name}+{folder.name}", _combine_sums(folder, base=checksum))


def nli_identity(name: str) -> ModelIdentity:
    """A trained NLI model, by its name in the manifest or its folder."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return ModelIdentity(folder.name, _combine_sums(folder))
    return ModelIdentity(name, Manifest.load().entry(name).checksum or "")


def find_calibration(data_dir: Path, judge: Judge, model: ModelIdentity) -> Calibration | None:
    """The calibration of this judge on this model with its current prompt; None if there is none."""
    record = _read(data_dir / FILE).get(_key(judge, model))
    return record.figures if record else None


def save_calibration(
    data_dir: Path, judge: Judge, model: ModelIdentity, labelled: LabelledSet, seed: int, figures: Calibration
) -> CalibrationRecord:
    """Store a calibration in the data directory; it replaces an earlier one of the same judge and model."""
    path = data_dir / FILE
    records = _read(path)
    records[_key(judge, model)] = record = CalibrationRecord(
        judge=judge.name,
        prompt_sha256=load(judge.prompt).digest,
        samples=judge.samples,
        temperature=judge.temperature,
        model=model,
        labelled=labelled.name,
        labelled_sha256=labelled.sha256,
        seed=seed,
        figures=figures,
    )
    write_json(path, {key: asdict(entry) for key, entry in records.items()}, "choose another data directory")
    return record


def _key(judge: Judge, model: ModelIdentity) -> str:
    request = json.dumps([judge.name, load(judge.prompt).digest, judge.samples, judge.temperature])
    return f"{judge.name} {model.name}@{model.checksum[:12] or 'unseen'} {sha256(request.encode()).hexdigest()[:12]}"


def _combine_sums(folder: Path, **others: str) -> str:
    sums = others | {name: file.sha256 for name, file in file_sums(folder, folder.name).items()}
    return sha256(json.dumps(sorted(sums.items())).encode()).hexdigest()


def _read(path: Path) -> dict[str, CalibrationRecord]:
    return read_json(path, _RECORDS, "remove it and run `localmem eval calibrate` again") if path.is_file() else {}
