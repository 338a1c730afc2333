"""An LLM whose answers come from a function: for unit tests, and to benchmark our own code with fixed token times.

Follows the contract of the real backends: formats are checked, stop strings cut, prompts trimmed. Loads no weights.
"""

import math
import time
from collections.abc import Callable, Collection, Generator, Sequence

from localmem.batching import result_or_error, results_or_raise
from localmem.errors import BadReply
from localmem.llm.base import Ability, AnswerText, alternate, check, check_json, check_room, drain, fit
from localmem.types import Choice, Completion, Message, Prompt, Usage

Script = Callable[[Prompt], str]


class ScriptedLLM:
    """Answers with `script(prompt)`; a word is a token.

    `first_token` and `per_token` are seconds that pass before the first word of an answer and before each other.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        context_length: int = 8192,
        first_token: float = 0.0,
        per_token: float = 0.0,
        abilities: Collection[Ability] = (),
    ) -> None:
        self._script = script
        self.name = name
        self.context_length = context_length
        self._first_token = first_token
        self._per_token = per_token
        self.abilities = abilities

    def check(self, prompt: Prompt) -> None:
        check(prompt, self.abilities)
        check_room(prompt, self.context_length)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return results_or_raise([result_or_error(lambda each: drain(self.stream(each)), prompt) for prompt in prompts])

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        check(prompt, self.abilities)
        fitted, trimmed = fit(prompt, self.context_length, self._count)
        words, cut, stop = self._answer(fitted)
        for index, word in enumerate(words or [""]):
            if pause := self._per_token if index else self._first_token:
                time.sleep(pause)  # even a sleep of 0 s hands the interpreter to another thread
            if word:
                yield word
        text = "".join(words)
        check_json(prompt, text, is_cut=cut)
        options = prompt.format.options if isinstance(prompt.format, Choice) else ()
        choices = {option: 0.0 if option == text else -math.inf for option in options} or None
        usage = Usage(input=self._count(fitted.messages), output=len(words))
        return Completion(text, "length" if cut else "stop", usage, choices, trimmed, stop="" if cut else stop)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def _count(self, messages: Sequence[Message]) -> int:
        return sum(self.count_tokens([message.content for message in alternate(messages)]))

    def _answer(self, prompt: Prompt) -> tuple[list[str], bool, str]:
        reply = self._script(prompt)
        if isinstance(prompt.format, Choice):
            options = prompt.format.options
            if reply not in options:
                raise BadReply(f"prompt {prompt.name!r} was answered {reply!r}; it must be one of {list(options)}")
            return _words(reply), False, ""
        answer = AnswerText(prompt.stop)
        answer.add(reply)
        words = _words(answer.text)
        return words[: prompt.max_tokens], len(words) > prompt.max_tokens, answer.stop


def _words(text: str) -> list[str]:
    pieces = text.split(" ")
    return [pieces[0], *(f" {piece}" for piece in pieces[1:])] if text else []
