"""What the memory systems cost: each replays a conversation turn by turn, and its calls and tokens are counted.

Replies come from the conversation, so only the memory's own work counts: recalling before each reply, observing after
it, and remembering each session.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from localmem import factory
from localmem.config import Settings
from localmem.experiments.demo import CONVERSATION
from localmem.llm.wrappers import Meter, PromptUsage
from localmem.memory import Memory
from localmem.runtime import Runtime
from localmem.store.conversation_files import SpeakerNames, read_sessions
from localmem.types import Exchange, Session


@dataclass(frozen=True, slots=True)
class SystemCost:
    """Totals over `turns` replies. `recalled_tokens` is the memory text in their prompts; `prompts` is by name."""

    turns: int
    sessions: int
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    recalled_tokens: int
    units: int
    prompts: dict[str, PromptUsage]

    def per_turn(self, total: int) -> float:
        """A total divided by the number of replies."""
        return total / max(self.turns, 1)


def measure_cost(memory: Memory, meter: Meter, sessions: Sequence[Session]) -> SystemCost:
    """Replay the sessions. `meter` must be new and wrap the LLM that the memory uses."""
    turns = recalled_tokens = 0
    for session in sessions:
        for dialogue, exchange in _answered_exchanges(session):
            recall = memory.recall(dialogue)
            turns += 1
            recalled_tokens += meter.count_tokens([recall.text])[0]
            memory.apply(memory.observe(replace(exchange, recall=recall)))
        memory.apply(memory.end_session(session))
    usage = meter.usage()
    return SystemCost(
        turns=turns,
        sessions=len(sessions),
        calls=sum(each.calls for each in usage.values()),
        input_tokens=sum(each.input_tokens for each in usage.values()),
        cached_tokens=sum(each.cached_tokens for each in usage.values()),
        output_tokens=sum(each.output_tokens for each in usage.values()),
        recalled_tokens=recalled_tokens,
        units=sum(1 for _ in memory.bank.live()),
        prompts=usage,
    )


def _answered_exchanges(session: Session) -> list[tuple[Session, Exchange]]:
    pairs = []
    turns = 0
    for exchange in session.exchanges():
        turns += len(exchange.turns())
        if exchange.user and exchange.reply:
            pairs.append((replace(session, turns=session.turns[: turns - 1]), exchange))
    return pairs


Track = Callable[[Iterable[str]], Iterable[str]]


def measure_systems(
    settings: Settings,
    names: Iterable[str],
    *,
    conversation: Path | None = None,
    notify: Callable[[str], None] = lambda _line: None,
    track: Track = lambda names: names,
) -> dict[str, SystemCost]:
    """The cost of each named system over one conversation (JSONL of sessions; default: the demo's).

    All use one backbone and one encoder. `track` may wrap the iteration over the names with a progress bar.
    """
    sessions = read_sessions(conversation or CONVERSATION, SpeakerNames())
    costs: dict[str, SystemCost] = {}
    with tempfile.TemporaryDirectory(prefix="localmem-systems-") as folder:
        settings = settings.model_copy(update={"data": Path(folder), "database": None})
        with Runtime(settings, progress=notify) as runtime:
            for name in track(names):
                meter = Meter(runtime.llm.inner)
                context_turns = factory.SYSTEMS[name].context_turns
                index = partial(factory.retriever, settings, runtime.encoder, context_turns=context_turns)
                options = own_options(settings, name)
                system_settings = settings.model_copy(update={"system": name, "options": options})
                memory = factory.memory(system_settings, factory.Parts(meter, index))
                costs[name] = measure_cost(memory, meter, sessions)
    return costs


def own_options(settings: Settings, name: str) -> Mapping[str, object]:
    """The options that the settings give this system: they belong to the system that the settings name."""
    return settings.options if settings.system == name else {}
