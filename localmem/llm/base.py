"""The contract of an LLM, and the rules that all backends share: which prompts are valid, how a prompt that is too long
is trimmed, what an answer must be, and how it grows while it is decoded.

Does not import any backend. A backend counts tokens with the model's own tokenizer; the rule here decides what to cut.
Streamed and complete answers both come from AnswerText, so they are the same.
"""

import json
import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol, TypeVar, get_args

from localmem.errors import BadInput, BadReply, PromptTooLong
from localmem.llm.control_tokens import neutralize, neutralize_fields
from localmem.types import Choice, Completion, JsonSchema, Message, Prompt

logger = logging.getLogger(__name__)

# A prompt of fewer tokens than this would be useless.
_LEAST_ROOM = 32
_GAP = "\n[...]\n"
_MAX_QUOTE = 200
# The limit of the OpenAI protocol; servers refuse more.
_MAX_TEMPERATURE = 2.0


Ability = Literal["tools", "logprobs", "images", "prefill"]
ABILITIES: frozenset[Ability] = frozenset(get_args(Ability))


class CallPiece(str):
    """A piece of a call of tools in a stream, as OpenAI's protocol sends it (`delta`). As a text it is empty."""

    __slots__ = ("delta",)

    def __new__(cls, delta: Mapping[str, object]) -> "CallPiece":
        piece = super().__new__(cls, "")
        piece.delta = delta
        return piece

    delta: Mapping[str, object]


class Feed(Protocol):
    """Where the words of a paused stream come from."""

    has_ended: bool

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call it, on the feed's event loop, as soon as there is more, or the end, or `wake` is called; once."""

    def wake(self) -> None:
        """Call what waits for more, although there may be none."""


class Pause(str):
    """No words yet: whoever drives the stream may leave it until its `feed` has more. As a text it is empty."""

    __slots__ = ("feed",)

    def __new__(cls, feed: Feed) -> "Pause":
        pause = super().__new__(cls, "")
        pause.feed = feed
        return pause

    feed: Feed


class LLM(Protocol):
    """A chat model. Safe for use from many threads."""

    @property
    def name(self) -> str:
        """The model's name in the manifest."""

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together."""

    @property
    def abilities(self) -> Collection[Ability]:
        """What a prompt may ask for beyond a text; anything else is refused by name."""

    def check(self, prompt: Prompt) -> None:
        """Raises BadInput for what the model cannot do whatever the messages say.

        `generate` raises the same, but lets an answer leave no room for more than a very short prompt.
        """

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """An answer for each prompt, in order.

        A prompt's format is enforced while decoding. Raises PartialFailure when some prompts fail and others do not,
        and the error itself when there is only one prompt or all fail in the same way.
        """

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        """Pieces of the answer as they come, CallPieces among them; returns what `generate` would have returned.

        Closing the generator stops the decoding.
        """

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text under the model's tokenizer, without the chat template."""


def alternate(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Joins neighbouring messages of one role by an empty line: most chat templates require that roles alternate.

    Messages with fields, such as a tool's results, are not joined. No text in any of them is a mark of the template.
    """
    merged: list[Message] = []
    for message in messages:
        content = neutralize(message.content)
        if merged and merged[-1].role == message.role and not (merged[-1].fields or message.fields):
            merged[-1] = Message(message.role, f"{merged[-1].content}\n\n{content}")
        else:
            merged.append(replace(message, content=content, fields=_neutral(message.fields)))
    return tuple(merged)


def _neutral(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Without marks in what a tool is called with; images are no text."""
    return {name: each if name == "parts" else neutralize_fields(each) for name, each in fields.items()}


def fit(prompt: Prompt, context_length: int, count: Callable[[Sequence[Message]], int]) -> tuple[Prompt, int]:
    """The prompt, trimmed to leave room for its answer, and the number of tokens that were cut.

    `count` gives the tokens of messages under the chat template. The rule: the system message and the user's last stay,
    with tools' calls and results after it; of the dialogue between them the oldest messages are dropped first. If that
    is not enough, the longest remaining messages lose their middle, down to one common length. Raises PromptTooLong
    when the answer leaves no room for a prompt.
    """
    room = context_length - prompt.max_tokens
    length = count(prompt.messages)
    if length <= room:
        return _extend(prompt, context_length - length), 0
    check_room(prompt, context_length)
    messages = _without_oldest(prompt.messages, room, count)
    if count(messages) > room:
        messages = _without_middles(prompt.name, messages, room, count)
    remaining = count(messages)
    cut = length - remaining
    logger.warning(
        "prompt %r was cut by %d of %d tokens to fit a context of %d", prompt.name, cut, length, context_length
    )
    return _extend(replace(prompt, messages=messages), context_length - remaining), cut


def check_room(prompt: Prompt, context_length: int) -> None:
    """Raises PromptTooLong where the answer leaves no room for a prompt of a useful length."""
    if context_length - prompt.max_tokens < _LEAST_ROOM:
        raise PromptTooLong(
            f"prompt {prompt.name!r} asks for {prompt.max_tokens} tokens of a context of {context_length}; "
            "lower max_tokens or use a model with a longer context"
        )


def _extend(prompt: Prompt, room: int) -> Prompt:
    """An open-ended answer may take all the room."""
    return replace(prompt, max_tokens=room) if prompt.open_ended else prompt


def required_abilities(prompt: Prompt) -> set[Ability]:
    """What the prompt asks for beyond a text."""
    fields = set[str]().union(*(message.fields for message in prompt.messages))
    required: dict[Ability, object] = {
        "tools": prompt.extra.get("tools") or fields & {"tool_calls", "tool_call_id"},
        "logprobs": prompt.extra.get("logprobs"),
        "images": "parts" in fields,
        "prefill": prompt.prefill,
    }
    return {ability for ability, is_required in required.items() if is_required}


def check_abilities(prompt: Prompt, abilities: Collection[Ability]) -> None:
    """Raises BadInput that names what the prompt asks for and this backbone cannot do."""
    if missing := sorted(required_abilities(prompt).difference(abilities)):
        raise BadInput(f"this backbone cannot do {', '.join(missing)}; omit it, or serve a model behind llm.url")


def check(prompt: Prompt, abilities: Collection[Ability] = ()) -> None:
    """Raises BadInput for a prompt that no model can answer, or that this one, of these abilities, cannot."""
    check_abilities(prompt, abilities)
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


def check_json(prompt: Prompt, text: str, *, is_cut: bool = False) -> None:
    """Raises BadReply for a JSON answer that is not JSON: decoding enforces the format, but its tokens may run out."""
    if not isinstance(prompt.format, JsonSchema) or (is_cut and prompt.format.may_be_cut):
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
    last = max((index for index, message in enumerate(messages) if message.role == "user"), default=len(messages) - 1)
    low, high = head, max(head, last)
    while low < high:  # every dropped message makes it shorter, so bisect
        middle = (low + high) // 2
        if count(messages[:head] + messages[middle:]) <= room:
            high = middle
        else:
            low = middle + 1
    while messages[low].role in ("assistant", "tool") and low < last:
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


class AnswerText:
    """Collects pieces, and cuts them at the first stop string.

    The first `final` characters cannot change: no stop string can begin before them any more.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._longest = max(map(len, self._stops), default=0)
        self._released = 0
        self.text = ""
        self.final = 0
        self.stop = ""  # the stop string that came

    def add(self, piece: str) -> None:
        """Appends a piece; at a complete stop string drops it and what follows, and sets `stop`."""
        if self.stop or not piece:
            return
        start = max(0, len(self.text) - self._longest)
        text = self.text + piece.replace("\0", "\ufffd")  # a token of many vocabularies, which no store takes
        places = [(place, stop) for stop in self._stops if (place := text.find(stop, start)) >= 0]
        end, self.stop = min(places, default=(len(text), ""))
        self.text = text[:end]
        # Another thread reads up to `final`, so it is set last.
        self.final = len(self.text) if self.stop else len(self.text) - self._possible_stop()

    def finish(self) -> None:
        """All text is final: no piece follows."""
        self.final = len(self.text)

    @property
    def stopped(self) -> bool:
        """Whether a stop string came."""
        return bool(self.stop)

    @property
    def has_news(self) -> bool:
        """Whether there is final text that `take` has not returned yet."""
        return self.final > self._released

    def take(self) -> str:
        """The text that became final since the last call."""
        start, self._released = self._released, self.final
        return self.text[start : self._released]

    def _possible_stop(self) -> int:
        for length in range(min(self._longest, len(self.text)), 0, -1):
            if any(stop.startswith(self.text[-length:]) for stop in self._stops):
                return length
        return 0


Result = TypeVar("Result")


def tee_pieces(pieces: Generator[str, None, Result], copy: list[str]) -> Generator[str, None, Result]:
    """Yields the pieces and appends each to `copy`; closing this generator closes `pieces`."""
    try:
        while True:
            piece = next(pieces)
            copy.append(piece)
            yield piece
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        pieces.close()


def drain(pieces: Generator[str, None, Result]) -> Result:
    """The generator's return value; its pieces are dropped."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: Result = end.value
            return result
