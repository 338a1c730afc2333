"""Training a segmenter that leaves its encoder as it is: one weight a feature of a gap, by logistic regression.

Minutes on a CPU where a classifier of gaps (`finetune.trainers.segmenter`) takes an hour, most of them for the vectors.
How strongly weights are held small, and the threshold, are chosen by cross-validation over dialogues, by Score.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from finetune.run_folder import digest
from finetune.trainers.segmenter import best_cut, dialogues
from finetune.trainers.training import Trained, need
from localmem.reporting.provenance import machine, versions
from localmem.segmentation.learned_texttiling import PLAIN, Floats, Learned, gap_features

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue

_COMPONENTS = 32  # of the vectors' width, that the weights may use
_FLAT = 1e-3  # of the widest direction's spread: what is less is no direction
_STRENGTHS = (0.005, 0.02, 0.1)  # scikit-learn's C: the less, the smaller the weights
_FOLDS = 5
_ROUNDS = 500  # of the solver at most
_TITLE = "Topical segmenter over an encoder's vectors"


@dataclass(frozen=True, slots=True)
class LightJob:
    """What to train from what. Without `valid` the measures are those of dialogues held out by cross-validation."""

    base: Path
    train: Sequence[Path]
    valid: Sequence[Path]
    out: Path
    limit: int | None = None
    seed: int = 0
    licence: str = "that of the base model and of the training data"
    command: str = "localmem finetune segmenter --light"


@dataclass(frozen=True, slots=True)
class _Read:
    """Dialogues with the features of their gaps, and which gaps are boundaries."""

    marked: "Sequence[SegmentedDialogue]"
    features: list[Floats]
    starts: list[NDArray[np.int64]]

    def fitted(self, numbers: Iterable[int], strength: float) -> "Pipeline":
        """What these dialogues teach."""
        part = list(numbers)
        features = np.concatenate([self.features[number] for number in part])
        return _fitted(features, np.concatenate([self.starts[number] for number in part]), strength)


def train(job: LightJob, *, note: Callable[[str], None] = print) -> Trained:
    """Writes the run's folder: the encoder, the weights, a report and a card. Raises BadInput before it begins."""
    need("sentence_transformers", "sklearn")
    learned, held_out = dialogues(job.train, job.valid, job.limit)
    began = perf_counter()
    known = _read(job.base, learned)
    note(f"{len(learned)} dialogues with {sum(map(len, known.features))} gaps to learn from")
    tried = [(_measures(known, _apart(known, strength, job.seed)), strength) for strength in _STRENGTHS]
    measures, strength = max(tried, key=lambda one: one[0]["score"])
    model = known.fitted(range(len(known.marked)), strength)
    if held_out:
        other = _read(job.base, held_out)
        measures = _measures(other, [model.predict_proba(features)[:, 1] for features in other.features])
    made = _folded(model, known.features[0].shape[1], measures["threshold"])
    trained = Trained({**measures, "strength": strength}, [], perf_counter() - began, 0)
    _save(job, made, trained, len(learned))
    return trained


def _read(base: Path, marked: "Sequence[SegmentedDialogue]") -> _Read:
    """Only dialogues with a gap count."""
    from localmem.retrieval.encoder import SentenceEncoder

    long = [one for one in marked if one.segments and one.segments[-1].stop > 1]
    encoder = SentenceEncoder(base, name=base.name)
    features = [found for found in gap_features(encoder, [one.session for one in long]) if found is not None]
    return _Read(long, features, [_starts(one) for one in long])


def _starts(one: "SegmentedDialogue") -> NDArray[np.int64]:
    starts = {segment.start for segment in one.segments}
    return np.array([int(gap in starts) for gap in range(1, one.segments[-1].stop)], dtype=np.int64)


def _apart(known: _Read, strength: float, seed: int) -> list[Floats]:
    """Each dialogue's probabilities by a model that did not learn from it."""
    found: dict[int, Floats] = {}
    for held in _folds(len(known.marked), seed):
        others = sorted(set(range(len(known.marked))) - set(held))
        model = known.fitted(others, strength)
        found |= {number: model.predict_proba(known.features[number])[:, 1] for number in held}
    return [found[number] for number in range(len(known.marked))]


def _folds(number: int, seed: int) -> Iterator[list[int]]:
    order = np.random.default_rng(seed).permutation(number).tolist()
    return (order[start::_FOLDS] for start in range(min(_FOLDS, number)))


def _fitted(features: Floats, starts: NDArray[np.int64], strength: float) -> "Pipeline":
    """Of the two vectors only the main directions count, lest many weights learn from few gaps."""
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    width = (features.shape[1] - PLAIN) // 2
    directions = PCA(_directions(features[:, PLAIN : PLAIN + width]), svd_solver="full")
    parts = [
        ("plain", "passthrough", slice(0, PLAIN)),
        ("before", directions, slice(PLAIN, PLAIN + width)),
        ("after", directions, slice(PLAIN + width, None)),
    ]
    model = make_pipeline(ColumnTransformer(parts), StandardScaler(), LogisticRegression(C=strength, max_iter=_ROUNDS))
    return model.fit(features, starts)


def _directions(vectors: Floats) -> int:
    """How many to keep; those in which the vectors hardly spread would only blow up their rounding."""
    spread = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False)
    return max(1, min(_COMPONENTS, int((spread > _FLAT * spread[0]).sum())))


def _folded(model: "Pipeline", features: int, threshold: float) -> Learned:
    """All steps are linear, so one weight a feature says the same."""
    bias = float(model.decision_function(np.zeros((1, features)))[0])
    weights = model.decision_function(np.eye(features)) - bias
    return Learned(weights=tuple(weights.tolist()), bias=bias, threshold=threshold)


def _measures(known: _Read, scores: Sequence[Floats]) -> dict[str, float]:
    return best_cut([one.segments for one in known.marked], np.concatenate(scores).tolist())


def _save(job: LightJob, made: Learned, trained: Trained, number: int) -> None:
    """The folder is the encoder's own with one file more, a report and a card."""
    shutil.copytree(job.base, job.out, dirs_exist_ok=True)
    made.save(job.out)
    files = [*job.train, *job.valid]
    report = {
        "title": _TITLE,
        "command": job.command,
        "base": job.base.name,
        "settings": {"limit": job.limit, "seed": job.seed, "folds": _FOLDS},
        "data": {path.name: digest(path) for path in files},
        "dialogues": number,
        "measures": trained.measures,
        "seconds": round(trained.seconds, 1),
        "machine": machine(job.out),
        "versions": versions(),
    }
    (job.out / "run.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (job.out / "README.md").write_text(_card(job, trained, files), encoding="utf-8")


def _card(job: LightJob, trained: Trained, files: Sequence[Path]) -> str:
    """The model's card, in Markdown."""
    measures = "\n".join(f"| {name} | {value:.4f} |" for name, value in trained.measures.items())
    data = "\n".join(f"- `{path.name}`, sha256 `{digest(path)[:16]}`" for path in files)
    return f"""# {_TITLE}

Tells whether a new topic begins between two exchanges, by the vectors of {job.base.name}, which is unchanged. Used as
SeCom's segmenter with option `segmenter`.

Made by `{job.command}` in {trained.seconds:.0f} s (seed {job.seed}). Licence: {job.licence}.

## Data

{data}

## On {"the validation set" if job.valid else f"dialogues held out, {_FOLDS} folds"}

| measure | value |
|---|---|
{measures}
"""
