"""Full history: all past sessions, word for word, precede the dialogue.

The "full history" and "all dialogue history" baselines (SeCom, section 3; Theanine, Table 1; Recursively Summarizing's
vanilla LLM, section 4). Nothing is summarised or searched.

Differs from the papers: they use models that hold all of their data; here, what the context has no room for is left out
from the oldest utterance on.
"""

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.structured_output import count_fallback
from localmem.memory import Memory
from localmem.systems import Options, System
from localmem.text.units import add_units, history_budget, history_text, newest_units, utterance_units
from localmem.types import Change, Hit, Recall, Session


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


SYSTEM = System(
    "full_history",
    Options,
    lambda parts, _options, bank: FullHistory(llm=parts.llm, bank=bank),
    "all past sessions word for word",
    "never",
)
