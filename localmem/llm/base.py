"""What an LLM part is, and the one rule by which a prompt that is too long is made to fit.

Knows no backend. A backend counts tokens with the model's own tokenizer; the rule here decides what goes.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Protocol

from localmem.errors import PromptTooLong
from localmem.types import Completion, Message, Prompt


class LLM(Protocol):
    """A chat model. List in, list out, same order; safe for use from many threads."""

    @property
    def name(self) -> str:
        """The model's name in the manifest."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together."""
        ...

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """An answer for each prompt.

        A prompt's format is enforced while decoding. Raises PartialFailure when some prompts fail and others do not,
        and the error itself when there is but one prompt or all fail alike.
        """
        ...

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        """Pieces of the answer as they come; the generator's return value is what `generate` would have given.

        Closing the generator stops the work behind it.
        """
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text under the model's tokenizer, without the chat template."""
        ...


def alternate(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Neighbours of one role joined by an empty line: most chat templates demand that user and assistant take turns."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return tuple(joined)


def fit(prompt: Prompt, context_length: int, count: Callable[[Sequence[Message]], int]) -> tuple[Prompt, int]:
    """The prompt, cut down to leave room for its answer, and the number of tokens that were cut.

    `count` gives the tokens of messages under the chat template. The rule: the system message and the last message
    stay; of the dialogue between them the oldest messages go first, whole. If that is not enough, the longest
    remaining message loses its middle. Raises PromptTooLong when the answer alone leaves no room for a prompt.
    """
    room = context_length - prompt.max_tokens
    before = count(prompt.messages)
    if before <= room:
        return prompt, 0
    if room < 32:
        raise PromptTooLong(
            f"prompt {prompt.name!r} asks for {prompt.max_tokens} tokens of a context of {context_length}; "
            "lower max_tokens or use a model with a longer context"
        )
    messages = _without_oldest(prompt.messages, room, count)
    if count(messages) > room:
        messages = _without_middle(messages, room, count)
    return replace(prompt, messages=messages), before - count(messages)


def _without_oldest(
    messages: tuple[Message, ...], room: int, count: Callable[[Sequence[Message]], int]
) -> tuple[Message, ...]:
    """The fewest oldest dialogue messages dropped that make the rest fit, or all of them."""
    head = 1 if messages[0].role == "system" else 0
    low, high = head, len(messages) - 1
    while low < high:  # how much is left falls with every message dropped, so bisect
        middle = (low + high) // 2
        if count(messages[:head] + messages[middle:]) <= room:
            high = middle
        else:
            low = middle + 1
    if messages[low].role == "assistant" and low < len(messages) - 1:
        low += 1  # many chat templates refuse a dialogue that the assistant opens
    return messages[:head] + messages[low:]


def _without_middle(
    messages: tuple[Message, ...], room: int, count: Callable[[Sequence[Message]], int]
) -> tuple[Message, ...]:
    longest = max(range(len(messages)), key=lambda index: len(messages[index].content))
    content = messages[longest].content

    def cut(kept: int) -> tuple[Message, ...]:
        text = content[: kept // 2] + "\n[...]\n" + content[len(content) - (kept - kept // 2) :]
        return (*messages[:longest], replace(messages[longest], content=text), *messages[longest + 1 :])

    low, high = 0, len(content)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(cut(middle)) <= room else (low, middle - 1)
    if count(cut(low)) > room:
        raise PromptTooLong(f"a prompt of {count(messages)} tokens cannot be cut to {room}; shorten its other messages")
    return cut(low)
