"""ReBot: each session becomes one summary, and all summaries are shown.

CREEM's baseline for Conversation Chronicles (section 3.2): a T5-base distilled for it summarises each session's
dialogue, the summaries serve as memory for both speakers without telling them apart, and the reply sees all of them.
The summariser is injected; until such weights are there the backbone serves. Knows nothing of how summaries are made.

Differs from the paper: what the context has no room for is left out from the oldest summary on.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.text.prose import Ask, summaries
from localmem.text.shown import all_that_fit, recalled, statements
from localmem.types import AddUnit, Change, Recall, Session, Turn


class SessionSummarizer(Protocol):
    """Dialogues to summaries of a few sentences; list in, list out, "" for a dialogue that holds nothing.

    `fallbacks` counts the dialogues that it could not summarise, by prompt or model.
    """

    @property
    def fallbacks(self) -> Counter[str]: ...

    def summarize(self, dialogues: Sequence[Sequence[Turn]]) -> list[str]: ...


class LLMSummarizer:
    """The backbone as a SessionSummarizer."""

    def __init__(self, llm: LLM, prompt: str = "rebot/summarize") -> None:
        self._llm = llm
        self._prompt = prompt
        self._fallbacks: Counter[str] = Counter()

    @property
    def fallbacks(self) -> Counter[str]:
        return self._fallbacks

    def summarize(self, dialogues: Sequence[Sequence[Turn]]) -> list[str]:
        return summaries(self._llm, [Ask(self._prompt, turns) for turns in dialogues], self._fallbacks)


class ReBot(Memory):
    """One unit a session: its summary. `fallbacks` counts replies that did not see all of them, and empty summaries."""

    name = "rebot"

    def __init__(self, *, llm: LLM, summarizer: SessionSummarizer, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._summarizer = summarizer
        self._fallbacks: Counter[str] = Counter()

    @property
    def fallbacks(self) -> Counter[str]:
        return self._fallbacks + self._summarizer.fallbacks

    def recall(self, session: Session) -> Recall:
        units = list(self.bank.live())
        return recalled(all_that_fit(self._llm, session, self.response_prompt, units, self._fallbacks))

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        (summary,) = self._summarizer.summarize([session.turns])
        return [AddUnit(unit, unit.learned) for unit in statements(session, [summary] if summary else [], "summary")]
