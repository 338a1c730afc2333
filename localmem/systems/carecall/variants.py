"""What Keep Me Updated compares its memory with (section 5.2.1): no memory, raw history, and memory as given.

"Memory accumulate" is CareCall without a classifier. Knows nothing of operations.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.files import read_json
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.retrieval.base import Retriever
from localmem.systems.carecall.facts import FactMemory, fact
from localmem.text.units import UTTERANCE, history_budget, history_text, newest_units, utterance_units
from localmem.types import AddUnit, Change, Hit, Recall, RetireUnit, Session


def read_gold(path: Path) -> dict[str, list[str]]:
    """Gold memory out of a JSON file {session id: [sentences]}. Raises BadInput for anything else."""
    return read_json(path, TypeAdapter(dict[str, list[str]]), "give JSON, {session id: [sentences]}")


class WithoutMemory(Memory):
    """The reply sees the current dialogue only."""

    name = "carecall"

    def recall(self, session: Session) -> Recall:
        return Recall()

    def end_session(self, session: Session) -> list[Change]:
        return []


class HistoryAccumulate(Memory):
    """All past sessions stand ahead of the dialogue, cut from the front to `tokens` (appendix B.2) and to what fits."""

    name = "carecall"

    def __init__(self, *, llm: LLM, tokens: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._tokens = tokens

    def recall(self, session: Session) -> Recall:
        said = [unit for unit in self.bank.live() if unit.kind == UTTERANCE]
        budget = min(self._tokens, history_budget(self._llm, session, self.response_prompt))
        shown = newest_units(said, budget, self._llm.count_tokens)
        return Recall(text=history_text(shown), hits=tuple(Hit(unit, 0.0) for unit in shown))

    def end_session(self, session: Session) -> list[Change]:
        return [AddUnit(unit, unit.learned) for unit in utterance_units(session)]


class GoldMemory(FactMemory):
    """After each session the memory is what `gold` holds for its id: the upper limit of memory management."""

    def __init__(
        self,
        *,
        retriever: Retriever,
        gold: Mapping[str, Sequence[str]],
        k: int,
        query_turns: int,
        bank: Bank | None = None,
    ) -> None:
        super().__init__(retriever=retriever, k=k, query_turns=query_turns, bank=bank)
        self._gold = gold

    def end_session(self, session: Session) -> list[Change]:
        """Raises BadInput for a session that has no gold memory."""
        if not session.turns:
            return []
        if session.id not in self._gold:
            raise BadInput(f"there is no gold memory of session {session.id!r}; give its sentences, or [] for none")
        wanted = list(dict.fromkeys(self._gold[session.id]))
        held = {unit.text: unit for unit in self.facts("user")}
        new = [text for text in wanted if text not in held]
        speaker = next((turn.speaker for turn in session.turns if turn.role == "user"), "")
        time = session.turns[-1].time
        gone = [unit for text, unit in held.items() if text not in wanted]
        return [
            *(AddUnit(fact(session, "user", speaker, number, text), time) for number, text in enumerate(new)),
            *(RetireUnit(unit.id, "carecall/gold", "not in the gold memory", time) for unit in gone),
        ]


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
