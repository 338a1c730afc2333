"""LLM-Rsum: memory is one text, written anew at the end of every session from itself and the session.

Recursively Summarizing (section 3.2): M_i = LLM(H_i, M_{i-1}), at most 20 sentences about both speakers, starting from
nothing (eq. 2, Figure 12); the reply sees the dialogue and M (eq. 3). Temperature 0 (section 4). Knows nothing of how
the text is stored.

Differs from the paper: a session longer than the model's context is read in parts, each updating the memory in turn,
and the limit is enforced on what comes back instead of being only asked for.
"""

import logging

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.text.dialogue import parts, transcript
from localmem.text.parse import sentences
from localmem.types import Change, Recall, Session, SetNote

log = logging.getLogger(__name__)

NOTE = "summary"


class RecursiveSummary(Memory):
    """One note, `limit` sentences long at most."""

    name = "rsum"
    response_prompt = "rsum/respond"

    def __init__(self, *, llm: LLM, bank: Bank | None = None, limit: int = 20) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._limit = limit

    def recall(self, session: Session) -> Recall:
        return Recall(text=self.bank.notes.get(NOTE, ""))

    def end_session(self, session: Session) -> list[Change]:
        memory = old = self.bank.notes.get(NOTE, "")
        for run in parts(session.turns, self._room(old), self._llm.count_tokens):
            memory = self._update(memory, transcript(run))
        return [SetNote(NOTE, memory, session.turns[-1].time)] if memory != old else []

    def _update(self, memory: str, dialogue: str) -> str:
        prompt = render("rsum/update", memory=memory, dialogue=dialogue, limit=self._limit)
        (completion,) = self._llm.generate([prompt])
        written = sentences(completion.text)
        if completion.finish == "length":
            written = written[:-1] or written  # the last sentence was cut in the middle
        if not written:
            log.warning("rsum/update came back empty; the memory stays as it was")
            return memory
        if len(written) > self._limit:
            log.warning("rsum/update wrote %d sentences; the first %d are kept", len(written), self._limit)
        return "\n".join(written[: self._limit])

    def _room(self, memory: str) -> int:
        """Tokens of dialogue that fit beside the old memory, the instructions and the answer."""
        file = load("rsum/update")
        (held,) = self._llm.count_tokens([memory])
        left = self._llm.context_length - held - 2 * file.max_tokens  # the answer, and as much again for instructions
        return max(left, self._llm.context_length // 4)
