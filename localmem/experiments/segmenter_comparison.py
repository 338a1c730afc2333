"""Compares segmenters with labelled dialogues, and learns a segmentation rubric from the errors of the LLM's."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from time import perf_counter

from pydantic import Field

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue, read_segmented_dialogues
from localmem.evaluation.metrics.segmentation import mean_agreement
from localmem.evaluation.rubric_learning import PredictedSegments, RubricLearner, evaluate_segmenter
from localmem.experiments.runs import ExperimentRecipe, Notify, Progress, ignore_progress, open_backbone
from localmem.llm.base import LLM
from localmem.reporting.provenance import versions
from localmem.reporting.sections import Report, Table
from localmem.segmentation import Segmenter
from localmem.segmentation.segmenters import EvenSegmenter, LLMSegmenter, RandomSegmenter, Rubric


class SegmentationRecipe(ExperimentRecipe):
    """The options of a segmenter comparison."""

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
    settings: Settings,
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
    if learned_rubric and recipe.segmenters != ("llm",):
        raise BadInput(f"a rubric is learned from errors of the LLM; use segmenter llm, not {recipe.segmenters}")
    dialogues = read_segmented_dialogues(path)[recipe.skip :][: recipe.limit]
    if not dialogues:
        raise BadInput(f"{path} has no dialogue after the first {recipe.skip}; lower skip")
    notes = [f"skipped dialogues: {recipe.skip}"]
    with ExitStack() as stack:

        @cache
        def backbone() -> LLM:
            return open_backbone(settings, stack, notify)

        rows: list[dict[str, object]] = []
        predictions: list[PredictedSegments] = []
        for name in recipe.segmenters:
            segmenter = _load_segmenter(name, settings, recipe, backbone)
            row, predictions = _measure(name, segmenter, dialogues, progress)
            rows.append(row)
        figures: dict[str, object] = {
            "data": path.name,
            "skipped": recipe.skip,
            "dialogues": len(dialogues),
            "segmenters": rows,
            "versions": versions(),
        }
        if learned_rubric is not None:
            options = recipe.model_dump(include={"hard", "batches", "items", "examples"})
            learner = RubricLearner(backbone(), **options)
            rubric = learner.learn(predictions, progress)
            rubric.save(learned_rubric)
            unused = learner.fallbacks.total()
            figures |= {"rubric": str(learned_rubric), "unused_answers": unused, "items": list(rubric.items)}
            notes += [f"rubric: {learned_rubric}, unused answers: {unused}"]
            notes += [f"rubric item: {item}" for item in rubric.items]
    report = Report(figures, (Table.of(f"{path.name}, {len(dialogues)} dialogues", rows),), tuple(notes))
    if out is not None:
        report.save(out, f"Segmentation {out.name}")
    return report


def _load_segmenter(
    name: str, settings: Settings, recipe: SegmentationRecipe, backbone: Callable[[], LLM]
) -> Segmenter:
    """A segmenter; a name that is not built in is that of a trained model."""
    from localmem.factory import bare_encoder, trained_segmenter
    from localmem.segmentation.texttiling import TextTiling

    match name:
        case "llm":
            rubric = Rubric.load(recipe.rubric) if recipe.rubric else None
            return LLMSegmenter(backbone(), rubric=rubric, chunk=recipe.chunk)
        case "tiling":
            return TextTiling(bare_encoder(settings), width=recipe.width, cut=recipe.cut)
        case "even":
            return EvenSegmenter(recipe.chunk)
        case "random":
            return RandomSegmenter(recipe.seed)
    return trained_segmenter(name, settings.retrieval.device)


def _measure(
    name: str, segmenter: Segmenter, dialogues: Sequence[SegmentedDialogue], progress: Progress
) -> tuple[dict[str, object], list[PredictedSegments]]:
    """The measures over all dialogues; a first call, which loads the weights, is not timed."""
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
