"""Models that think aloud: what they write in <think>...</think> before a reply is neither shown nor kept.

A server that separates it itself sends it as `reasoning_content`, which no backend reads. The switch of such models is
a field of their chat template (Qwen3 has enable_thinking), which the settings name for every prompt. Does not depend on
any backend.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import cast

from localmem.batching import results_or_raise
from localmem.errors import PartialFailure
from localmem.llm.base import LLM, CallPiece, Pause
from localmem.llm.tokenizer import template_fields
from localmem.llm.wrappers import Wrapper
from localmem.types import Completion, FreeText, Prompt

_BEGIN, _END = "<think>", "</think>"
_END_LINE = re.compile(rf"^[ \t]*{_END}", re.MULTILINE)


class WithoutThinking(Wrapper):
    """Answers without their thoughts. `template` holds fields for the chat template; those of a prompt come first."""

    def __init__(self, inner: LLM, template: Mapping[str, object]) -> None:
        super().__init__(inner)
        self._template = template

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        own = [self._with_fields(prompt) for prompt in prompts]
        try:
            return [*map(_without_thoughts, prompts, self.inner.generate(own))]
        except PartialFailure as failure:
            return results_or_raise([*map(_without_thoughts_or_error, prompts, failure.results)])

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        reply, released, answer = _GrowingReply(), "", Completion("")
        with closing(self.inner.stream(self._with_fields(prompt))) as pieces:
            try:
                while True:
                    piece = next(pieces)
                    if isinstance(piece, CallPiece | Pause):
                        yield piece
                    elif text := reply.add(piece) if isinstance(prompt.format, FreeText) else piece:
                        released += text
                        yield text
            except StopIteration as end:
                answer = end.value
        completion = _without_thoughts(prompt, answer)
        if completion.text.startswith(released) and completion.text != released:
            yield completion.text[len(released) :]
        return completion

    def _with_fields(self, prompt: Prompt) -> Prompt:
        if not self._template:
            return prompt
        fields = {**self._template, **template_fields(prompt.extra)}
        return replace(prompt, extra={**prompt.extra, "chat_template_kwargs": fields})


def find_reply(text: str) -> str:
    """An answer without the thoughts before it; "" while they last.

    Some templates begin them in the prompt; then no mark of a beginning stands before that of the end.
    """
    if text.lstrip().startswith(_BEGIN):
        return text.partition(_END)[2].lstrip()
    end = _END_LINE.search(text)
    return text[end.end() :].lstrip() if end and _BEGIN not in text[: end.start()] else text


def _without_thoughts_or_error(prompt: Prompt, result: object) -> Completion | Exception:
    return _without_thoughts(prompt, result) if isinstance(result, Completion) else cast("Exception", result)


def _without_thoughts(prompt: Prompt, completion: Completion) -> Completion:
    return replace(completion, text=find_reply(completion.text)) if isinstance(prompt.format, FreeText) else completion


class _GrowingReply:
    """The reply in an answer that comes piece by piece; nothing is passed on while thoughts may still come."""

    def __init__(self) -> None:
        self._waiting = ""
        self._begun = False

    def add(self, piece: str) -> str:
        """What may be passed on now."""
        if self._begun:
            return piece
        self._waiting += piece
        start = self._waiting.lstrip()
        if _BEGIN.startswith(start[: len(_BEGIN)]) and not (reply := find_reply(start) if _END in start else ""):
            return ""
        self._begun = True
        return reply if start.startswith(_BEGIN) else self._waiting
