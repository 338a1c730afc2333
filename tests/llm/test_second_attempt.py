"""A model that refuses a plain request as an AI answers again, whole or streamed, and nobody sees the refusal."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import pytest

from localmem.errors import BadReply, PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.second_attempt import SecondAttempt
from localmem.llm.wrappers import Wrapper
from localmem.types import Choice, Completion, Prompt
from tests.llm.prompts import ask, collect

REFUSAL = "I'm sorry for the confusion, but as an AI designed to help, I don't have recipes. However, ask a cook."
PLAIN = (
    "Here is mayonnaise: oil and a yolk.",
    "I'm sorry for your loss. Rex was a good dog.",
    "I'm sorry to hear that.\nAs an AI I know no dog.",
    "Sorry",
    "As an AI I have no dog.",
    "",
)


class Pieces(Wrapper):
    """Continues a beginning with "'s one.", answers anything else with the texts in turn, in pieces of three."""

    def __init__(self, *texts: str) -> None:
        replies = list(texts)
        script = ScriptedLLM(lambda prompt: "'s one." if prompt.prefill else replies.pop(0), abilities=["prefill"])
        super().__init__(script)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        completion = self.inner.generate([replace(prompt, max_tokens=99)])[0]
        yield ""
        yield from (completion.text[start : start + 3] for start in range(0, len(completion.text), 3))
        return completion


def long(prompt: Prompt) -> Prompt:
    return replace(prompt, max_tokens=99)


@pytest.mark.parametrize("refusal", [REFUSAL, REFUSAL.replace("'", "’"), "Sorry, as a chatbot I can't cook."])
def test_a_refusal_is_replaced_by_a_second_answer(refusal: str) -> None:
    completions = SecondAttempt(Pieces("A cake.", refusal), "Here").generate([long(ask("Cake?")), long(ask("Mayo?"))])
    assert [completion.text for completion in completions] == ["A cake.", "Here's one."]
    pieces, completion = collect(SecondAttempt(Pieces(refusal), "Here").stream(ask("Mayo?")))
    assert "".join(pieces) == completion.text == "Here's one."


@pytest.mark.parametrize("text", PLAIN)
def test_any_other_answer_is_passed_on(text: str) -> None:
    assert SecondAttempt(Pieces(text), "Here").generate([long(ask())])[0].text == text
    pieces, completion = collect(SecondAttempt(Pieces(text), "Here").stream(ask()))
    assert "".join(pieces) == completion.text == text


def test_where_nothing_is_refused_the_backend_is_asked_once() -> None:
    calls: list[int] = []

    class Counting(Wrapper):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            calls.append(len(prompts))
            return self.inner.generate(prompts)

    SecondAttempt(Counting(Pieces("A cake.", "Oil.")), "Here").generate([long(ask("Cake?")), long(ask("Mayo?"))])
    assert calls == [2]


def test_a_plain_answer_is_not_held_back() -> None:
    stream = SecondAttempt(Pieces("Oil and a yolk."), "Here").stream(ask())
    assert [next(stream), next(stream)] == ["", "Oil"]


@pytest.mark.parametrize(
    "change",
    [
        lambda prompt: replace(prompt, prefill="Well"),
        lambda prompt: replace(prompt, format=Choice((REFUSAL, "yes"))),
        lambda prompt: replace(prompt, extra={"logprobs": True}),
    ],
)
def test_a_prompt_that_asks_for_more_than_text_is_asked_once(change: Callable[[Prompt], Prompt]) -> None:
    llm = ScriptedLLM(lambda _: REFUSAL, abilities=["prefill", "logprobs"])
    assert SecondAttempt(llm, "Here").generate([change(long(ask()))])[0].text == REFUSAL
    pieces, _ = collect(SecondAttempt(llm, "Here").stream(change(long(ask()))))
    assert "".join(pieces) == REFUSAL


def test_a_backend_that_cannot_continue_an_answer_is_asked_once() -> None:
    llm = ScriptedLLM(lambda _: REFUSAL)
    assert SecondAttempt(llm, "Here").generate([long(ask())])[0].text == REFUSAL


def test_the_refusal_stands_where_the_second_answer_fails_and_errors_of_others_remain() -> None:
    class Failing(Wrapper):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            if prompts[0].prefill:
                raise BadReply("no")
            raise PartialFailure([Completion(REFUSAL), BadReply("worse")])

    with pytest.raises(PartialFailure) as caught:
        SecondAttempt(Failing(ScriptedLLM(lambda _: "", abilities=["prefill"])), "Here").generate([ask(), ask()])
    assert [getattr(each, "text", str(each)) for each in caught.value.results] == [REFUSAL, "worse"]
