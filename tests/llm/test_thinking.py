"""Answers of models that think aloud: the thoughts are no part of a reply, whole or streamed."""

from collections.abc import Generator, Sequence
from dataclasses import replace

import pytest

from localmem.errors import BadReply, PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.thinking import WithoutThinking, find_reply
from localmem.llm.wrappers import Wrapper
from localmem.types import Completion, Prompt
from tests.llm.prompts import ask, collect

# As Qwen3 and DeepSeek-R1 write them; the template of the latter begins the thoughts in the prompt.
QWEN = "<think>\nOkay, the user asks for a name. It is Bruno.\n</think>\n\nYour dog is called Bruno."
SILENCED = "<think>\n\n</think>\n\nYour dog is called Bruno."
BEGUN_IN_THE_PROMPT = "Okay, they ask for a name.\n</think>\n\nYour dog is called Bruno."
CUT = "<think>\nOkay, the user asks"
SHOWN = "Qwen3 writes its thoughts like this:\n<think>\nreasoning\n</think>\nand then the answer."
PLAIN = "  Write </think> to end the thoughts, <think> begins them."


class Pieces(Wrapper):
    """Streams an answer in pieces of a few characters, as tokens cut it."""

    def __init__(self, text: str, size: int) -> None:
        super().__init__(ScriptedLLM(lambda _: text))
        self._text = text
        self._size = size

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        yield from (self._text[start : start + self._size] for start in range(0, len(self._text), self._size))
        return self.inner.generate([replace(prompt, max_tokens=99)])[0]


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        (QWEN, "Your dog is called Bruno."),
        (SILENCED, "Your dog is called Bruno."),
        (BEGUN_IN_THE_PROMPT, "Your dog is called Bruno."),
        (CUT, ""),
        ("<thi", "<thi"),
        (SHOWN, SHOWN),
        (PLAIN, PLAIN),
        ("", ""),
    ],
)
def test_the_reply_stands_behind_the_thoughts(text: str, reply: str) -> None:
    assert find_reply(text) == reply


@pytest.mark.parametrize("text", [QWEN, SILENCED, CUT, "<thi", "  <", SHOWN, PLAIN, "Bruno.", "\n", ""])
@pytest.mark.parametrize("size", [1, 3, 200])
def test_a_stream_passes_on_the_reply_alone(text: str, size: int) -> None:
    pieces, completion = collect(WithoutThinking(Pieces(text, size), {}).stream(ask()))
    assert "".join(pieces) == completion.text == find_reply(text)


def test_what_was_streamed_before_thoughts_were_known_is_not_in_the_completion() -> None:
    _, completion = collect(WithoutThinking(Pieces(BEGUN_IN_THE_PROMPT, 4), {}).stream(ask()))
    assert completion.text == "Your dog is called Bruno."


def test_a_choice_and_an_answer_in_json_stay_as_they_are() -> None:
    choice = ask(choice=["<think>", "no"])
    llm = WithoutThinking(ScriptedLLM(lambda _: "<think>"), {})
    assert llm.generate([choice])[0].text == "<think>"
    assert collect(llm.stream(choice))[0] == ["<think>"]


def test_the_answers_beside_a_failed_one_lose_their_thoughts_too() -> None:
    llm = WithoutThinking(ScriptedLLM(lambda _: QWEN), {})
    with pytest.raises(PartialFailure) as failure:
        llm.generate([ask(max_tokens=99), ask(schema={})])
    reply, error = failure.value.results
    assert isinstance(reply, Completion)
    assert reply.text == "Your dog is called Bruno."
    assert isinstance(error, BadReply)


def test_fields_for_the_template_are_in_every_prompt_and_a_prompts_own_come_first() -> None:
    prompts: list[Prompt] = []

    class Kept(Wrapper):
        def generate(self, asked: Sequence[Prompt]) -> list[Completion]:
            prompts.extend(asked)
            return super().generate(asked)

    llm = WithoutThinking(Kept(ScriptedLLM(lambda _: "Yes.")), {"enable_thinking": False, "depth": 1})
    llm.generate([ask(), ask(extra={"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": True}})])
    assert [prompt.extra for prompt in prompts] == [
        {"chat_template_kwargs": {"enable_thinking": False, "depth": 1}},
        {"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": True, "depth": 1}},
    ]
