"""The cost of a memory system: its own calls count, replies do not."""

from localmem.experiments.demo import measure_cost
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Meter
from localmem.memory import Memory
from localmem.prompts import render
from localmem.types import AddUnit, Change, Exchange, Recall, RefuseText, Session
from tests.fakes import session, unit


class AskingMemory(Memory):
    """Asks the model once before a reply and once at a session's end; adds a unit after a reply."""

    name = "asking"

    def __init__(self, llm: Meter) -> None:
        super().__init__()
        self._llm = llm

    def recall(self, session: Session) -> Recall:
        self._llm.generate([render("rsum/update", memory="", dialogue=session.turns[-1].text, limit=3)])
        return Recall(text="two words" if self.bank.units else "")

    def observe(self, exchange: Exchange) -> list[Change]:
        assert exchange.reply is not None
        assert exchange.recall is not None
        return [AddUnit(unit(exchange.reply.id), exchange.reply.time)]

    def end_session(self, session: Session) -> list[Change]:
        self._llm.generate([render("rsum/update", memory="", dialogue="all", limit=3)])
        return [RefuseText("(none)", "placeholder", "rsum/update", (), session.turns[-1].time)]


def test_calls_and_tokens() -> None:
    meter = Meter(ScriptedLLM(lambda _: "one two three"))
    cost = measure_cost(
        AskingMemory(meter), meter, [session("a", "b", "c", "d"), session("e", "f", "unanswered", name="s2")]
    )
    assert (cost.turns, cost.sessions, cost.calls) == (3, 2, 5)
    assert cost.output_tokens == 15
    assert cost.recalled_tokens == 4
    assert cost.units == 3
    assert set(cost.prompts) == {"rsum/update"}
    assert cost.refused == {"placeholder": 2}
    assert cost.fallbacks == {}
    assert len(cost.remembered) == 3
    assert cost.per_turn(cost.calls) == 5 / 3
