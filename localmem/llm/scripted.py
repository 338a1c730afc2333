"""An LLM whose answers come from a function: for unit tests, and to benchmark our own code with given token times.

Obeys the contract of the real backends: formats are checked, stop strings cut, prompts made to fit. Knows no weights.
"""

import json
import math
import time
from collections.abc import Callable, Generator, Sequence

from localmem.errors import BadReply, LLMError, PartialFailure
from localmem.llm.base import alternate, fit
from localmem.types import Choice, Completion, JsonSchema, Message, Prompt, Usage

Script = Callable[[Prompt], str]


class ScriptedLLM:
    """Answers with `script(prompt)`; a word is a token.

    `first_token` and `per_token` are seconds that pass before the first and between the further words of an answer.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        context_length: int = 8192,
        first_token: float = 0.0,
        per_token: float = 0.0,
    ) -> None:
        self._script = script
        self._name = name
        self._context_length = context_length
        self._first_token = first_token
        self._per_token = per_token

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_length(self) -> int:
        return self._context_length

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        results: list[Completion | LLMError] = []
        for prompt in prompts:
            try:
                results.append(_drain(self.stream(prompt)))
            except LLMError as error:
                results.append(error)
        if len(results) == 1 and isinstance(results[0], LLMError):
            raise results[0]
        if any(isinstance(result, LLMError) for result in results):
            raise PartialFailure(results)
        return [result for result in results if isinstance(result, Completion)]

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        asked, trimmed = fit(prompt, self._context_length, self._count)
        words, finish = self._answer(asked)
        time.sleep(self._first_token)
        for index, word in enumerate(words):
            if index:
                time.sleep(self._per_token)
            yield word
        text = "".join(words)
        choices = _certain(prompt.format, text) if isinstance(prompt.format, Choice) else None
        usage = Usage(input=self._count(asked.messages), output=len(words))
        return Completion(text, "length" if finish else "stop", usage, choices, trimmed)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def _count(self, messages: Sequence[Message]) -> int:
        return sum(self.count_tokens([message.content for message in alternate(messages)]))

    def _answer(self, prompt: Prompt) -> tuple[list[str], bool]:
        """The answer's words with the space before each, and whether the limit cut them."""
        text = self._script(prompt)
        for stop in prompt.stop:
            text = text.split(stop)[0]
        _check(prompt, text)
        words = _words(text)
        return words[: prompt.max_tokens], len(words) > prompt.max_tokens


def _drain(stream: Generator[str, None, Completion]) -> Completion:
    while True:
        try:
            next(stream)
        except StopIteration as end:
            completion: Completion = end.value
            return completion


def _words(text: str) -> list[str]:
    pieces = text.split(" ")
    return [pieces[0], *(f" {piece}" for piece in pieces[1:])] if text else []


def _check(prompt: Prompt, text: str) -> None:
    match prompt.format:
        case Choice(options=options) if text not in options:
            raise BadReply(f"prompt {prompt.name!r} was answered {text!r}; it must be one of {list(options)}")
        case JsonSchema():
            try:
                json.loads(text)
            except ValueError as error:
                raise BadReply(f"prompt {prompt.name!r} was answered {text!r}, which is no JSON: {error}") from error


def _certain(choice: Choice, text: str) -> dict[str, float]:
    return {option: 0.0 if option == text else -math.inf for option in choice.options}
