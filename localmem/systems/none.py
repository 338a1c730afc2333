"""No memory: the model answers from the current session alone. The control that every comparison needs."""

from localmem.memory import Memory
from localmem.systems import Options, System
from localmem.types import Change, Recall, Session


class NoMemory(Memory):
    """Recalls nothing and keeps nothing."""

    name = "none"
    response_prompt = "none/respond"

    def recall(self, session: Session) -> Recall:
        return Recall()

    def end_session(self, session: Session) -> list[Change]:
        return []


SYSTEM = System("none", Options, lambda _parts, _options, bank: NoMemory(bank=bank), "nothing", "never")
