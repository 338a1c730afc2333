"""What remembering costs: calls and tokens a turn of each system, over a conversation that is replayed turn by turn.

Receives memories and a meter; knows no system. Replies are taken from the conversation, so only the memory's own work
is counted: recalling before each reply, observing after it, and remembering each session.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localmem.llm.wrappers import Meter, Spent
from localmem.memory import Memory
from localmem.types import Change, Exchange, Session


@dataclass(frozen=True, slots=True)
class Cost:
    """A system's cost over `turns` replies. `shown` are the recalled tokens of all of them; `prompts` is by name."""

    turns: int
    sessions: int
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    shown: int
    units: int
    prompts: dict[str, Spent]

    def a_turn(self, total: int) -> float:
        """A total shared out over the replies."""
        return total / max(self.turns, 1)


def cost(memory: Memory, meter: Meter, sessions: Sequence[Session]) -> Cost:
    """Replays the sessions; `meter` must stand around the LLM that the memory asks, and be new."""
    turns = shown = 0
    for session in sessions:
        for before, exchange in _replies(session):
            recall = memory.recall(before)
            turns += 1
            shown += meter.count_tokens([recall.text])[0]
            _take(memory, memory.observe(replace(exchange, recall=recall)))
        _take(memory, memory.end_session(session))
    spent = meter.spent()
    return Cost(
        turns=turns,
        sessions=len(sessions),
        calls=sum(each.calls for each in spent.values()),
        input_tokens=sum(each.input_tokens for each in spent.values()),
        cached_tokens=sum(each.cached_tokens for each in spent.values()),
        output_tokens=sum(each.output_tokens for each in spent.values()),
        shown=shown,
        units=sum(1 for _ in memory.bank.live()),
        prompts=spent,
    )


def _replies(session: Session) -> list[tuple[Session, Exchange]]:
    """Each answered exchange, with the session as it was when the reply was due."""
    found = []
    heard = 0
    for exchange in session.exchanges():
        heard += len(exchange.turns())
        if exchange.user and exchange.reply:
            found.append((replace(session, turns=session.turns[: heard - 1]), exchange))
    return found


def _take(memory: Memory, changes: Sequence[Change]) -> None:
    if changes:
        memory.apply(changes)
