"""Segmenters: sessions are cut into topical segments, by the backbone in one call or evenly.

Segments are ranges over a session's exchanges. They always cover every exchange once, because an answer names only the
last exchange of each segment (SeCom, section 2.2, eq. 1: p_1 = 0, p_{k+1} = q_k + 1), in an order that its format sets.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from localmem.files import parse, read_yaml, write_atomic
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, count_fallback, generate_usable
from localmem.prompts import load, render
from localmem.text.dialogue import free_tokens, pack, transcript
from localmem.types import Completion, Exchange, JsonSchema, Prompt, Session

_PROMPT = "secom/segment"
_SEGMENT = 5  # tokens of one segment in the answer, at most
_CURE = "a rubric is YAML with items and examples"
_NUMBER = 10  # tokens of an exchange's number and the lines around it, at most


@dataclass(frozen=True, slots=True)
class Example:
    """A badly segmented dialogue: people's segments, the model's, and the model's reflection on the difference."""

    dialogue: str
    right: str
    predicted: str
    reflection: str


@dataclass(frozen=True, slots=True)
class Rubric:
    """Learned criteria for good segments, and representative examples: a YAML file (SeCom, appendix A.1).

    `localmem eval segmentation --learn-rubric` learns one; it can also be written or edited by hand.
    """

    items: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    def text(self) -> str:
        """The text for the prompt; "" for an empty rubric."""
        criteria = ["Criteria:\n" + "\n".join(f"- {item}" for item in self.items)] if self.items else []
        return "\n\n".join([*criteria, *map(_example_text, self.examples)])

    def save(self, path: Path) -> None:
        """Write the file in one step. Raises BadInput."""
        write_atomic(path, yaml.safe_dump(asdict(self), allow_unicode=True, sort_keys=False, width=120))

    @classmethod
    def load(cls, path: Path) -> "Rubric":
        """Read the file. Raises BadInput."""
        return parse(str(path), read_yaml(path, _CURE), TypeAdapter(cls), _CURE)


def _example_text(example: Example) -> str:
    return (
        f"Example:\n{example.dialogue}\n\nRight: {example.right}\nA wrong answer: {example.predicted}\n"
        f"What was wrong: {example.reflection}"
    )


class EvenSegmenter:
    """Segments of `size` exchanges each; the last of a session may be smaller. With size 1, SeCom's turn level."""

    def __init__(self, size: int) -> None:
        self._size = size

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        return [even_segments(len(session.exchanges()), self._size) for session in sessions]


class WholeSegmenter:
    """One segment a session: SeCom's session level."""

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        counts = [len(session.exchanges()) for session in sessions]
        return [[range(count)] if count else [] for count in counts]


class RandomSegmenter:
    """Random boundaries in random number: the control, as in SuperDialSeg. The result depends on seed and session."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        return [self._cut(session.id, len(session.exchanges())) for session in sessions]

    def _cut(self, session: str, count: int) -> list[range]:
        draw = random.Random(f"{self._seed}/{session}")  # noqa: S311  # not used for security
        gaps = range(1, count)
        return segments_between({*draw.sample(gaps, draw.randint(0, len(gaps)))}, count) if count else []


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive exchanges of one session that are asked about in one prompt."""

    session: int
    exchanges: range


class LLMSegmenter:
    """Asks `prompt` (inputs guidance, last, dialogue) for all segments of a session at once (SeCom, Figures 6 and 7).

    All sessions are requested together. A session longer than the model's context is asked about in parts, and each
    part ends a segment. `rubric` is added to the instructions.

    The answer names the last exchange of each segment, in ascending numbers that end with the last of all: its format
    allows nothing else. Where no answer in that format comes back, the part is cut into segments of `chunk` exchanges,
    and `fallbacks` counts it by the prompt's name.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        rubric: Rubric | None = None,
        chunk: int = 3,
        fallbacks: Counter[str] | None = None,
    ) -> None:
        self._llm = llm
        self._guidance = (rubric or Rubric()).text()
        self._chunk = chunk
        self.fallbacks: Counter[str] = Counter() if fallbacks is None else fallbacks

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        dialogues = [session.exchanges() for session in sessions]
        parts = [_Part(n, run) for n, exchanges in enumerate(dialogues) for run in self._runs(exchanges)]
        unclear = [part for part in parts if len(part.exchanges) > 1]  # a single exchange is one segment
        prompts = [self._render(dialogues[part.session], part.exchanges) for part in unclear]
        answers = dict(zip(unclear, generate_usable(self._llm, prompts, self.fallbacks), strict=True))
        segments: list[list[range]] = [[] for _ in sessions]
        for part in parts:
            start = part.exchanges.start
            local = self._read(answers[part], len(part.exchanges)) if part in answers else [range(1)]
            segments[part.session] += [range(start + segment.start, start + segment.stop) for segment in local]
        return segments

    def _runs(self, exchanges: Sequence[Exchange]) -> list[range]:
        """Runs of exchanges that fit a prompt together with an answer that has a segment for each of them."""
        texts = [transcript(exchange.turns()) for exchange in exchanges]
        costs = [size + _NUMBER + _SEGMENT for size in self._llm.count_tokens(texts)] if texts else []
        bare = render(_PROMPT, guidance=self._guidance, last=0, dialogue="")
        room = max(free_tokens(self._llm, bare), self._llm.context_length // 4)
        return [range(run[0], run[-1] + 1) for run in pack(range(len(exchanges)), costs, room)]

    def _render(self, exchanges: Sequence[Exchange], run: range) -> Prompt:
        dialogue = numbered_exchanges(exchanges[run.start : run.stop])
        form = _form(len(run))
        prompt = render(_PROMPT, form=form, guidance=self._guidance, last=len(run) - 1, dialogue=dialogue)
        return replace(prompt, max_tokens=load(_PROMPT).max_tokens + _SEGMENT * len(run))

    def _read(self, answer: Completion | None, count: int) -> list[range]:
        ends = read_ends(answer.text) if answer else None
        if answer and ends is None:  # a missing answer is counted already
            count_fallback(_PROMPT, f"its answer {answer.text!r:.80} names no segments", self.fallbacks)
        return even_segments(count, self._chunk) if ends is None else segments_between({end + 1 for end in ends}, count)


def even_segments(count: int, size: int) -> list[range]:
    """`count` exchanges in segments of `size`."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def segments_between(starts: set[int], count: int) -> list[range]:
    """The segments that begin at `starts` (and at 0), of `count` exchanges; none when there are no exchanges."""
    edges = [*sorted({0, *starts} & {*range(count)}), count]
    return [range(first, end) for first, end in pairwise(edges)]


def numbered_exchanges(exchanges: Sequence[Exchange]) -> str:
    """Exchanges with their numbers, from 0, and the speakers' names."""
    return "\n\n".join(
        f"[Exchange {place}]\n{transcript(exchange.turns())}" for place, exchange in enumerate(exchanges)
    )


def segments_json(segments: Sequence[range]) -> str:
    """Segments in the format of the LLM's answer."""
    return json.dumps({"ends": " ".join(str(segment.stop - 1) for segment in segments)})


def read_ends(answer: str) -> list[int] | None:
    """The last exchange of each segment in an answer; None if it is not a segmentation."""
    try:
        return [int(number) for number in json.loads(answer)["ends"].split()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _form(count: int) -> JsonSchema:
    """Any of the numbers before the last, in their order, and the last: a grammar without overlaps or gaps."""
    before = "".join(f"({number} )?" for number in range(count - 1))
    return answer_format(ends={"type": "string", "pattern": f"^{before}{count - 1}$"})
