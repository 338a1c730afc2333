"""Full history: all past sessions, word for word, stand ahead of the dialogue.

The "full history" and "all dialogue history" baselines (SeCom, section 3; Theanine, Table 1; Recursively Summarizing's
vanilla LLM, section 4). Nothing is summarised or searched. What the context has no room for is left out from the oldest
utterance on. Knows nothing of models but how much they can read.

Differs from the papers: the rule for what does not fit is ours, for they use models that hold all of their data.
"""

from collections import Counter

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.structured_output import unusable
from localmem.memory import Memory
from localmem.text.history import newest, room, utterances, written
from localmem.types import AddUnit, Change, Hit, Recall, Session


class FullHistory(Memory):
    """One unit a turn; the newest that fit are recalled. `fallbacks` counts the replies that did not see all."""

    name = "full_history"

    def __init__(self, *, llm: LLM, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self.fallbacks: Counter[str] = Counter()

    def recall(self, session: Session) -> Recall:
        said = list(self.bank.live())
        shown = newest(said, room(self._llm, session, self.response_prompt), self._llm.count_tokens)
        if len(shown) < len(said):
            unusable(self.response_prompt, f"the newest {len(shown)} of {len(said)} turns fit", self.fallbacks)
        return Recall(text=written(shown), hits=tuple(Hit(unit, 0.0) for unit in shown))

    def end_session(self, session: Session) -> list[Change]:
        return [AddUnit(unit, unit.learned) for unit in utterances(session)]
