"""Segmenting while a session goes on: each exchange goes on with the open segment or begins a new one.

Knows how that is asked, and how decisions wait in a note until the session ends. The bank has them by the ids of the
user turns that begin a segment, for each session that goes on; a session that is remembered has none left.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter

from localmem.llm.base import LLM
from localmem.llm.structured_output import usable
from localmem.prompts import load, render
from localmem.segmentation.segmenters import between
from localmem.text.dialogue import transcript
from localmem.text.recent import recent
from localmem.types import Choice, Exchange, Session, Turn

STARTS = "secom/starts"

_TEMPLATE = 64  # tokens that a chat template adds, at most
_OPTIONS = ("same", "new")

Starts = Mapping[str, Sequence[str]]


class Continuation:
    """Asks `prompt` (inputs segment, exchange) whether an exchange goes on with the open segment.

    An answer that cannot be used lets it go on; `fallbacks` counts it.
    """

    def __init__(self, llm: LLM, *, prompt: str = "secom/continue", fallbacks: Counter[str] | None = None) -> None:
        self._llm = llm
        self._prompt = prompt
        self._fallbacks: Counter[str] = Counter() if fallbacks is None else fallbacks

    def goes_on(self, segment: str, exchange: Exchange) -> bool:
        prompt = render(self._prompt, form=Choice(_OPTIONS), segment=segment, exchange=transcript(exchange.turns()))
        (answer,) = usable(self._llm, [prompt], self._fallbacks)
        return answer is None or answer.text == _OPTIONS[0]

    def shown(self, turns: Sequence[Turn]) -> str:
        """As much of the open segment's end as leaves room for the next exchange: half of the context."""
        file = load(self._prompt)
        room = self._llm.context_length // 2 - file.max_tokens - _TEMPLATE
        return transcript(recent(turns, room, self._llm.count_tokens))


def read(note: str) -> dict[str, list[str]]:
    """What a note says: for each session that goes on, the ids of turns that begin a segment."""
    return TypeAdapter(dict[str, list[str]]).validate_json(note) if note else {}


def write(starts: Starts) -> str:
    """The note's text; "" when no session goes on."""
    return json.dumps(starts, ensure_ascii=False) if starts else ""


def open_turns(session: Session, begun: Sequence[str]) -> Sequence[Turn]:
    """The turns of the open segment, up to the turn that is to be answered."""
    said = session.turns[:-1]
    starts = [number for number, turn in enumerate(said) if turn.id in begun]
    return said[starts[-1] :] if starts else said


def segments(session: Session, begun: Sequence[str]) -> list[range]:
    """The session's segments: one begins at each exchange whose user turn is among `begun`."""
    exchanges = session.exchanges()
    starts = {number for number, exchange in enumerate(exchanges) if exchange.user and exchange.user.id in begun}
    return between(starts, len(exchanges))
