"""Sentences about a speaker as units, and the memories that Keep Me Updated compares with its own (section 5.2.1).

Those are no memory, raw history and gold memory; "memory accumulate" is CareCall without a classifier.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.files import read_json
from localmem.llm.base import LLM
from localmem.llm.structured_output import (
    answer_format,
    boolean,
    count_fallback,
    generate_usable,
    repeats_instructions,
    string,
)
from localmem.memory import Memory
from localmem.prompts import render
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import transcript
from localmem.text.units import (
    UTTERANCE,
    add_units,
    by_time,
    history_budget,
    history_text,
    new_unit,
    newest_units,
    recall_hits,
    utterance_units,
)
from localmem.types import AddUnit, Change, Completion, Hit, Prompt, Recall, RetireUnit, Role, Session, Unit

# The kinds of units that are about one side; they keep the memories of two speakers with one name apart. What people
# add by hand, a note, is about the user.
KINDS: Mapping[Role, tuple[str, ...]] = {"user": ("user_fact", "note"), "assistant": ("assistant_fact",)}


def new_fact(session: Session, role: Role, speaker: str, number: int, text: str) -> Unit:
    """A sentence about the speaker of this role, learned in this session."""
    time = session.turns[-1].time
    return new_unit(session, f"{role}{number}", text, kind=KINDS[role][0], speaker=speaker, time=time)


class FactMemory(Memory):
    """Recalls the `k` sentences nearest to the dialogue (section 4.1, appendix B.3), and shows them in time order.

    A `k` of 0 recalls all of them ("all memories" with memory update, Theanine's baseline).
    The query is the last `query_turns` turns, the newest first: an encoder drops the end of what it has no room for.
    """

    name = "carecall"

    def __init__(self, *, retriever: Retriever, k: int, query_turns: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._k = k
        self._query_turns = query_turns

    def recall(self, session: Session) -> Recall:
        return recall_hits(by_time(self._hits(session)))

    def facts(self, role: Role) -> list[Unit]:
        """The live sentences about this side, oldest first."""
        return [unit for unit in self.bank.live() if unit.kind in KINDS[role]]

    def _hits(self, session: Session) -> list[Hit]:
        if not self._k:
            return [Hit(unit, 0.0) for unit in self.bank.live()]
        newest_first = transcript(reversed(session.turns[-self._query_turns :]))
        return self.search(newest_first, self._k, Scope(now=session.turns[-1].time))


class WithoutMemory(Memory):
    """The reply sees the current dialogue only."""

    name = "carecall"

    def recall(self, session: Session) -> Recall:
        return Recall()

    def end_session(self, session: Session) -> list[Change]:
        return []


class HistoryAccumulate(Memory):
    """All past sessions precede the dialogue, cut from the front to `tokens` (appendix B.2) and to what fits."""

    name = "carecall"

    def __init__(self, *, llm: LLM, tokens: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._tokens = tokens

    def recall(self, session: Session) -> Recall:
        past = [unit for unit in self.bank.live() if unit.kind == UTTERANCE]
        budget = min(self._tokens, history_budget(self._llm, session, self.response_prompt))
        fitting = newest_units(past, budget, self._llm.count_tokens)
        return Recall(text=history_text(fitting), hits=tuple(Hit(unit, 0.0) for unit in fitting))

    def end_session(self, session: Session) -> list[Change]:
        return add_units(utterance_units(session))


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
            raise BadInput(f"the gold memory has no session {session.id!r}; add its sentences, or [] for none")
        target = list(dict.fromkeys(self._gold[session.id]))
        existing = {unit.text: unit for unit in self.facts("user")}
        new = [text for text in target if text not in existing]
        speaker = next((turn.speaker for turn in session.turns if turn.role == "user"), "")
        time = session.turns[-1].time
        obsolete = [unit for text, unit in existing.items() if text not in target]
        return [
            *(AddUnit(new_fact(session, "user", speaker, number, text), time) for number, text in enumerate(new)),
            *(RetireUnit(unit.id, "carecall/gold", "not in the gold memory", time) for unit in obsolete),
        ]


def read_gold(path: Path) -> dict[str, list[str]]:
    """Gold memory from a JSON file {session id: [sentences]}. Raises BadInput for anything else."""
    return read_json(path, TypeAdapter(dict[str, list[str]]), "give JSON, {session id: [sentences]}")


Replaced = tuple[Sequence[str], str]  # the remembered sentences, and the new one that takes their place

_FUSE = "carecall/fuse"
_FUSED = answer_format(loses=boolean(), sentence=string(240))


def fuse(llm: LLM, replaced: Sequence[Replaced], fallbacks: Counter[str]) -> list[str]:
    """For each replacement the sentence to store: a merged one where something would be lost, else the new one.

    FUSION: Keep Me Updated, appendix C.2, names the case and leaves it out. All are asked about at once.
    """
    prompts = [render(_FUSE, form=_FUSED, memories=list(old), sentence=new) for old, new in replaced]
    answers = generate_usable(llm, prompts, fallbacks)
    merged = [
        _merged_sentence(prompt, answer, fallbacks) if answer else ""
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    return [sentence or new for sentence, (_, new) in zip(merged, replaced, strict=True)]


def _merged_sentence(prompt: Prompt, answer: Completion, fallbacks: Counter[str]) -> str:
    """The merged sentence, "" for none."""
    match json.loads(answer.text):
        case {"loses": False}:
            return ""
        case {"loses": True, "sentence": str(sentence)} if not repeats_instructions(
            prompt, merged := " ".join(sentence.split())
        ):
            return merged
    count_fallback(_FUSE, f"its answer {answer.text!r:.80} holds no merged sentence", fallbacks)
    return ""
