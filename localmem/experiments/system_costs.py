"""What the memory systems cost: each replays a conversation, and its calls and tokens per turn are counted.

Replies come from the conversation and are not counted: they cost the same with every system.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from localmem import factory
from localmem.benchmark.cost import SystemCost, measure_cost
from localmem.config import Settings
from localmem.experiments.demo import CONVERSATION
from localmem.llm.wrappers import Meter
from localmem.runtime import Runtime
from localmem.store.conversation_files import SpeakerNames, read_sessions

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
