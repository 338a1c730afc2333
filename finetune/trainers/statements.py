"""Training a selector of statements: which sentences of a dialogue are worth remembering.

Logistic regression over the vectors of an unchanged encoder and a few cues. It learns from sentences that a person
labelled, and from those that answer people's questions, which are weighted less: others may be worth as much and were
only not asked about. Seconds on a CPU after the vectors.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from finetune.run_folder import Card, register, write_report
from finetune.trainers.training import Recipe, TrainingJob, TrainingResult, base_folder, require_modules
from localmem.errors import BadInput
from localmem.evaluation.datasets.scenarios import Person, read_people
from localmem.files import read_text
from localmem.resources import resource
from localmem.summaries.statements import CUES, Floats, StatementModel, sentence_features, split_statements

Mask = NDArray[np.bool_]

LABELS = Path(__file__).parents[1] / "data" / "statement_labels.txt"


class StatementRecipe(Recipe):
    """Recipe of `localmem finetune statements`."""

    data: Path | None = None
    """Folder of people whose questions show what is asked for; default: the shipped one."""
    labels: Path | None = None
    """Labelled sentences: lines of + or -, the person, and the sentence; default: the shipped ones."""
    hold_out: tuple[str, ...] = ("m", "n")
    """Authors to measure on before learning from all of them."""
    keep: float = Field(0.55, gt=0, lt=1)
    """Share of the people's sentences that is worth remembering."""
    evidence_weight: float = Field(0.3, ge=0)
    """Weight of a sentence that answers a question, beside 1 for a labelled one."""
    strength: float = Field(0.1, gt=0)
    """Inverse strength of the regularisation."""


@dataclass(frozen=True, slots=True)
class _Sentences:
    """Sentences of people with their features: `worth` is 1 or 0 where it is labelled, else NaN."""

    authors: Sequence[str]
    texts: Sequence[str]
    features: Floats
    label: Floats
    is_evidence: Mask

    @property
    def is_labelled(self) -> Mask:
        """Whether a person has labelled each sentence."""
        return np.isfinite(self.label)

    def of(self, authors: Collection[str]) -> Mask:
        """Whether each sentence is by one of these authors."""
        return np.array([author in authors for author in self.authors])


def train(job: TrainingJob[StatementRecipe]) -> TrainingResult:
    """Measure on the held-out authors, learn from all, and write the run's folder. Raises BadInput."""
    require_modules("sentence_transformers", "sklearn")
    recipe, base, start = job.recipe, base_folder(job.recipe.base), perf_counter()
    data = _read(recipe, base)
    held_out = data.of(recipe.hold_out)
    labelled = data.is_labelled
    if not (labelled & held_out).any() or not (labelled & ~held_out).any():
        raise BadInput(f"no labelled sentence is by {', '.join(recipe.hold_out)}, or all are; choose other authors")
    measures = _measure(_fit(data, ~held_out, recipe), data, held_out)
    model = _fit(data, np.ones(len(held_out), dtype=bool), recipe)
    model.save(job.out)
    card = Card(
        title="Selector of statements",
        what="Selects the sentences of a dialogue that are worth remembering, for stages that quote in place of a "
        "backbone.",
        base=base.name,
        data=[recipe.labels or LABELS],
        measured_on=f"authors {', '.join(recipe.hold_out)}, who were left out",
    )
    result = TrainingResult(measures, [], perf_counter() - start, 0)
    write_report(job, card, result, {"sentences": len(data.texts), "labelled": int(labelled.sum())})
    register(job, "classifier")
    return result


def _read(recipe: StatementRecipe, base: Path) -> _Sentences:
    from localmem.retrieval.encoder import SentenceEncoder

    people = [
        person for person in read_people(recipe.data or resource("finetune/lessons/people")) if person.language == "en"
    ]
    labels = _read_labels(recipe.labels or LABELS)
    rows = [(person, text, is_expected) for person in people for text, is_expected in _user_sentences(person)]
    texts = [text for _, text, _ in rows]
    return _Sentences(
        [person.author for person, _, _ in rows],
        texts,
        sentence_features(SentenceEncoder(base, name=base.name), texts),
        np.array([labels.get((person.id, text), np.nan) for person, text, _ in rows]),
        np.array([is_expected for _, _, is_expected in rows]),
    )


def _read_labels(path: Path) -> dict[tuple[str, str], float]:
    labels = {}
    for line in read_text(path, "use the shipped file or one of its format").splitlines():
        if line and not line.startswith("#"):
            mark, person, text = line.split(" ", 2)
            labels[person, text] = float(mark == "+")
    return labels


def _user_sentences(person: Person) -> list[tuple[str, bool]]:
    """Each sentence of the person's own turns, and whether it holds what a question expects of that turn."""
    expected: dict[str, list[str]] = {}
    for probe, evidence in zip(person.probes, person.evidence, strict=True):
        for turn in evidence if probe.is_answerable else ():
            expected.setdefault(turn, []).extend(text.lower() for text in probe.must_contain)
    turns = [turn for session in person.sessions for turn in session.turns if turn.role == "user"]
    return [
        (text, any(value in text.lower() for value in expected.get(turn.id, ())))
        for turn in turns
        for text in split_statements(turn.text)
    ]


def _fit(data: _Sentences, included: Mask, recipe: StatementRecipe) -> StatementModel:
    from sklearn.linear_model import LogisticRegression

    labelled, evidence = included & data.is_labelled, included & data.is_evidence & ~data.is_labelled
    rows = np.flatnonzero(labelled | evidence)
    targets = np.where(labelled[rows], data.label[rows], 1.0).astype(int)
    weights = np.where(labelled[rows], 1.0, recipe.evidence_weight)
    centre = data.features[rows].mean(axis=0)
    regression = LogisticRegression(C=recipe.strength, max_iter=2000)
    regression.fit(data.features[rows] - centre, targets, sample_weight=weights)
    coefficients = regression.coef_[0]
    bias = float(regression.intercept_[0] - centre @ coefficients)
    threshold = float(np.quantile(data.features[included] @ coefficients + bias, 1 - recipe.keep))
    width = data.features.shape[1] - CUES
    vector, cues = coefficients[:width].round(5).tolist(), coefficients[width:].round(5).tolist()
    return StatementModel(base=recipe.base, vector=vector, cues=cues, bias=bias, threshold=threshold)


def _measure(model: StatementModel, data: _Sentences, held_out: Mask) -> dict[str, float]:
    """Of the held-out labelled sentences how many kept ones are worth it, and how much of what is asked for is kept."""
    selection = model.scores(data.features) >= model.threshold
    labelled = held_out & data.is_labelled
    return {
        "precision": float(data.label[labelled & selection].mean()),
        "recall": float(selection[labelled & (data.label == 1)].mean()),
        "asked_for": float(selection[held_out & data.is_evidence].mean()),
        "share": float(selection[held_out].mean()),
    }
