"""Compares segmenters with labelled dialogues, and learns a segmentation rubric from the errors of the LLM's."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import BadInput
from localmem.experiments.runs import Notify, Progress, ignore_progress
from localmem.reporting.sections import Report, Table

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue
    from localmem.evaluation.rubric_learning import PredictedSegments
    from localmem.llm.base import LLM
    from localmem.segmentation import Segmenter


class SegmentationRecipe(BaseModel):
    """The options of a segmenter comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    segmenters: tuple[str, ...] = Field(default=("llm",), min_length=1)
    """Segmenter: llm, tiling, even, random, or a trained one by name or folder."""
    rubric: Path | None = None
    """Rubric file to include in the LLM's prompt."""
    skip: int = Field(default=0, ge=0)
    """Skip the first N dialogues."""
    limit: int | None = Field(default=None, ge=1)
    """Use only N dialogues."""
    chunk: int = Field(default=3, ge=1)
    """even: exchanges per segment."""
    width: int = Field(default=2, ge=1)
    """tiling: exchanges on each side of a boundary."""
    cut: float = 0.5
    """tiling: standard deviations above the mean depth for a boundary."""
    seed: int = 0
    """random: seed."""
    hard: int = Field(default=100, ge=1)
    """Rubric learning: number of dialogues with the largest errors to learn from."""
    batches: int = Field(default=10, ge=1)
    """Rubric learning: number of mini-batches."""
    items: int = Field(default=10, ge=1)
    """Rubric learning: maximum number of rubric items."""
    examples: int = Field(default=2, ge=0)
    """Rubric learning: maximum number of examples in the rubric."""


def compare_segmenters(
    settings: "Settings",
    recipe: SegmentationRecipe,
    path: Path,
    *,
    learned_rubric: Path | None = None,
    out: Path | None = None,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Compare segmenters with the labels of the dialogues in `path` by F1, P_k, WindowDiff and their Score.

    With `learned_rubric` the LLM, as the only segmenter, learns a rubric from its worst dialogues, into that file.
    `out` receives the report. Raises BadInput.
    """
    from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues
    from localmem.reporting.provenance import versions

    if learned_rubric and recipe.segmenters != ("llm",):
        raise BadInput(f"a rubric is learned from errors of the LLM; use segmenter llm, not {recipe.segmenters}")
    dialogues = read_segmented_dialogues(path)[recipe.skip :][: recipe.limit]
    if not dialogues:
        raise BadInput(f"{path} has no dialogue after the first {recipe.skip}; lower skip")
    with ExitStack() as stack:
        segmenters = _Segmenters(settings, recipe, stack, notify)
        rows, predictions = zip(
            *(_measure(name, segmenters.load(name), dialogues, progress) for name in recipe.segmenters), strict=True
        )
        figures: dict[str, object] = {
            "data": path.name,
            "skipped": recipe.skip,
            "dialogues": len(dialogues),
            "segmenters": list(rows),
            "versions": versions(),
        }
        notes = [f"skipped dialogues: {recipe.skip}"]
        if learned_rubric is not None:
            items, unused = _learn_rubric(segmenters.llm, recipe, predictions[0], learned_rubric, progress)
            figures |= {"rubric": str(learned_rubric), "unused_answers": unused, "items": items}
            notes.append(f"rubric: {learned_rubric}, unused answers: {unused}")
            notes += [f"rubric item: {item}" for item in items]
    report = Report(figures, (Table.of(f"{path.name}, {len(dialogues)} dialogues", rows),), tuple(notes))
    if out is not None:
        report.save(out, f"Segmentation {out.name}")
    return report


def _learn_rubric(
    llm: "LLM", recipe: SegmentationRecipe, predictions: "list[PredictedSegments]", path: Path, progress: Progress
) -> tuple[list[str], int]:
    """Save the rubric; return its items and the number of unusable answers."""
    from localmem.evaluation.rubric_learning import RubricLearner

    options = recipe.model_dump(include={"hard", "batches", "items", "examples"})
    learner = RubricLearner(llm, **options)
    rubric = learner.learn(predictions, progress)
    rubric.save(path)
    return list(rubric.items), learner.fallbacks.total()


class _Segmenters:
    """Loads segmenters by name, and the backbone once."""

    def __init__(self, settings: "Settings", recipe: SegmentationRecipe, stack: ExitStack, notify: Notify) -> None:
        self._settings, self._recipe, self._stack, self._notify = settings, recipe, stack, notify

    @cached_property
    def llm(self) -> "LLM":
        """The backbone of the settings."""
        from localmem import factory

        backbone = factory.backbone(self._settings, self._notify)
        self._stack.callback(backbone.close)
        return backbone.llm

    def load(self, name: str) -> "Segmenter":
        """A segmenter; a name that is not built in is that of a trained model."""
        from localmem.factory.parts import trained_segmenter
        from localmem.segmentation.segmenters import EvenSegmenter, RandomSegmenter

        recipe = self._recipe
        built_in: dict[str, Callable[[], Segmenter]] = {
            "llm": self._llm_segmenter,
            "tiling": self._texttiling,
            "even": lambda: EvenSegmenter(recipe.chunk),
            "random": lambda: RandomSegmenter(recipe.seed),
        }
        return built_in[name]() if name in built_in else trained_segmenter(name, self._settings.retrieval.device)

    def _llm_segmenter(self) -> "Segmenter":
        from localmem.segmentation.rubric import Rubric
        from localmem.segmentation.segmenters import LLMSegmenter

        rubric = Rubric.load(self._recipe.rubric) if self._recipe.rubric else None
        return LLMSegmenter(self.llm, rubric=rubric, chunk=self._recipe.chunk)

    def _texttiling(self) -> "Segmenter":
        from localmem.factory.parts import bare_encoder
        from localmem.segmentation.texttiling import TextTiling

        return TextTiling(bare_encoder(self._settings), width=self._recipe.width, cut=self._recipe.cut)


def _measure(
    name: str, segmenter: "Segmenter", dialogues: "Sequence[SegmentedDialogue]", progress: Progress
) -> "tuple[dict[str, object], list[PredictedSegments]]":
    """The measures over all dialogues; a first call, which loads the weights, is not timed."""
    from localmem.evaluation.metrics.segmentation import mean_agreement
    from localmem.evaluation.rubric_learning import evaluate_segmenter

    segmenter.segment([dialogues[0].session])
    start = perf_counter()
    predictions = evaluate_segmenter(segmenter, dialogues, progress)
    seconds = perf_counter() - start
    agreement = mean_agreement([prediction.agreement for prediction in predictions])
    row: dict[str, object] = {
        "segmenter": name,
        **agreement._asdict(),
        "score": agreement.score,
        "ms_per_dialogue": 1000 * seconds / len(predictions),
    }
    for counter in ("fallbacks", "repairs"):
        if hasattr(segmenter, counter):
            row[counter] = getattr(segmenter, counter).total()
    return row, predictions
