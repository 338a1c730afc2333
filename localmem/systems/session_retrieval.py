"""Session retrieval: whole past sessions are the memory; those nearest to what was just said are recalled.

Session-level memory as SeCom's baseline has it (section 3: each entire session is a unit). Its budget on LoCoMo is 4k
tokens, about 5 sessions (Table 1). Building it takes no LLM call. Knows nothing of how the index searches.

Differs from the paper: a budget that the model's context has no room for shrinks to what it has. Keys are not
compressed here; SeCom's own module builds session-level memory with compression. A dense encoder reads as much of a
session as it can hold and no more, so that a long one is found by its beginning.
"""

from collections import Counter

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.structured_output import unusable
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated
from localmem.text.history import room
from localmem.text.tokens import within
from localmem.text.units import whole
from localmem.types import AddUnit, Change, Hit, Recall, Session


class SessionRetrieval(Memory):
    """One unit a session; of the `k` nearest those are shown, in time order, that hold at most `tokens` together.

    The nearest is shown whatever it holds; the backend's rule for long prompts then applies to it. `fallbacks` counts
    the replies for which that was so.
    """

    name = "session_retrieval"

    def __init__(self, *, llm: LLM, retriever: Retriever, k: int, tokens: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._llm = llm
        self._k = k
        self._tokens = tokens
        self.fallbacks: Counter[str] = Counter()

    def recall(self, session: Session) -> Recall:
        asked = session.turns[-1]
        found = self.search(asked.text, self._k, Scope(now=asked.time))
        kept = found[: self._fitting(session, found)]
        hits = tuple(sorted(kept, key=lambda hit: hit.unit.time))
        return Recall(text=dated(hit.unit for hit in hits), hits=hits)

    def end_session(self, session: Session) -> list[Change]:
        return [AddUnit(unit, unit.learned) for unit in whole(session)]

    def _fitting(self, session: Session, found: list[Hit]) -> int:
        budget = min(self._tokens, room(self._llm, session, self.response_prompt))
        fitting = within([hit.unit.text for hit in found], budget, self._llm.count_tokens)
        if found and not fitting:
            unusable(self.response_prompt, f"the nearest session holds more than {budget} tokens", self.fallbacks)
        return max(fitting, 1)
