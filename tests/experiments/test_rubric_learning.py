"""Reflection: the worst dialogues, in mini-batches, give one rubric item and one example each."""

import json
from collections.abc import Callable

import pytest

from localmem.errors import BadReply
from localmem.evaluation.datasets.segmented_dialogues import Agreement, SegmentedDialogue
from localmem.experiments.segmenter_comparison import PredictedSegments, RubricLearner, evaluate_segmenter
from localmem.llm.scripted import ScriptedLLM
from localmem.segmentation.segmenters import EvenSegmenter, Rubric
from localmem.types import JsonSchema, Prompt
from tests.fakes import session


def _dialogue(name: str, *sizes: int) -> SegmentedDialogue:
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    segments = tuple(range(end - size, end) for end, size in zip(ends, sizes, strict=True))
    return SegmentedDialogue(session(*(f"{name} remark {n}" for n in range(2 * ends[-1])), name=name), segments)


def _silent(_step: str, _completed: int, _of: int) -> None:
    pass


def _predictions(count: int) -> list[PredictedSegments]:
    """Dialogue d1 is a little wrong, the last one most; d0 is right."""
    return [
        PredictedSegments(_dialogue(f"d{n}", 2, 2), (range(4),), Agreement(0.0, 0.0, n / count)) for n in range(count)
    ]


def _answers(prompts: list[Prompt], *, example: int = 1, replaces: int = 0) -> Callable[[Prompt], str]:
    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        item = f"Criterion {len(prompts)}."
        return json.dumps(
            {"reflection": f"Why {len(prompts)}.", "example": example, "item": item, "replaces": replaces}
        )

    return script


def test_every_dialogue_is_judged_by_its_right_segments() -> None:
    steps: list[tuple[str, int, int]] = []
    dialogues = [_dialogue(f"d{n}", 3, 3) for n in range(20)]
    predictions = evaluate_segmenter(EvenSegmenter(3), dialogues, lambda *step: steps.append(step))
    assert [item.error for item in predictions] == [0.0] * 20
    assert steps == [("segmenting", 16, 20), ("segmenting", 20, 20)]
    assert evaluate_segmenter(EvenSegmenter(1), dialogues[:1], _silent)[0].error > 0.5


def test_the_worst_in_mini_batches_give_an_item_and_an_example_each() -> None:
    prompts: list[Prompt] = []
    reflector = RubricLearner(ScriptedLLM(_answers(prompts, example=2)), hard=6, batches=3, items=10, examples=2)
    rubric = reflector.learn(_predictions(10), _silent)
    assert rubric.items == ("Criterion 1.", "Criterion 2.", "Criterion 3.")
    assert [example.reflection for example in rubric.examples] == ["Why 1.", "Why 2."]
    assert "d8 remark 0" in rubric.examples[0].dialogue  # the second of the worst two, d9 and d8
    first, second, _ = (prompt.messages[-1].content for prompt in prompts)
    assert "d9 remark 0" in first
    assert "d7 remark 0" not in first
    assert "d7 remark 0" in second
    assert 'Right: {"ends": "1 3"}' in first
    assert 'Predicted: {"ends": "3"}' in first
    assert "(none)" in first
    assert "1. Criterion 1." in second


def test_an_item_may_replace_another_and_the_oldest_goes_when_there_are_too_many() -> None:
    corrected = RubricLearner(ScriptedLLM(_answers([], replaces=1)), hard=3, batches=3).learn(_predictions(4), _silent)
    assert corrected.items == ("Criterion 3.",)
    few = RubricLearner(ScriptedLLM(_answers([])), hard=3, batches=3, items=2).learn(_predictions(4), _silent)
    assert few.items == ("Criterion 2.", "Criterion 3.")


def test_the_schema_names_conversations_and_items_that_are_there() -> None:
    prompts: list[Prompt] = []
    RubricLearner(ScriptedLLM(_answers(prompts)), hard=4, batches=2).learn(_predictions(9), _silent)
    form = prompts[1].format
    assert isinstance(form, JsonSchema)
    fields = json.loads(json.dumps(form.schema))["properties"]
    assert (fields["example"]["minimum"], fields["example"]["maximum"]) == (1, 2)
    assert (fields["replaces"]["minimum"], fields["replaces"]["maximum"]) == (0, 1)


def test_a_mini_batch_is_shown_as_far_as_it_fits() -> None:
    prompts: list[Prompt] = []
    llm = ScriptedLLM(_answers(prompts), context_length=1300)
    dialogues = [PredictedSegments(_dialogue(f"d{n}", 20, 5), (range(25),), Agreement(0.0, 1.0, 1.0)) for n in range(4)]
    RubricLearner(llm, hard=4, batches=1).learn(dialogues, _silent)
    text = prompts[0].messages[-1].content
    assert "d0 remark 0" in text
    assert "d3 remark 0" not in text
    assert "numbered 1 to 1." in text


def test_an_answer_that_cannot_be_used_adds_nothing_and_is_counted() -> None:
    def script(prompt: Prompt) -> str:
        raise BadReply(f"{prompt.name} was cut")

    cut = RubricLearner(ScriptedLLM(script), hard=2, batches=2)
    assert cut.learn(_predictions(4), _silent) == Rubric()
    assert cut.fallbacks == {"secom/reflect": 2}
    elsewhere = RubricLearner(ScriptedLLM(_answers([], example=9)), hard=2, batches=2)
    assert elsewhere.learn(_predictions(4), _silent) == Rubric()
    assert elsewhere.fallbacks == {"secom/reflect": 2}


def test_where_nothing_is_wrong_there_is_nothing_to_learn() -> None:
    assert RubricLearner(ScriptedLLM(lambda _: pytest.fail("asked"))).learn(_predictions(1), _silent) == Rubric()
