"""What batching gains: the end of a Theanine session with all its calls together, and one at a time. Prints JSON.

All ways make the same calls to the configured backbone, on dates that no earlier run used: `together`; `one by one`,
where a call finds in the prefix cache what the previous one left; `uncached`, where it finds nothing (vLLM only).
"""

import argparse
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median

from localmem import factory
from localmem.bank import Bank
from localmem.config import load_settings, system_options
from localmem.grounding.gate import Gate
from localmem.llm.base import LLM
from localmem.llm.wrappers import Meter, Wrapper
from localmem.reporting.provenance import machine, versions
from localmem.resources import resource
from localmem.retrieval.base import Retriever
from localmem.runtime import Runtime
from localmem.summaries.summarize import Summarizer
from localmem.systems import read_options
from localmem.systems.theanine import Theanine, TheanineOptions
from localmem.systems.theanine.link import note_name
from localmem.text.dialogue import add_units, statement_units, transcript
from localmem.transfer import read_sessions
from localmem.types import Change, Completion, Prompt, Session, SetNote, Turn

_APART = timedelta(days=400)  # between two runs, so that no run finds another's prompts in the prefix cache


class OneByOne(Wrapper):
    """Sends one prompt at a time."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [self.inner.generate([self._prepare(prompt)])[0] for prompt in prompts]

    def _prepare(self, prompt: Prompt) -> Prompt:
        return prompt


class Uncached(OneByOne):
    """One prompt at a time, each with a cache salt of its own."""

    def _prepare(self, prompt: Prompt) -> Prompt:
        return replace(prompt, extra={**prompt.extra, "cache_salt": secrets.token_hex(8)})


WAYS: Mapping[str, Callable[[LLM], LLM]] = {"together": lambda llm: llm, "one by one": OneByOne, "uncached": Uncached}


def end_session(
    llm: LLM, retriever: Retriever, options: TheanineOptions, sessions: Sequence[Session], memories: int, run: int
) -> dict[str, float]:
    """Times the end of the last session over a bank of the earlier ones.

    The summary is requested and then replaced by the first `memories` user turns, so the number of pairs does not
    depend on the model.
    """
    *past, last = [_shift(session, run * _APART) for session in sessions]
    meter = Meter(llm)
    summarizer, summary_times = Summarizer(meter, prompt="theanine/summarize"), list[float]()

    def summarize(turns: Sequence[Turn], gate: Gate) -> list[str]:
        start = time.perf_counter()
        summarizer(turns, gate)
        summary_times.append(time.perf_counter() - start)
        return _user_texts(last)[:memories]

    bank = Bank().apply([change for session in past for change in _changes(session)])
    memory = Theanine(llm=meter, retriever=retriever, summarize=summarize, options=options, bank=bank)
    memory.search("warm up", 1)  # loads index and encoder before the clock starts
    start = time.perf_counter()
    changes = memory.end_session(last)
    seconds = time.perf_counter() - start
    spent = list(meter.usage().values())
    tokens = sum(each.input_tokens for each in spent)
    return {
        "seconds": seconds,
        "summary_seconds": sum(summary_times),
        "calls": sum(each.calls for each in spent),
        "input_tokens": tokens,
        "cached_share": sum(each.cached_tokens for each in spent) / max(tokens, 1),
        "links": len(changes) - memories - 1,
    }


def measure(memories: int, repeats: int) -> dict[str, object]:
    """All ways in turn, `repeats` times, on the settings' backbone; the first run of all only warms up."""
    settings = load_settings()
    sessions = read_sessions(resource("configs/demo/conversation.jsonl"))
    options = read_options(TheanineOptions, system_options("theanine", {}))
    ways = list(WAYS) if factory.wants_server(settings) else ["together", "one by one"]
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="localmem-session-end-") as folder:
        settings = settings.model_copy(update={"data": Path(folder), "database": None})
        with Runtime(settings) as runtime:
            for run in range(len(ways) * repeats + 1):
                way = ways[run % len(ways)]
                retriever = factory.retriever(settings, runtime.encoder)
                result = end_session(WAYS[way](runtime.llm.inner), retriever, options, sessions, memories, run)
                if run:
                    runs[way].append(result)
    seconds = {way: median(run["seconds"] for run in results) for way, results in runs.items()}
    return {
        "together_of": {way: round(seconds["together"] / seconds[way], 3) for way in runs},
        "seconds": seconds,
        "runs": runs,
        "model": settings.model,
        "machine": machine(Path()),
        "versions": versions(),
    }


def _user_texts(session: Session) -> list[str]:
    return [turn.text for turn in session.turns if turn.role == "user"]


def _changes(session: Session) -> list[Change]:
    """The bank's changes for a past session whose user turns are its events."""
    now = session.turns[-1].time
    dialogue = SetNote(note_name(session.id), transcript(session.turns), now)
    return [dialogue, *add_units(statement_units(session, _user_texts(session), "sentence"))]


def _shift(session: Session, by: timedelta) -> Session:
    return replace(session, turns=tuple(replace(turn, time=turn.time + by) for turn in session.turns))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=6, help="new memories of the session")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.memories, arguments.repeats), indent=2))
