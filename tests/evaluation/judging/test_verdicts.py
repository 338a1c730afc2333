"""Asking a judge: prompts, samples, orders, votes, and answers that cannot be used."""

import json
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.errors import BadInput
from localmem.evaluation.judging.judges import JUDGES, Words, get_judge
from localmem.evaluation.judging.verdicts import ask_judge, infer_verdicts, judge_prompts
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Choice, Completion, Prompt
from tests.fakes import BatchRecorder

CORRECT = JUDGES["correct"]
PREFERENCE = JUDGES["preference"]


def item(answer: str, gold: str = "Porto") -> dict[str, str]:
    return {"question": "Where?", "gold": gold, "answer": answer}


def pair(first: str, second: str) -> dict[str, str]:
    return {"dialogue": "Ana: Hi.", "answer": first, "other": second}


def user_text(prompt: Prompt) -> str:
    return prompt.messages[1].content


def first_reply(prompt: Prompt) -> str:
    """What stands in the first place."""
    return user_text(prompt).partition("Reply 1: ")[2].partition("\n")[0]


def better(word: str) -> Callable[[Prompt], str]:
    """A judge that prefers replies with this word, wherever they stand, and ties without one."""

    def script(prompt: Prompt) -> str:
        first, _, second = user_text(prompt).partition("Reply 2: ")
        return "tie" if (word in first) == (word in second) else "1" if word in first else "2"

    return script


def test_a_verdict_for_each_item_in_order() -> None:
    def script(prompt: Prompt) -> str:
        answer = user_text(prompt).partition("Given answer: ")[2]
        return "correct" if "Porto" in answer else "abstained" if "know" in answer else "incorrect"

    right, wrong, unsure = ask_judge(
        ScriptedLLM(script), CORRECT, [item("Porto."), item("Faro."), item("I don't know.")]
    )
    assert (right.label, wrong.label, unsure.label) == ("correct", "incorrect", "abstained")
    assert [verdict.scores["right"] for verdict in (right, wrong, unsure)] == [1.0, 0.0, 0.0]
    assert right.probabilities == {"correct": 1.0, "incorrect": 0.0, "abstained": 0.0}


def test_where_nothing_is_right_abstaining_is() -> None:
    script = ScriptedLLM(lambda prompt: "abstained" if "never" in user_text(prompt) else "incorrect")
    owned, made_up = ask_judge(script, CORRECT, [item("You never said.", gold=""), item("Porto.", gold="")])
    assert (owned.scores["right"], made_up.scores["right"]) == (1.0, 0.0)
    (prompt,) = judge_prompts(CORRECT, item("Porto.", gold=""))
    assert prompt.format == Choice(("incorrect", "abstained"))


def test_samples_vote_and_an_even_vote_is_undecided() -> None:
    replies = {0: "correct", 1: "correct", 2: "incorrect", 3: "incorrect"}
    llm = ScriptedLLM(lambda prompt: replies[prompt.seed or 0])
    (three,) = ask_judge(llm, CORRECT.with_samples(3), [item("Porto.")])
    assert (three.label, three.votes) == ("correct", {"correct": 2, "incorrect": 1})
    assert three.probabilities["correct"] == pytest.approx(2 / 3)
    (four,) = ask_judge(llm, CORRECT.with_samples(4), [item("Porto.")])
    assert isinstance(CORRECT.verdict, Words)
    assert four.label == CORRECT.verdict.undecided == "incorrect"


def test_samples_are_drawn_with_seeds_of_their_own() -> None:
    prompts = judge_prompts(CORRECT.with_samples(3), item("Porto."), seed=7)
    assert [(prompt.seed, prompt.temperature) for prompt in prompts] == [(7, 1.0), (8, 1.0), (9, 1.0)]
    assert [prompt.temperature for prompt in judge_prompts(CORRECT, item("Porto."))] == [0.0]


def test_both_orders_are_asked_and_the_better_one_wins_from_either_place() -> None:
    llm = ScriptedLLM(better("cat"))
    items = [pair("a cat", "a dog"), pair("a dog", "a cat"), pair("a cat", "two cats")]
    verdicts = ask_judge(llm, PREFERENCE, items)
    assert [verdict.label for verdict in verdicts] == ["first", "second", "tie"]
    assert verdicts[0].scores == {"first": 1.0, "second": 0.0, "tie": 0.0}
    assert verdicts[1].probabilities == {"first": 0.0, "second": 1.0, "tie": 0.0}
    straight, swapped = judge_prompts(PREFERENCE, items[0])
    assert (first_reply(straight), first_reply(swapped)) == ("a cat", "a dog")


@pytest.mark.parametrize("place", ["1", "2"])
def test_what_flips_with_the_order_is_a_tie_and_is_told(place: str) -> None:
    (verdict,) = ask_judge(ScriptedLLM(lambda _: place), PREFERENCE, [pair("a", "b")])
    assert (verdict.label, verdict.votes) == ("tie", {f"flip to {place}": 1})


def test_one_order_alone_decides_nothing() -> None:
    (verdict,) = ask_judge(
        ScriptedLLM(lambda prompt: "1" if first_reply(prompt) == "a" else "tie"), PREFERENCE, [pair("a", "b")]
    )
    assert (verdict.label, verdict.votes) == ("tie", {"tie": 1})


def test_the_majority_of_nineteen_samples_decides_a_pair() -> None:
    def script(prompt: Prompt) -> str:  # eight samples see the better one, eleven go by the place
        return better("cat")(prompt) if (prompt.seed or 0) < 8 else "1"

    judge = JUDGES["consistency"]
    assert (judge.samples, judge.prompts, judge.temperature) == (19, 38, 1.0)
    (verdict,) = ask_judge(ScriptedLLM(script), judge, [pair("a cat", "a dog")])
    assert (verdict.label, verdict.votes) == ("tie", {"first": 8, "flip to 1": 11})
    (clear,) = ask_judge(ScriptedLLM(better("cat")), judge, [pair("a cat", "a dog")])
    assert clear.label == "first"


def test_an_even_number_of_samples_gives_a_pair_no_majority() -> None:
    with pytest.raises(BadInput, match="odd number"):
        PREFERENCE.with_samples(4)


def test_numbers_are_read_and_averaged_over_samples() -> None:
    llm = ScriptedLLM(lambda prompt: json.dumps({"score": 40 + 10 * (prompt.seed or 0)}))
    judge = JUDGES["score"]
    (single,) = ask_judge(llm, judge, [{"question": "Q", "answer": "A"}])
    (three,) = ask_judge(llm, judge.with_samples(3), [{"question": "Q", "answer": "A"}])
    assert (single.scores, three.scores) == ({"score": 40.0}, {"score": 50.0})
    assert single.label is None


def test_numbers_out_of_range_or_cut_off_are_no_verdict_and_counted() -> None:
    replies = iter(['{"score": 140}', '{"score": 1', '{"score": 70}'])
    fallbacks: Counter[str] = Counter()
    items = [{"question": "Q", "answer": "A"}] * 3
    high, cut, good = ask_judge(ScriptedLLM(lambda _: next(replies)), JUDGES["score"], items, fallbacks=fallbacks)
    assert (high.usable, cut.usable, good.usable) == (False, False, True)
    assert (high.unusable, cut.unusable, good.unusable) == (1, 1, 0)
    assert fallbacks == {"judge/score": 2}


def test_a_memory_is_graded_by_seven_criteria_over_twenty_samples() -> None:
    judge = JUDGES["memory"]
    assert (judge.samples, judge.prompts) == (20, 140)

    def script(prompt: Prompt) -> str:
        concise = "Conciseness:" in prompt.messages[0].content
        return "5" if concise else str(1 + (prompt.seed or 0) % 2)

    (verdict,) = ask_judge(ScriptedLLM(script), judge, [{"speaker": "Ana", "dialogue": "d", "memory": "m"}])
    assert set(verdict.scores) == set(judge.scales)
    assert len(verdict.scores) == 7
    assert verdict.scores["conciseness"] == 5.0
    assert verdict.scores["diversity"] == 1.5


def test_all_prompts_go_out_together() -> None:
    answered: list[int] = []
    llm = BatchRecorder(lambda _: "tie")
    ask_judge(llm, PREFERENCE.with_samples(3), [pair("a", "b")] * 5, track=answered.append)
    assert llm.sizes == answered == [30]
    llm = BatchRecorder(lambda _: "correct")
    ask_judge(llm, CORRECT, [item("Porto.")] * 300)
    assert llm.sizes == [256, 44]


def test_a_prompt_that_was_cut_is_told() -> None:
    llm = ScriptedLLM(lambda _: "correct", context_length=400)
    (verdict,) = ask_judge(llm, CORRECT, [item("Porto " * 900)])
    assert verdict.trimmed == 1


def test_a_judge_of_words_without_a_usable_answer_has_no_verdict() -> None:
    (verdict,) = ask_judge(ScriptedLLM(lambda _: "perhaps"), CORRECT, [item("Porto.")])
    assert (verdict.usable, verdict.label, verdict.unusable) == (False, None, 1)


def test_what_an_item_lacks_is_named() -> None:
    with pytest.raises(BadInput, match="add gold, answer, which the judge 'correct' needs"):
        ask_judge(ScriptedLLM(lambda _: "correct"), CORRECT, [{"question": "Where?"}])
    with pytest.raises(BadInput, match="no judge 'corect'"):
        get_judge("corect")


def test_probabilities_may_be_missing() -> None:
    class Silent(ScriptedLLM):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            return [Completion("1" if first_reply(prompt) == "a" else "2") for prompt in prompts]

    (verdict,) = ask_judge(Silent(lambda _: ""), PREFERENCE, [pair("a", "b")])
    assert (verdict.label, verdict.probabilities) == ("first", {})


ROWS = {"same": (0.9, 0.05, 0.05), "against": (0.05, 0.9, 0.05), "other": (0.1, 0.1, 0.8)}


class NameModel:
    """Says entailment where both sentences share the word "Porto", contradiction where one has "Faro" instead."""

    labels: Sequence[str] = ("ENTAILMENT", "contradiction", "Neutral")

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.pairs += pairs
        return np.array([ROWS[self._kind(*pair)] for pair in pairs], dtype=np.float32).reshape(-1, 3)

    def _kind(self, premise: str, hypothesis: str) -> str:
        if "Porto" not in premise:
            return "other"
        return "same" if "Porto" in hypothesis else "against" if "Faro" in hypothesis else "other"


PAST = "Ana lives in Porto. Ana sings."


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("You live in Porto.", "entail"),
        ("How is Faro?", "contradict"),
        ("Good evening!", "neutral"),
        ("Porto is lovely. But you live in Faro.", "contradict"),
        ("Good evening! Porto is lovely.", "entail"),
    ],
)
def test_the_sentences_together_decide(answer: str, label: str) -> None:
    (verdict,) = infer_verdicts(NameModel(), [{"past": PAST, "answer": answer}])
    assert verdict.label == label
    assert verdict.scores[label] == 1.0
    assert sum(verdict.probabilities.values()) == pytest.approx(1.0)


def test_all_items_go_to_the_model_together_and_come_back_in_order() -> None:
    model = NameModel()
    items = [{"past": PAST, "answer": text} for text in ("Faro.", "", "Hello. Porto.")]
    assert [verdict.label for verdict in infer_verdicts(model, items)] == ["contradict", "neutral", "entail"]
    assert len(model.pairs) == 2 + 0 + 4


def test_nothing_known_is_neutral() -> None:
    (verdict,) = infer_verdicts(NameModel(), [{"past": "", "answer": "Porto."}])
    assert verdict.label == "neutral"


def test_a_model_of_something_else_is_refused() -> None:
    model = NameModel()
    model.labels = ("PASS", "REPLACE", "APPEND", "DELETE")
    with pytest.raises(BadInput, match="an NLI model has entailment"):
        infer_verdicts(model, [{"past": PAST, "answer": "Porto."}])
    with pytest.raises(BadInput, match="add past"):
        infer_verdicts(NameModel(), [{"answer": "Porto."}])
