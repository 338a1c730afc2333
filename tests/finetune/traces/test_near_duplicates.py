"""Near-duplicates: question and answer must both be alike, and the prompt's own words count for nothing."""

from finetune.traces.near_duplicates import find_near_duplicates
from finetune.traces.trace import Teacher, Trace, make_trace
from localmem.evaluation.answers import Work
from localmem.types import Completion, Message, Prompt

LONG = "Today I walked along the river with Ana and we talked about the kite that she bought in Porto last summer"


def lesson(text: str, answer: str) -> Trace:
    prompt = Prompt("rsum/update", (Message("user", text),))
    return make_trace(prompt, Completion(answer), "", Teacher("t"), Work("s", "d", "e"))


def test_a_few_other_words_make_no_new_lesson() -> None:
    traces = [lesson(f"{LONG} in June", LONG), lesson(f"{LONG} in July!", LONG), lesson(f"{LONG} in May", "Nothing.")]
    assert find_near_duplicates(traces) == {1}


def test_short_questions_that_differ_in_one_word_are_different_lessons() -> None:
    assert find_near_duplicates([lesson(f"Which kite is it, kite{n}?", "PASS") for n in range(20)]) == set()


def test_the_words_of_the_prompt_do_not_make_lessons_alike() -> None:
    own = [f"{name} likes {thing}" for name in ("ana", "rui", "bo") for thing in ("tea", "rice", "rain")]
    traces = [lesson(f"{LONG}. {text}", "PASS") for text in own]
    assert find_near_duplicates(traces) == set()
    assert find_near_duplicates([*traces, traces[0]]) == {len(traces)}
