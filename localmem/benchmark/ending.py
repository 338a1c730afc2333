"""What it gains to ask together: a Theanine session's end with all its pairs at once, and with one call after another.

Receives an LLM and a way to make an index; knows no backend. All ways make the same calls, so their times compare.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.llm.base import LLM
from localmem.llm.wrappers import Meter, Wrapper
from localmem.retrieval.base import Retriever
from localmem.systems.theanine import Theanine
from localmem.systems.theanine.dialogues import note_name
from localmem.systems.theanine.options import Options
from localmem.text.dialogue import transcript
from localmem.text.shown import statements
from localmem.text.summarize import Summarizer
from localmem.types import AddUnit, Change, Completion, Prompt, Session, SetNote, Turn

_APART = timedelta(days=400)  # between two runs: their dates differ, so no run finds the other's prompts in a cache


@dataclass(frozen=True, slots=True)
class Ending:
    """One session's end. Tokens are of all its prompts together; `cached` were found in the prefix cache.

    Of `seconds`, `summary_seconds` went to the one call that summarises, which no batch makes shorter.
    """

    seconds: float
    summary_seconds: float
    calls: int
    input_tokens: int
    cached_tokens: int
    links: int

    @property
    def cached_share(self) -> float:
        """Of the prompts' tokens, those that were not computed anew."""
        return self.cached_tokens / max(self.input_tokens, 1)


class OneByOne(Wrapper):
    """The same LLM, asked for one answer at a time."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [self.inner.generate([self._asked(prompt)])[0] for prompt in prompts]

    def _asked(self, prompt: Prompt) -> Prompt:
        return prompt


class Alone(OneByOne):
    """One answer at a time, and each call finds an empty prefix cache: vLLM keeps what has another salt apart."""

    def _asked(self, prompt: Prompt) -> Prompt:
        return replace(prompt, extra={**prompt.extra, "cache_salt": secrets.token_hex(8)})


WAYS: Mapping[str, Callable[[LLM], LLM]] = {"together": lambda llm: llm, "one by one": OneByOne, "alone": Alone}


def ending(
    llm: LLM,
    new_retriever: Callable[[], Retriever],
    options: Options,
    sessions: Sequence[Session],
    *,
    memories: int,
    way: str,
    run: int,
) -> Ending:
    """Ends the last of `sessions` with `memories` new ones, over a bank of all the earlier ones.

    The LLM is asked to summarise as ever, and its answer is set aside: the first `memories` user turns stand for the
    sentences, so that there are as many pairs whatever the model writes. `run` moves the dates: see above. Raises
    BadInput for a conversation too short.
    """
    moved = [_moved(session, run * _APART) for session in sessions]
    *past, last = moved
    sentences = _said(last)[:memories]
    if len(sentences) < memories or sum(len(_said(session)) for session in past) < options.j:
        raise BadInput(f"the last session has {len(sentences)} user turns; give a conversation with {memories} or more")
    meter = Meter(WAYS[way](llm))
    summarizer = Summarizer(meter, prompt="theanine/summarize")

    summaries: list[float] = []

    def summarize(turns: Sequence[Turn]) -> list[str]:
        start = time.perf_counter()
        summarizer(turns)
        summaries.append(time.perf_counter() - start)
        return sentences

    memory = Theanine(
        llm=meter,
        retriever=new_retriever(),
        summarize=summarize,
        options=options,
        bank=Bank().apply([change for session in past for change in _remembered(session)]),
    )
    memory.search(sentences[0], 1)  # the index and the encoder are there before the clock starts
    began = time.perf_counter()
    changes = memory.end_session(last)
    seconds = time.perf_counter() - began
    spent = meter.spent().values()
    return Ending(
        seconds=seconds,
        summary_seconds=sum(summaries),
        calls=sum(each.calls for each in spent),
        input_tokens=sum(each.input_tokens for each in spent),
        cached_tokens=sum(each.cached_tokens for each in spent),
        links=len(changes) - memories - 1,
    )


def _said(session: Session) -> list[str]:
    return [turn.text for turn in session.turns if turn.role == "user"]


def _remembered(session: Session) -> list[Change]:
    """The bank's changes for a past session whose user turns are its events."""
    units = statements(session, _said(session), "sentence")
    now = session.turns[-1].time
    dialogue = SetNote(note_name(session.id), transcript(session.turns), now)
    return [dialogue, *(AddUnit(unit, now) for unit in units)]


def _moved(session: Session, by: timedelta) -> Session:
    return replace(session, turns=tuple(replace(turn, time=turn.time + by) for turn in session.turns))
