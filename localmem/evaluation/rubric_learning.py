"""Learning a rubric: the backbone segments labelled dialogues, and reflects on those it got most wrong.

SeCom, section 2.2 and appendix A.1: of the dialogues segmented zero-shot the 100 with the largest WindowDiff are taken
("hard examples"), in 10 mini-batches; each gives one rubric item and one representative example. Differs from the
paper: an item may replace one of the earlier ones, which the paper's prompt leaves to the model's copying; a mini-batch
is shown as far as it fits the context; and of the examples only the first few join the rubric, for they are long.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue
from localmem.evaluation.metrics.segmentation import Agreement, agreement
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, count_fallback, generate_usable, integer, string
from localmem.prompts import render
from localmem.segmentation.rubric import Example, Rubric
from localmem.segmentation.segmenters import numbered, written
from localmem.text.base import Segmenter
from localmem.text.dialogue import packed
from localmem.types import JsonSchema

Progress = Callable[[str, int, int], None]  # step, done, of how many

_BATCH = 16  # dialogues that are segmented at once
_LONGEST_ITEM = 200
_LONGEST_REFLECTION = 600
_TEMPLATE = 64  # tokens that a chat template adds, at most


@dataclass(frozen=True, slots=True)
class PredictedSegments:
    """A labelled dialogue, its predicted segments, and how far they agree."""

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
    """Each dialogue segmented and compared with its right segments, in order."""
    judged: list[PredictedSegments] = []
    for start in range(0, len(dialogues), _BATCH):
        batch = dialogues[start : start + _BATCH]
        found = segmenter.segment([one.session for one in batch])
        judged += [
            PredictedSegments(one, tuple(predicted), agreement(one.segments, predicted))
            for one, predicted in zip(batch, found, strict=True)
        ]
        progress("segmenting", len(judged), len(dialogues))
    return judged


class RubricLearner:
    """Asks secom/reflect about the `hard` worst dialogues in `batches` mini-batches, for at most `items` items.

    `examples` of the chosen examples join the rubric. A mini-batch whose answer cannot be used adds nothing;
    `fallbacks` counts it.
    """

    def __init__(self, llm: LLM, *, hard: int = 100, batches: int = 10, items: int = 10, examples: int = 2) -> None:
        self._llm = llm
        self._hard = hard
        self._batches = batches
        self._items = items
        self._examples = examples
        self.fallbacks: Counter[str] = Counter()

    def learn(self, judged: Sequence[PredictedSegments], progress: Progress) -> Rubric:
        """A rubric from the worst of these; an empty one where none is wrong."""
        worst = sorted((one for one in judged if one.error > 0), key=lambda one: -one.error)[: self._hard]
        size = -(-len(worst) // self._batches) or 1
        rubric = Rubric()
        for start in range(0, len(worst), size):
            rubric = self._reflect(rubric, worst[start : start + size])
            progress("reflecting", min(start + size, len(worst)), len(worst))
        return rubric

    def _reflect(self, rubric: Rubric, batch: Sequence[PredictedSegments]) -> Rubric:
        items = "\n".join(f"{place}. {item}" for place, item in enumerate(rubric.items, 1))
        shown = self._fitting(items, [_example(place, one) for place, one in enumerate(batch, 1)])
        prompt = render(
            "secom/reflect",
            form=_form(len(shown), len(rubric.items)),
            rubric=items,
            examples="\n\n".join(shown),
            last=len(shown),
        )
        (given,) = generate_usable(self._llm, [prompt], self.fallbacks)
        return self._grown(rubric, batch[: len(shown)], given.text) if given else rubric

    def _grown(self, rubric: Rubric, batch: Sequence[PredictedSegments], given: str) -> Rubric:
        match json.loads(given):
            case {"reflection": str(why), "example": int(place), "item": str(item), "replaces": int(old)} if (
                item.strip() and 1 <= place <= len(batch)
            ):
                chosen = _chosen(batch[place - 1], " ".join(why.split()))
                return Rubric(
                    self._with(rubric.items, " ".join(item.split()), old),
                    (*rubric.examples, chosen)[: self._examples],
                )
        count_fallback("secom/reflect", f"its answer {given!r:.80} holds no new item", self.fallbacks)
        return rubric

    def _with(self, items: tuple[str, ...], new: str, replaced: int) -> tuple[str, ...]:
        """The items with the new one in the place of another, or last; the oldest goes when there are too many."""
        if new in items:
            return items
        if 1 <= replaced <= len(items):
            return (*items[: replaced - 1], new, *items[replaced:])
        return (*items, new)[-self._items :]

    def _fitting(self, items: str, examples: Sequence[str]) -> Sequence[str]:
        """The first examples that fit the prompt together; one at least."""
        bare = render("secom/reflect", rubric=items, examples="", last=0)
        used = sum(self._llm.count_tokens([message.content for message in bare.messages]))
        room = self._llm.context_length - used - bare.max_tokens - _TEMPLATE
        return packed(examples, self._llm.count_tokens(examples), room)[0]


def _example(place: int, one: PredictedSegments) -> str:
    return (
        f"Conversation {place}:\n{numbered(one.labelled.session.exchanges())}\n\n"
        f"Right: {written(one.labelled.segments)}\nPredicted: {written(one.predicted)}"
    )


def _chosen(one: PredictedSegments, why: str) -> Example:
    dialogue = numbered(one.labelled.session.exchanges())
    return Example(dialogue, written(one.labelled.segments), written(one.predicted), why)


def _form(shown: int, items: int) -> JsonSchema:
    return answer_format(
        reflection=string(_LONGEST_REFLECTION),
        example=integer(1, shown),
        item=string(_LONGEST_ITEM),
        replaces=integer(0, items),
    )
