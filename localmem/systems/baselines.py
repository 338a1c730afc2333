"""The baselines that write nothing about what was said but, at most, sentences: no memory, full history, retrieval.

- none: the model answers from the current session alone. The control that every comparison needs.
- full_history: all past sessions, word for word, precede the dialogue (the "full history" and "all dialogue history"
  baselines: SeCom, section 3; Theanine, Table 1; Recursively Summarizing's vanilla LLM, section 4).

Plain retrieval: units of past dialogue are indexed, and those nearest to the user's turn are recalled. Four baselines
that differ in what a unit is:

- exchange_retrieval: a user turn and its reply (SeCom, section 3, "turn-level memory"). Nothing is lost or invented,
  which is why it is the default for the smallest backbones.
- utterance_retrieval: a single turn, the vanilla LLM with retrieval of Recursively Summarizing (section 4, baselines:
  BM25 or DPR over past utterances; section 6.4: top 5).
- session_retrieval: a whole session (SeCom, section 3), under a token budget: 4k tokens on LoCoMo, about 5 sessions
  (Table 1).
- memory_retrieval: a sentence that the backbone writes about the session (Theanine, section 4.1 and appendix: top
  k = 6). The same with memory update is CareCall with that k (variant memory_retrieval/updated).

Only memory_retrieval calls the LLM to build its memory. BM25 or dense search is the choice of the injected retriever.

Differs from the papers:

- full_history: they use models that hold all of their data; here, what the context has no room for is left out from
  the oldest utterance on.
- The dense encoder is whatever is installed, not DPR; hits are shown in time order; a session budget that the model's
  context has no room for shrinks to what it has. Session keys are not compressed (SeCom's own module does that), and a
  dense encoder reads only the beginning of a long session.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate
from localmem.llm.base import LLM
from localmem.llm.structured_output import count_fallback
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.summaries.summarize import Summarizer
from localmem.systems import NEVER, Options, Parts, System
from localmem.text.dialogue import (
    add_units,
    by_time,
    count_fitting,
    exchange_units,
    history_budget,
    history_text,
    newest_units,
    recall_hits,
    session_units,
    statement_units,
    utterance_units,
)
from localmem.types import Change, Hit, Recall, Session, Unit

UnitBuilder = Callable[[Session], Sequence[Unit]]


class NoMemory(Memory):
    """Recalls nothing and keeps nothing."""

    name = "none"
    response_prompt = "none/respond"

    def recall(self, session: Session) -> Recall:
        return Recall()

    def end_session(self, session: Session) -> list[Change]:
        return []


class FullHistory(Memory):
    """One unit a turn; the newest that fit are recalled. `fallbacks` counts the replies that did not see all."""

    name = "full_history"

    def __init__(self, *, llm: LLM, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = llm

    def recall(self, session: Session) -> Recall:
        past = list(self.bank.live())
        fitting = newest_units(past, history_budget(self._llm, session, self.response_prompt), self._llm.count_tokens)
        if len(fitting) < len(past):
            count_fallback(self.response_prompt, f"the newest {len(fitting)} of {len(past)} turns fit", self.fallbacks)
        return Recall(text=history_text(fitting), hits=tuple(Hit(unit, 0.0) for unit in fitting))

    def end_session(self, session: Session) -> list[Change]:
        return add_units(utterance_units(session))


class RetrievalOptions(Options):
    """How many units are recalled."""

    k: PositiveInt


class SessionOptions(RetrievalOptions):
    """How many sessions are recalled, and how many tokens they may hold together."""

    tokens: PositiveInt


class RetrievalBaseline(Memory):
    """The units that `build_units` makes of each session; the `k` nearest are recalled and shown in time order."""

    def __init__(
        self, name: str, build_units: UnitBuilder, retriever: Retriever, *, k: int, bank: Bank | None = None
    ) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self.name = name
        self._build_units = build_units
        self._k = k

    def recall(self, session: Session) -> Recall:
        query = session.turns[-1]
        hits = self.search(query.text, self._k, Scope(now=query.time))
        return recall_hits(by_time(self._select(session, hits)))

    def end_session(self, session: Session) -> list[Change]:
        return add_units(self._build_units(session)) if session.turns else []

    def _select(self, session: Session, hits: Sequence[Hit]) -> Sequence[Hit]:
        return hits


class SessionRetrieval(RetrievalBaseline):
    """One unit a session; of the `k` nearest, those are shown that hold at most `tokens` together.

    The nearest is shown whatever its length; the backend's rule for long prompts then applies to it. `fallbacks` counts
    the replies for which that was so.
    """

    def __init__(self, parts: Parts, options: SessionOptions, bank: Bank | None = None) -> None:
        super().__init__("session_retrieval", session_units, parts.new_retriever(), k=options.k, bank=bank)
        self._llm = parts.llm
        self._tokens = options.tokens

    def _select(self, session: Session, hits: Sequence[Hit]) -> Sequence[Hit]:
        budget = min(self._tokens, history_budget(self._llm, session, self.response_prompt))
        fitting = count_fitting([hit.unit.text for hit in hits], budget, self._llm.count_tokens)
        if hits and not fitting:
            reason = f"the nearest session holds more than {budget} tokens"
            count_fallback(self.response_prompt, reason, self.fallbacks)
        return hits[: max(fitting, 1)]


class MemoryRetrieval(RetrievalBaseline):
    """One unit a sentence of the session's summary; a sentence that is remembered already is not added again."""

    def __init__(self, parts: Parts, options: RetrievalOptions, bank: Bank | None = None) -> None:
        super().__init__("memory_retrieval", exchange_units, parts.new_retriever(), k=options.k, bank=bank)
        self._summarize = Summarizer(parts.llm, fallbacks=self.fallbacks)

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        gate = Gate(session.turns, self.fallbacks, (unit.key for unit in self.bank.live()))
        units = statement_units(session, self._summarize(session.turns, gate), "sentence", prefix="m")
        return [*add_units(units), *gate.refusals]


def exchange_retrieval(retriever: Retriever, *, k: int = 3, bank: Bank | None = None) -> RetrievalBaseline:
    """One unit an exchange."""
    return RetrievalBaseline("exchange_retrieval", exchange_units, retriever, k=k, bank=bank)


def utterance_retrieval(retriever: Retriever, *, k: int, bank: Bank | None = None) -> RetrievalBaseline:
    """One unit a turn."""
    return RetrievalBaseline("utterance_retrieval", utterance_units, retriever, k=k, bank=bank)


SYSTEMS: tuple[System[Any], ...] = (
    System("none", Options, lambda _parts, _options, bank: NoMemory(bank=bank), "nothing", NEVER),
    System(
        "full_history",
        Options,
        lambda parts, _options, bank: FullHistory(llm=parts.llm, bank=bank),
        "all past sessions word for word",
        NEVER,
    ),
    System(
        "utterance_retrieval",
        RetrievalOptions,
        lambda parts, options, bank: utterance_retrieval(parts.new_retriever(), k=options.k, bank=bank),
        "each turn as it was said",
        NEVER,
    ),
    System(
        "exchange_retrieval",
        RetrievalOptions,
        lambda parts, options, bank: exchange_retrieval(parts.new_retriever(), k=options.k, bank=bank),
        "the exchanges as they were said",
        NEVER,
        context_turns=1,
    ),
    System("session_retrieval", SessionOptions, SessionRetrieval, "whole sessions as they were held", NEVER),
    System(
        "memory_retrieval",
        RetrievalOptions,
        MemoryRetrieval,
        "sentences drawn from each session",
        "at each session's end",
    ),
)
