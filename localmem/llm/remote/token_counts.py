"""How the tokens of a prompt are counted: by the model's tokenizer on disk, by the server's, or by an estimate.

The tokenizer on disk is used where it agrees with the server's, because it needs no request. An estimate, and a
tokenizer that no server confirms, are raised when an answer reports that a prompt was longer.
"""

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from localmem.errors import LLMError, LLMUnavailable
from localmem.llm.base import alternate
from localmem.llm.remote.openai_protocol import OpenAIProtocol
from localmem.llm.remote.openai_wire import message_body
from localmem.llm.tokenizer import ChatTokenizer
from localmem.types import Message

logger = logging.getLogger(__name__)

# English has above 4 bytes a token, Chinese and code about 3; the fifth above that is the margin.
BYTES_PER_TOKEN = 2.5
_MESSAGE_TOKENS = 8  # of the chat template, for each message
_LONG_PROMPT = 512  # tokens; what a server's template adds to a shorter prompt would count as a share of all
# Numbers, accents and another script: tokenizers that agree here are the same for our purpose.
_SAMPLE = "On 12 March 1998 Zoë paid 1,234.50 € for café crème — 안녕하세요, 世界! def f(x): return x**2\n\n\tэто"


class TokenCounter(Protocol):
    """Counts tokens of texts and of prompts. `is_free` says whether counting needs no request.

    The count of a prompt is as it is before `correct` applies what answers reported of others.
    """

    description: str
    is_free: bool

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, without the chat template."""

    def count_messages(
        self, messages: Sequence[Message], template: Mapping[str, object], tools: Sequence[object] = ()
    ) -> int:
        """Tokens of a prompt under the chat template."""

    def correct(self, counted: int) -> int:
        """The tokens that a prompt counted as `counted` ones is to be expected to have."""

    def learn(self, counted: int, actual: int) -> None:
        """A prompt that was counted as `counted` tokens, before `correct`, had `actual` ones."""


class _Correction:
    """The factor of the counts: the largest that an answer reported. Safe for use from many threads."""

    def __init__(self, *, most: float = math.inf) -> None:
        self._most = most
        self._factor = 1.0
        self._guard = threading.Lock()

    def apply(self, counted: int) -> int:
        return math.ceil(counted * self._factor)

    def learn(self, counted: int, actual: int) -> None:
        if counted >= _LONG_PROMPT:
            with self._guard:
                self._factor = min(self._most, max(self._factor, actual / counted))


class ServerCounter:
    """The server's own tokenizer."""

    description = "counted by the server"
    is_free = False

    def __init__(self, protocol: OpenAIProtocol) -> None:
        self._protocol = protocol

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        return self._protocol.count_texts(texts)

    def count_messages(
        self, messages: Sequence[Message], template: Mapping[str, object], tools: Sequence[object] = ()
    ) -> int:
        bodies = [message_body(_without_images(message)) for message in alternate(messages)]
        try:
            return self._protocol.count_messages(bodies, template, tools)
        except LLMUnavailable:
            raise
        except LLMError as error:
            return _estimate_refused(messages, tools, _estimate, error)

    def correct(self, counted: int) -> int:
        """The server's count is exact."""
        return counted

    def learn(self, counted: int, actual: int) -> None:
        """The server's count is exact."""


class DiskCounter:
    """The model's tokenizer on this machine; `is_confirmed` by the server's, or else corrected by its answers."""

    is_free = True

    def __init__(self, tokenizer: ChatTokenizer, *, is_confirmed: bool) -> None:
        self._tokenizer = tokenizer
        self._is_confirmed = is_confirmed
        self._correction = _Correction()
        self.description = "counted by the model's tokenizer on this machine"

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        return [self._correction.apply(count) for count in self._tokenizer.count_tokens(texts)]

    def count_messages(
        self, messages: Sequence[Message], template: Mapping[str, object], tools: Sequence[object] = ()
    ) -> int:
        from jinja2 import TemplateError

        try:
            return len(self._tokenizer.encode(messages, template, tools=tools))
        except (TemplateError, TypeError) as error:  # what a template does with a value it does not expect
            return _estimate_refused(messages, tools, self._tokenizer.count_tokens, error)

    def correct(self, counted: int) -> int:
        return self._correction.apply(counted)

    def learn(self, counted: int, actual: int) -> None:
        if not self._is_confirmed:
            self._correction.learn(counted, actual)


class EstimatingCounter:
    """Tokens estimated from bytes, with a margin."""

    is_free = True
    description = f"estimated at {BYTES_PER_TOKEN:g} bytes each, a fifth above the usual, and more once a prompt was"

    def __init__(self) -> None:
        self._correction = _Correction(most=BYTES_PER_TOKEN)  # a token has a byte or more

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        return [self._correction.apply(count) for count in _estimate(texts)]

    def count_messages(
        self, messages: Sequence[Message], template: Mapping[str, object], tools: Sequence[object] = ()
    ) -> int:
        return _estimate_messages(messages, tools, _estimate)

    def correct(self, counted: int) -> int:
        return self._correction.apply(counted)

    def learn(self, counted: int, actual: int) -> None:
        self._correction.learn(counted, actual)


def _estimate(texts: Sequence[str]) -> list[int]:
    return [math.ceil(len(text.encode()) / BYTES_PER_TOKEN) for text in texts]


def _estimate_messages(
    messages: Sequence[Message], tools: Sequence[object], count: Callable[[Sequence[str]], list[int]]
) -> int:
    merged = alternate(messages)
    texts = [message.content for message in merged] + json_texts(merged, tools)
    return sum(count(texts)) + _MESSAGE_TOKENS * (len(merged) + 1)


def _estimate_refused(
    messages: Sequence[Message],
    tools: Sequence[object],
    count: Callable[[Sequence[str]], list[int]],
    error: Exception,
) -> int:
    """As a dialogue may be counted that the template refuses: one cut in the middle, or with a model's own call ids."""
    logger.info("the chat template refuses %d messages (%s); their tokens are estimated", len(messages), error)
    return _estimate_messages(messages, tools, count)


def json_texts(messages: Sequence[Message], tools: Sequence[object]) -> list[str]:
    """As JSON, the tools and what messages have beside their text; images are no text."""
    fields = [_without_images(message).fields for message in messages]
    return [json.dumps(each, ensure_ascii=False) for each in (*tools, *filter(None, fields))]


def _without_images(message: Message) -> Message:
    return replace(message, fields={name: value for name, value in message.fields.items() if name != "parts"})


def choose_counter(protocol: OpenAIProtocol, *, has_tokenizer: bool, on_disk: ChatTokenizer | None) -> TokenCounter:
    """The best of the counters that there are for this server. Raises LLMError, LLMUnavailable."""
    if on_disk is None:
        return ServerCounter(protocol) if has_tokenizer else EstimatingCounter()
    if has_tokenizer and protocol.count_texts([_SAMPLE]) != on_disk.count_tokens([_SAMPLE]):
        return ServerCounter(protocol)
    return DiskCounter(on_disk, is_confirmed=has_tokenizer)
