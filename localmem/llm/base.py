"""The contract of an LLM, and the rules that all backends share: which prompts are valid, how a prompt that is too long
is trimmed, what an answer must be.

Does not import any backend. A backend counts tokens with the model's own tokenizer; the rule here decides what to cut.
"""

import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from localmem.errors import BadInput, BadReply, PromptTooLong
from localmem.types import Choice, Completion, JsonSchema, Message, Prompt

logger = logging.getLogger(__name__)

# A prompt of fewer tokens than this would be useless.
_LEAST_ROOM = 32
_GAP = "\n[...]\n"
_MAX_QUOTE = 200
# The limit of the OpenAI protocol; servers refuse more.
_MAX_TEMPERATURE = 2.0


class LLM(Protocol):
    """A chat model. Safe for use from many threads."""

    @property
    def name(self) -> str:
        """The model's name in the manifest."""

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """An answer for each prompt, in order.

        A prompt's format is enforced while decoding. Raises PartialFailure when some prompts fail and others do not,
        and the error itself when there is only one prompt or all fail in the same way.
        """

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        """Pieces of the answer as they come; the generator returns what `generate` would have returned.

        Closing the generator stops the decoding.
        """

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text under the model's tokenizer, without the chat template."""


def alternate(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Joins neighbouring messages of one role by an empty line: most chat templates require that roles alternate."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, f"{merged[-1].content}\n\n{message.content}")
        else:
            merged.append(message)
    return tuple(merged)


def fit(prompt: Prompt, context_length: int, count: Callable[[Sequence[Message]], int]) -> tuple[Prompt, int]:
    """The prompt, trimmed to leave room for its answer, and the number of tokens that were cut.

    `count` gives the tokens of messages under the chat template. The rule: the system message and the last message
    stay; of the dialogue between them the oldest messages are dropped first. If that is not enough, the longest
    remaining messages lose their middle, down to one common length. Raises PromptTooLong when the answer leaves no room
    for a prompt.
    """
    room = context_length - prompt.max_tokens
    length = count(prompt.messages)
    if length <= room:
        return prompt, 0
    if room < _LEAST_ROOM:
        raise PromptTooLong(
            f"prompt {prompt.name!r} asks for {prompt.max_tokens} tokens of a context of {context_length}; "
            "lower max_tokens or use a model with a longer context"
        )
    messages = _without_oldest(prompt.messages, room, count)
    if count(messages) > room:
        messages = _without_middles(prompt.name, messages, room, count)
    cut = length - count(messages)
    logger.warning(
        "prompt %r was cut by %d of %d tokens to fit a context of %d", prompt.name, cut, length, context_length
    )
    return replace(prompt, messages=messages), cut


def check(prompt: Prompt) -> None:
    """Raises BadInput for a prompt that no model can answer."""
    if not prompt.messages:
        raise BadInput(f"prompt {prompt.name!r} has no messages; give at least one")
    if prompt.max_tokens < 1:
        raise BadInput(f"prompt {prompt.name!r} has max_tokens={prompt.max_tokens}; give at least 1")
    if not 0 <= prompt.temperature <= _MAX_TEMPERATURE:
        raise BadInput(f"prompt {prompt.name!r} has temperature={prompt.temperature}; give 0 to {_MAX_TEMPERATURE:.0f}")
    if isinstance(prompt.format, Choice):
        options = prompt.format.options
        if len(options) < 2 or len(set(options)) < len(options) or "" in options:
            raise BadInput(f"prompt {prompt.name!r} has the options {list(options)}; give two or more, all different")


def check_json(prompt: Prompt, text: str) -> None:
    """Raises BadReply for a JSON answer that is not JSON: decoding enforces the format, but its tokens may run out."""
    if not isinstance(prompt.format, JsonSchema):
        return
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        quote = text if len(text) <= _MAX_QUOTE else f"{text[: _MAX_QUOTE // 2]} [...] {text[-_MAX_QUOTE // 2 :]}"
        raise BadReply(
            f"prompt {prompt.name!r} was answered {quote!r}, which is not JSON ({error}); "
            f"raise its max_tokens above {prompt.max_tokens}, or bound its schema"
        ) from error


def route(adapters: Mapping[str, str], prompt_name: str) -> str | None:
    """The adapter for a prompt: the one for its name, else the one for the part before the slash, else None."""
    return adapters.get(prompt_name) or adapters.get(prompt_name.partition("/")[0])


def _without_oldest(
    messages: tuple[Message, ...], room: int, count: Callable[[Sequence[Message]], int]
) -> tuple[Message, ...]:
    """Drops as few of the oldest dialogue messages as make the others fit, or all of them."""
    head = 1 if messages[0].role == "system" and len(messages) > 1 else 0
    low, high = head, len(messages) - 1
    while low < high:  # every dropped message makes it shorter, so bisect
        middle = (low + high) // 2
        if count(messages[:head] + messages[middle:]) <= room:
            high = middle
        else:
            low = middle + 1
    if messages[low].role == "assistant" and low < len(messages) - 1:
        low += 1  # many chat templates refuse a dialogue that begins with the assistant
    return messages[:head] + messages[low:]


def _without_middles(
    name: str, messages: tuple[Message, ...], room: int, count: Callable[[Sequence[Message]], int]
) -> tuple[Message, ...]:
    def cut(length: int) -> tuple[Message, ...]:
        return tuple(replace(message, content=_cut_middle(message.content, length)) for message in messages)

    low, high = 0, max(len(message.content) for message in messages)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(cut(middle)) <= room else (low, middle - 1)
    if count(cut(low)) > room:
        raise PromptTooLong(
            f"prompt {name!r} has {count(messages)} tokens that cannot be cut to {room}; "
            "lower its max_tokens or use a model with a longer context"
        )
    return cut(low)


def _cut_middle(content: str, length: int) -> str:
    if len(content) <= length + len(_GAP):
        return content
    return content[: length // 2] + _GAP + content[len(content) - (length - length // 2) :]
