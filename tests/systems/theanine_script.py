"""A scripted LLM for the tests of Theanine: the events of dialogues, how they relate, and the prompts sent."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import frexp

from localmem.bank import Bank
from localmem.config import system_options
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Wrapper
from localmem.memory import Memory
from localmem.summaries.summarize import Summarizer
from localmem.systems import read_options
from localmem.systems.theanine import Theanine, TheanineOptions
from localmem.systems.theanine.graph import Graph, _oldest, _postorder, _ways
from localmem.systems.theanine.link import OTHER
from localmem.types import AddLink, Change, Choice, Completion, Link, Prompt, Session
from tests.fakes import START, WordRetriever, obedient


def make(bank: Bank | None = None, llm: LLM | None = None, **options: object) -> Memory:
    """The system with its shipped options, over words instead of vectors."""
    llm = llm or ScriptedLLM(obedient)
    return Theanine(
        llm=llm,
        retriever=WordRetriever(),
        summarize=Summarizer(llm, prompt="theanine/summarize"),
        options=read_options(TheanineOptions, system_options("theanine", options)),
        bank=bank,
    )


def text_of(prompt: Prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


@dataclass
class TheanineScript:
    """`events` gives a dialogue's events by a word in it, `relations` a label by the two events, else "None".

    `prompts` records every prompt.
    """

    events: Mapping[str, Sequence[str]] = field(default_factory=dict)
    relations: Mapping[tuple[str, str], str] = field(default_factory=dict)
    refined: str = ""
    prompts: list[Prompt] = field(default_factory=list)

    def __call__(self, prompt: Prompt) -> str:
        self.prompts.append(prompt)
        match prompt.name:
            case "theanine/summarize":
                return json.dumps({"memories": self._events(prompt.messages[-1].content)})
            case "theanine/link":
                return self._label(prompt)
            case "theanine/explain":
                return f"They go together: {pair_of(prompt)[1]}"
            case "theanine/refine":
                return self.refined
            case _:
                return "I see."

    def _events(self, dialogue: str) -> list[str]:
        return next((list(events) for word, events in self.events.items() if word in dialogue), [])

    def _label(self, prompt: Prompt) -> str:
        assert isinstance(prompt.format, Choice)
        label = self.relations.get(pair_of(prompt), "None")
        return label if label in prompt.format.options else OTHER

    def prompts_of(self, name: str) -> list[Prompt]:
        return [prompt for prompt in self.prompts if prompt.name == name]


def pair_of(prompt: Prompt) -> tuple[str, str]:
    """The two events a linking prompt asks about."""
    first, second = re.findall(r"^Event [AB], [^:]+: (.*)$", prompt.messages[-1].content, re.MULTILINE)[-2:]
    return first, second


def days(number: int) -> datetime:
    return START + timedelta(days=7 * number)


def live(memory: Memory, *sessions: Session) -> list[Change]:
    applied: list[Change] = []
    for session in sessions:
        changes = memory.end_session(session)
        memory.apply(changes)
        applied += changes
    return applied


def links_of(changes: Sequence[Change]) -> list[Link]:
    return [change.link for change in changes if isinstance(change, AddLink)]


class BatchRecorder(Wrapper):
    """Records each list of prompts sent together."""

    def __init__(self, inner: LLM) -> None:
        super().__init__(inner)
        self.batches: list[list[Prompt]] = []

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.batches.append(list(prompts))
        return self.inner.generate(prompts)


def count_paths(graph: Graph, hit: int) -> tuple[float, int]:
    """The number of timelines that `draw_path` chooses from, as mantissa and exponent."""
    earlier = _postorder(graph.before, hit)
    to_hit = _ways(graph.before, earlier, _oldest(graph, earlier))[hit]
    onward = _ways(graph.after, _postorder(graph.after, hit), None)[hit]
    mantissa, shift = frexp(to_hit[0] * onward[0])
    return mantissa, to_hit[1] + onward[1] + shift
