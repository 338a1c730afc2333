"""Segmenters: sessions are cut into topical segments, by the backbone in one call or evenly.

Knows no system and no bank. Segments are ranges over a session's exchanges; they always cover every exchange once, for
only the first exchange of each is taken from an answer (SeCom, section 2.2, eq. 1: p_1 = 0, p_{k+1} = q_k + 1).
"""

import json
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from localmem.llm.base import LLM
from localmem.llm.schemas import answer, many, number, record
from localmem.llm.structured_output import unusable, usable
from localmem.prompts import load, render
from localmem.segmentation.rubric import Rubric
from localmem.text.dialogue import packed, transcript
from localmem.types import Completion, Exchange, JsonSchema, Prompt, Session

log = logging.getLogger(__name__)

_TEMPLATE = 64  # tokens that a chat template adds, at most
_SEGMENT = 20  # tokens of one segment in the answer, at most
_NUMBER = 10  # tokens of an exchange's number and the lines around it, at most


class EvenSegmenter:
    """Segments of `size` exchanges each; the last of a session may be smaller. With size 1, SeCom's turn level."""

    def __init__(self, size: int) -> None:
        self._size = size

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        return [even(len(session.exchanges()), self._size) for session in sessions]


class WholeSegmenter:
    """One segment a session: SeCom's session level."""

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        counts = [len(session.exchanges()) for session in sessions]
        return [[range(count)] if count else [] for count in counts]


class RandomSegmenter:
    """As many boundaries as comes, anywhere: the control, as in SuperDialSeg. One seed and session, one result."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        return [self._cut(session.id, len(session.exchanges())) for session in sessions]

    def _cut(self, session: str, count: int) -> list[range]:
        draw = random.Random(f"{self._seed}/{session}")  # noqa: S311  # no secret
        gaps = range(1, count)
        return between({*draw.sample(gaps, draw.randint(0, len(gaps)))}, count) if count else []


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive exchanges of one session that are asked about in one prompt."""

    session: int
    exchanges: range


class LLMSegmenter:
    """Asks `prompt` (inputs guidance, last, dialogue) for all segments of a session at once (SeCom, Figures 6 and 7).

    All sessions go out together. A session longer than the model's context is asked about in parts, and each part's end
    is a segment's end. `rubric` joins the instructions.

    The answer is one object a segment, with its first and last exchange. Exchanges in none of them go to the segment
    before; those in several, to the last that begins before them; such an answer is counted in `repairs`. An answer
    that is no JSON, or that puts more exchanges wrong than right, cannot be used: its part is cut into segments of
    `chunk` exchanges, and `fallbacks` counts it. Both are keyed by the prompt's name.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        prompt: str = "secom/segment",
        rubric: Rubric | None = None,
        chunk: int = 3,
        fallbacks: Counter[str] | None = None,
    ) -> None:
        self._llm = llm
        self._prompt = prompt
        self._guidance = (rubric or Rubric()).text()
        self._chunk = chunk
        self.fallbacks: Counter[str] = Counter() if fallbacks is None else fallbacks
        self.repairs: Counter[str] = Counter()

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        exchanges = [session.exchanges() for session in sessions]
        parts = [_Part(n, run) for n, held in enumerate(exchanges) for run in self._parts(held)]
        asked = [part for part in parts if len(part.exchanges) > 1]  # one exchange is a segment without asking
        prompts = [self._asking(exchanges[part.session], part.exchanges) for part in asked]
        answers = dict(zip(asked, usable(self._llm, prompts, self.fallbacks), strict=True))
        found: list[list[range]] = [[] for _ in sessions]
        for part in parts:
            start = part.exchanges.start
            segments = self._read(answers[part], len(part.exchanges)) if part in answers else [range(1)]
            found[part.session] += [range(start + s.start, start + s.stop) for s in segments]
        return found

    def _parts(self, exchanges: Sequence[Exchange]) -> list[range]:
        """Runs of exchanges that fit a prompt together with an answer that has a segment for each of them."""
        texts = [transcript(exchange.turns()) for exchange in exchanges]
        costs = [size + _NUMBER + _SEGMENT for size in self._llm.count_tokens(texts)] if texts else []
        return [range(run[0], run[-1] + 1) for run in packed(range(len(exchanges)), costs, self._room())]

    def _room(self) -> int:
        bare = render(self._prompt, guidance=self._guidance, last=0, dialogue="")
        used = sum(self._llm.count_tokens([message.content for message in bare.messages]))
        return max(self._llm.context_length - used - bare.max_tokens - _TEMPLATE, self._llm.context_length // 4)

    def _asking(self, exchanges: Sequence[Exchange], run: range) -> Prompt:
        asked = numbered(exchanges[run.start : run.stop])
        form = _form(len(run))
        prompt = render(self._prompt, form=form, guidance=self._guidance, last=len(run) - 1, dialogue=asked)
        return replace(prompt, max_tokens=load(self._prompt).max_tokens + _SEGMENT * len(run))

    def _read(self, given: Completion | None, count: int) -> list[range]:
        pairs = _pairs(given.text, count) if given else []
        wrong = _misplaced(pairs, count)
        if 2 * wrong > count:
            if given:  # that there was none is counted already
                what = f"its answer {given.text!r:.80} puts {wrong} of {count} exchanges in no segment or in several"
                unusable(self._prompt, what, self.fallbacks)
            return even(count, self._chunk)
        if wrong:
            log.warning("%s: %d of %d exchanges were in no segment or in several; mended", self._prompt, wrong, count)
            self.repairs[self._prompt] += 1
        return between({first for first, _ in pairs}, count)


def even(count: int, size: int) -> list[range]:
    """`count` exchanges in segments of `size`."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def between(starts: set[int], count: int) -> list[range]:
    """The segments that begin at `starts` (and at 0), of `count` exchanges; none when there are no exchanges."""
    edges = [*sorted({0, *starts} & {*range(count)}), count]
    return [range(first, end) for first, end in pairwise(edges)]


def numbered(exchanges: Sequence[Exchange]) -> str:
    """Exchanges with their numbers, from 0, and the speakers' names."""
    return "\n\n".join(
        f"[Exchange {place}]\n{transcript(exchange.turns())}" for place, exchange in enumerate(exchanges)
    )


def written(segments: Sequence[range]) -> str:
    """Segments in the form in which they are asked for."""
    return json.dumps({"segments": [{"first": segment.start, "last": segment.stop - 1} for segment in segments]})


def _pairs(text: str, count: int) -> list[tuple[int, int]]:
    """First and last exchange of each segment in an answer, as far as there are such exchanges."""
    match json.loads(text):
        case {"segments": list(items)}:
            return [pair for item in items if (pair := _pair(item)) and 0 <= pair[0] <= pair[1] < count]
    return []


def _pair(item: object) -> tuple[int, int] | None:
    match item:
        case {"first": int(first), "last": int(last)}:
            return first, last
    return None


def _misplaced(pairs: Sequence[tuple[int, int]], count: int) -> int:
    """How many exchanges are in no segment or in several."""
    held = Counter(exchange for first, last in pairs for exchange in range(first, last + 1))
    return sum(held[exchange] != 1 for exchange in range(count))


def _form(count: int) -> JsonSchema:
    exchange = number(0, count - 1)
    return answer(segments={**many(record(first=exchange, last=exchange), count), "minItems": 1})
