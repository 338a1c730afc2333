"""All memories: sessions become memory sentences, and every one of them is shown.

Two baselines of the papers. "All memories" (Theanine, section 3.2, Table 1): sentences drawn from each session.
SumMem-MSC (CREEM, section 3.2): a persona sentence, or none, for each utterance, all of them shown; this is
`each="utterance"`. Nothing is searched or removed; "with memory update" is CareCall over all its sentences
(configs/systems/all_memories/updated.yaml). Knows nothing of how sentences are made but the prompts' names.

Differs from the papers: what the context has no room for is left out from the oldest on. SumMem-MSC's own summariser
is a trained model (BART in MSC); here the backbone serves.
"""

import json
from collections import Counter
from itertools import chain
from typing import Literal

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.schemas import answer, many, text
from localmem.llm.structured_output import says, unusable, usable
from localmem.memory import Memory
from localmem.prompts import render
from localmem.text.dialogue import line
from localmem.text.shown import all_that_fit, recalled, statements
from localmem.text.summarize import Summarizer
from localmem.types import AddUnit, Change, Completion, Recall, Session, Turn, Unit

_PERSONA = "all_memories/persona"


class AllMemories(Memory):
    """One unit a sentence, about a session (`summarize`) or an utterance (`llm` and a prompt of its own)."""

    name = "all_memories"

    def __init__(
        self,
        *,
        llm: LLM,
        summarize: Summarizer,
        each: Literal["session", "utterance"],
        longest: int,
        bank: Bank | None = None,
    ) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._summarize = summarize
        self._each = each
        self._form = answer(memories=many(text(longest), 1))
        self._fallbacks: Counter[str] = Counter()

    @property
    def fallbacks(self) -> Counter[str]:
        return self._fallbacks + self._summarize.fallbacks

    def recall(self, session: Session) -> Recall:
        units = list(self.bank.live())
        return recalled(all_that_fit(self._llm, session, self.response_prompt, units, self._fallbacks))

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        held = {unit.key for unit in self.bank.live()}  # an identical sentence is no new memory
        found = self._personas(session) if self._each == "utterance" else self._sentences(session)
        return [AddUnit(unit, unit.learned) for unit in found if unit.key not in held]

    def _sentences(self, session: Session) -> list[Unit]:
        return statements(session, self._summarize(session.turns), "sentence")

    def _personas(self, session: Session) -> list[Unit]:
        """What each utterance tells of its speaker; all utterances are asked about at once."""
        before = chain([""], (line(turn) for turn in session.turns))
        prompts = [
            render(_PERSONA, form=self._form, before=earlier, said=line(turn), speaker=turn.speaker)
            for earlier, turn in zip(before, session.turns, strict=False)
        ]
        answers = usable(self._llm, prompts, self._fallbacks)
        told: dict[str, Turn] = {}
        for turn, prompt, completion in zip(session.turns, prompts, answers, strict=True):
            for sentence in self._read(completion):
                if says(sentence, prompt):
                    told.setdefault(" ".join(sentence.split()), turn)
        return [_persona(session, number, turn, sentence) for number, (sentence, turn) in enumerate(told.items())]

    def _read(self, completion: Completion | None) -> list[str]:
        if completion is None:
            return []
        match json.loads(completion.text):
            case {"memories": list(items)}:
                return [item for item in items if isinstance(item, str)][:1]
        unusable(_PERSONA, f"its answer {completion.text!r:.80} holds no list of memories", self._fallbacks)
        return []


def _persona(session: Session, number: int, turn: Turn, sentence: str) -> Unit:
    return Unit(
        id=f"{session.id}/persona{number}",
        text=sentence,
        key=sentence,
        kind="persona",
        speaker=turn.speaker,
        session=session.id,
        sources=(turn.id,),
        time=turn.time,
        learned=session.turns[-1].time,
    )
