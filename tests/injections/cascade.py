"""What is no longer so: how many of 90 cases of deletion, cascade and absence a memory decides rightly without an LLM.

Each case is a user of their own in a real store with the shipped system, encoder and reranker. Deletion and cascade are
decided by what is shown for the question, absence by the reader's reply.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

from localmem import factory
from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.chat.reader import Reader
from localmem.config import load_settings
from localmem.files import read_yaml
from localmem.llm.scripted import ScriptedLLM
from localmem.reporting.intervals import estimate
from localmem.retrieval.views import index_texts
from localmem.runtime import Runtime
from localmem.systems.evidence.dependents import DOUBTS, SAID_BEFORE
from localmem.turns.readings import CLOSEST, NOT_KNOWN
from localmem.turns.utterances import split_sentences
from localmem.types import Session, Turn

RESULTS = Path("localmem/systems/results/cascade.json")
_START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)


class Case(BaseModel):
    """Statements of weeks, what changed, and a question."""

    model_config = ConfigDict(extra="forbid")

    said: tuple[str, ...]
    then: str
    ask: str
    wrong: str
    stays: str = ""
    ask_known: str = ""
    known: str = ""


class Decision(NamedTuple):
    """Whether a case was decided rightly, and whether what still holds stayed as it was."""

    kind: str
    is_right: bool
    is_intact: bool


def read_cases(half: str) -> list[tuple[str, Case]]:
    """The cases with their kinds; "choose" are every third of a kind, "report" the others."""
    kinds = TypeAdapter(dict[str, list[Case]]).validate_python(read_yaml(Path(__file__).with_suffix(".yaml")))
    return [
        (kind, case)
        for kind, cases in kinds.items()
        for number, case in enumerate(cases)
        if half == "all" or (number % 3 == 0) == (half == "choose")
    ]


def decide(agent: Conversation, reader: Reader, kind: str, case: Case) -> Decision:
    """Tell a case to a memory and judge what it makes of it."""
    for number, text in enumerate((*case.said, case.then)):
        time = _START + timedelta(days=4 * number)
        turns = (
            Turn(f"s{number}.0", "user", "User", text, time),
            Turn(f"s{number}.1", "assistant", "Assistant", "I see.", time),
        )
        agent.writer.read([Session(f"s{number}", turns)])
    if kind == "absence":
        return Decision(
            kind,
            case.wrong not in _firm(_reply(agent, reader, case.ask)),
            case.known in _reply(agent, reader, case.ask_known),
        )
    shown = agent.memory.recall(_asking(case.ask)).text
    is_cascade = kind == "cascade"
    is_right = (case.wrong in shown or not is_cascade) and case.wrong not in _firm(shown)
    needless = [sentence for sentence in _doubted(agent.memory.bank) if case.stays and case.stays in sentence]
    return Decision(kind, is_right, not needless)


def _doubted(bank: Bank) -> Iterator[str]:
    """The sentences that a link says were from before a change."""
    for link in bank.links:
        name, _, number = link.relation.partition(":")
        if name == DOUBTS:
            yield index_texts(bank.units[link.target])[int(number or 0)]


def _asking(text: str) -> Session:
    return Session("ask", (Turn("ask.0", "user", "User", text, _START + timedelta(days=40)),))


def _reply(agent: Conversation, reader: Reader, text: str) -> str:
    """The reader's reply; "" where it says that it was not told, or quotes only what comes closest."""
    asking = _asking(text)
    reply = reader.reply(asking, agent.memory.recall(asking))
    return "" if reply.startswith((NOT_KNOWN, CLOSEST)) else reply


def _firm(text: str) -> str:
    """The sentences of a text that are not said to be from before a change."""
    return "\n".join(sentence for sentence in split_sentences(text) if SAID_BEFORE not in sentence)


def measure(half: str) -> list[tuple[Case, Decision]]:
    """The decisions on the cases."""
    settings = load_settings(None, {})
    reader = factory.reader(settings)
    assert reader is not None
    results = []
    llm = ScriptedLLM(lambda _: "ok")
    with tempfile.TemporaryDirectory() as folder, Runtime(load_settings(None, {"data": folder}), llm=llm) as runtime:
        for number, (kind, case) in enumerate(read_cases(half)):
            results.append((case, decide(runtime.agent(f"u{number}"), reader, kind, case)))
    return results


def main() -> None:
    """Measure and print a table; with --write also into the results folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("choose", "report", "all"), default="report", help="which cases")
    parser.add_argument("--list", action="store_true", help="list the cases that went wrong")
    parser.add_argument("--write", action="store_true", help="write the table to localmem/systems/results")
    options = parser.parse_args()
    results = measure(options.half)
    for case, decision in results if options.list else ():
        if not (decision.is_right and decision.is_intact):
            sys.stdout.write(f"{decision}: {case}\n")
    table = {}
    for kind in ("deletion", "cascade", "absence"):
        decisions = [decision for _, decision in results if decision.kind == kind]
        right = estimate([float(decision.is_right) for decision in decisions])
        table[kind] = {
            "cases": len(decisions),
            "right": right.as_text(),
        }
        if kind != "deletion":  # whose cases name nothing that still holds
            table[kind]["intact"] = sum(each.is_intact for each in decisions)
    document = json.dumps(
        {"command": " ".join(["scripts/check_injections cascade", *sys.argv[1:]]), "kinds": table}, indent=1
    )
    sys.stdout.write(document + "\n")
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(document + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
