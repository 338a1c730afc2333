"""Compares segmenters with labelled dialogues, and learns a segmentation rubric from the errors of the LLM's.

SeCom, section 2.2 and appendix A.1: of the dialogues segmented zero-shot, the 100 with the largest WindowDiff ("hard
examples") go into 10 mini-batches; each yields one rubric item and one representative example.

Differs from the paper: an item may replace an earlier one, which the paper's prompt leaves to the model's copying; a
mini-batch is shortened to fit the context; and only the first few examples join the rubric, since they are long.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter

from pydantic import Field

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import (
    Agreement,
    SegmentedDialogue,
    agreement,
    mean_agreement,
    read_segmented_dialogues,
)
from localmem.experiments.runs import ExperimentRecipe, Notify, Progress, ignore_progress, open_backbone
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, count_fallback, generate_usable, integer, string
from localmem.prompts import render
from localmem.reporting.provenance import versions
from localmem.reporting.sections import Report, Table
from localmem.segmentation import Segmenter
from localmem.segmentation.segmenters import (
    EvenSegmenter,
    Example,
    LLMSegmenter,
    RandomSegmenter,
    Rubric,
    numbered_exchanges,
    segments_json,
)
from localmem.text.dialogue import pack

_BATCH = 16  # dialogues that are segmented at once
_MAX_ITEM = 200
_MAX_REFLECTION = 600
_TEMPLATE_TOKENS = 64  # upper bound for what a chat template adds


@dataclass(frozen=True, slots=True)
class PredictedSegments:
    """A labelled dialogue, its predicted segments, and their agreement with the labels."""

    labelled: SegmentedDialogue
    predicted: tuple[range, ...]
    agreement: Agreement

    @property
    def error(self) -> float:
        """WindowDiff, by which the paper ranks dialogues."""
        return self.agreement.window_diff


def evaluate_segmenter(
    segmenter: Segmenter, dialogues: Sequence[SegmentedDialogue], progress: Progress
) -> list[PredictedSegments]:
    """Segment each dialogue and compare it with its labels, in order."""
    predictions: list[PredictedSegments] = []
    for start in range(0, len(dialogues), _BATCH):
        batch = dialogues[start : start + _BATCH]
        segments = segmenter.segment([dialogue.session for dialogue in batch])
        predictions += [
            PredictedSegments(dialogue, tuple(predicted), agreement(dialogue.segments, predicted))
            for dialogue, predicted in zip(batch, segments, strict=True)
        ]
        progress("segmenting", len(predictions), len(dialogues))
    return predictions


class RubricLearner:
    """Asks secom/reflect about the `hard` worst dialogues in `batches` mini-batches, for at most `items` items.

    At most `examples` of the chosen examples join the rubric. A mini-batch with an unusable answer adds nothing;
    `fallbacks` counts it.
    """

    def __init__(self, llm: LLM, *, hard: int = 100, batches: int = 10, items: int = 10, examples: int = 2) -> None:
        self._llm = llm
        self._hard, self._batches = hard, batches
        self._items, self._examples = items, examples
        self.fallbacks: Counter[str] = Counter()

    def learn(self, predictions: Sequence[PredictedSegments], progress: Progress) -> Rubric:
        """A rubric from the worst of these; an empty one if all are correct."""
        wrong = (prediction for prediction in predictions if prediction.error > 0)
        worst = sorted(wrong, key=lambda prediction: -prediction.error)[: self._hard]
        size = -(-len(worst) // self._batches) or 1
        rubric = Rubric()
        for start in range(0, len(worst), size):
            rubric = self._reflect(rubric, worst[start : start + size])
            progress("reflecting", min(start + size, len(worst)), len(worst))
        return rubric

    def _reflect(self, rubric: Rubric, batch: Sequence[PredictedSegments]) -> Rubric:
        items = "\n".join(f"{number}. {item}" for number, item in enumerate(rubric.items, 1))
        texts = self._fit(items, [_describe(number, prediction) for number, prediction in enumerate(batch, 1)])
        form = answer_format(
            reflection=string(_MAX_REFLECTION),
            example=integer(1, len(texts)),
            item=string(_MAX_ITEM),
            replaces=integer(0, len(rubric.items)),
        )
        prompt = render("secom/reflect", form=form, rubric=items, examples="\n\n".join(texts), last=len(texts))
        (reply,) = generate_usable(self._llm, [prompt], self.fallbacks)
        return self._extend(rubric, batch[: len(texts)], reply.text) if reply else rubric

    def _extend(self, rubric: Rubric, batch: Sequence[PredictedSegments], reply: str) -> Rubric:
        match json.loads(reply):
            case {"reflection": str(why), "example": int(number), "item": str(item), "replaces": int(replaced)} if (
                item.strip() and 1 <= number <= len(batch)
            ):
                example = _example(batch[number - 1], " ".join(why.split()))
                return Rubric(
                    self._add_item(rubric.items, " ".join(item.split()), replaced),
                    (*rubric.examples, example)[: self._examples],
                )
        count_fallback("secom/reflect", f"its answer {reply!r:.80} has no new item", self.fallbacks)
        return rubric

    def _add_item(self, items: tuple[str, ...], new: str, replaced: int) -> tuple[str, ...]:
        """The items with the new one in the place of another, or last; the oldest is dropped if there are too many."""
        if new in items:
            return items
        if 1 <= replaced <= len(items):
            return (*items[: replaced - 1], new, *items[replaced:])
        return (*items, new)[-self._items :]

    def _fit(self, items: str, texts: Sequence[str]) -> Sequence[str]:
        """The first examples that fit into the prompt together; at least one."""
        bare = render("secom/reflect", rubric=items, examples="", last=0)
        used = sum(self._llm.count_tokens([message.content for message in bare.messages]))
        room = self._llm.context_length - used - bare.max_tokens - _TEMPLATE_TOKENS
        return pack(texts, self._llm.count_tokens(texts), room)[0]


def _example(prediction: PredictedSegments, why: str) -> Example:
    dialogue = numbered_exchanges(prediction.labelled.session.exchanges())
    return Example(dialogue, segments_json(prediction.labelled.segments), segments_json(prediction.predicted), why)


def _describe(number: int, prediction: PredictedSegments) -> str:
    example = _example(prediction, "")
    return f"Conversation {number}:\n{example.dialogue}\n\nRight: {example.right}\nPredicted: {example.predicted}"


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
    if isinstance(segmenter, LLMSegmenter):
        row["fallbacks"] = segmenter.fallbacks.total()
    return row, predictions
