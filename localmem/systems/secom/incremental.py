"""Segmenting during a session: each exchange continues the open segment or begins a new one.

The decisions are stored in a note of the bank until the session ends: for each open session, the ids of the user turns
that begin a segment.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter

from localmem.llm.base import LLM
from localmem.llm.structured_output import generate_usable
from localmem.prompts import load, render
from localmem.segmentation.segmenters import segments_between
from localmem.text.dialogue import latest_turns, transcript
from localmem.types import Choice, Exchange, Session, Turn

STARTS = "secom/starts"

_TEMPLATE = 64  # tokens that a chat template adds, at most
_OPTIONS = ("same", "new")

Starts = Mapping[str, Sequence[str]]


class Continuation:
    """Asks `prompt` (inputs segment, exchange) whether an exchange continues the open segment.

    After an unusable answer it does; `fallbacks` counts that.
    """

    def __init__(self, llm: LLM, *, prompt: str = "secom/continue", fallbacks: Counter[str] | None = None) -> None:
        self._llm = llm
        self._prompt = prompt
        self._fallbacks: Counter[str] = Counter() if fallbacks is None else fallbacks

    def belongs(self, segment: str, exchange: Exchange) -> bool:
        """Whether the exchange belongs to the segment."""
        prompt = render(self._prompt, form=Choice(_OPTIONS), segment=segment, exchange=transcript(exchange.turns()))
        (answer,) = generate_usable(self._llm, [prompt], self._fallbacks)
        return answer is None or answer.text == _OPTIONS[0]

    def context(self, turns: Sequence[Turn]) -> str:
        """The end of the open segment that fits half of the model's context; the rest is for the next exchange."""
        file = load(self._prompt)
        room = self._llm.context_length // 2 - file.max_tokens - _TEMPLATE
        return transcript(latest_turns(turns, room, self._llm.count_tokens))


def read(note: str) -> dict[str, list[str]]:
    """The note's content: for each open session, the ids of turns that begin a segment."""
    return TypeAdapter(dict[str, list[str]]).validate_json(note) if note else {}


def write(starts: Starts) -> str:
    """The note's text; "" when no session is open."""
    return json.dumps(starts, ensure_ascii=False) if starts else ""


def open_turns(session: Session, starts: Sequence[str]) -> Sequence[Turn]:
    """The turns of the open segment, without the last turn, which has no reply yet."""
    turns = session.turns[:-1]
    first = max((number for number, turn in enumerate(turns) if turn.id in starts), default=0)
    return turns[first:]


def segments(session: Session, starts: Sequence[str]) -> list[range]:
    """The session's segments: one begins at each exchange whose user turn is among `starts`."""
    exchanges = session.exchanges()
    first = {number for number, exchange in enumerate(exchanges) if exchange.user and exchange.user.id in starts}
    return segments_between(first, len(exchanges))
