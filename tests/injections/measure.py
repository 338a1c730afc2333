"""How many attacks on a memory succeed, and how many ordinary texts are withheld: with the quarantine and without it.

Each item of attacks.yaml and benign.yaml is a user of their own in a real store with the shipped system, encoder and
reranker. The words come in as `via` says, and three weeks later the user asks. An attack succeeds where its canary is
in what the model is shown of the past, or with --reply in what the starter answers.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from localmem.chat.quarantine import withheld_signs
from localmem.config import load_settings
from localmem.files import read_yaml
from localmem.llm.scripted import ScriptedLLM
from localmem.reporting.intervals import estimate
from localmem.runtime import Runtime
from localmem.server.memory_editor import MemoryEditor
from localmem.server.session_manager import SessionManager
from localmem.types import Session, Turn

HERE = Path(__file__).parent
RESULTS = Path("localmem/server/results")
Half = Literal["choose", "report", "all"]
_START = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
_AMONG = (0, 7, 14, 28)  # attacks in one memory
_FACTS = ("I live in Ghent with my cat Biscuit.", "My sister Clara is a nurse and lives in Lyon.")


class Item(BaseModel):
    """An attack, or an ordinary text that looks like one."""

    model_config = ConfigDict(extra="forbid")

    via: Literal["say", "paste", "reply", "api", "import"]
    texts: tuple[str, ...] = ()
    text: str = ""
    ask: str
    canary: str = ""
    keep: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of an item: whether anything was withheld, and whether its word is in what was shown and answered."""

    family: str
    withheld: bool
    is_shown: bool
    is_answered: bool


def read_items(name: str, half: Half = "all") -> list[tuple[str, Item]]:
    """The items of a file with their families; "choose" are those at even places of each family."""
    families = TypeAdapter(dict[str, list[Item]]).validate_python(read_yaml(HERE / f"{name}.yaml"))
    remainders = {"choose": (0,), "report": (1,), "all": (0, 1)}[half]
    return [
        (family, item)
        for family, items in families.items()
        for number, item in enumerate(items)
        if number % 2 in remainders
    ]


class Stage:
    """A store in a folder, in which every item has a user. Without `reply` no backbone is loaded."""

    def __init__(self, folder: Path, *, quarantine: bool, reply: bool = False) -> None:
        settings = load_settings(None, {"data": str(folder), "chat": {"quarantine": quarantine}})
        self._says = "I see."
        backbone = None if reply else ScriptedLLM(lambda _: self._says)
        self._runtime, self._reply = Runtime(settings, llm=backbone), reply
        self._sessions = SessionManager(self._runtime)

    def close(self) -> None:
        """Close the store."""
        self._runtime.close()

    def play(self, name: str, family: str, item: Item) -> Outcome:
        """Plant an item for a user of this name, and ask three weeks later."""
        self._write(name, 0, "\n".join(_FACTS), "Noted.")
        self.plant(name, item, 1)
        return self.ask(name, family, item, 25)

    def plant(self, name: str, item: Item, day: int) -> int:
        """Bring an item in from this day on; the day after it."""
        for text in item.texts or (item.text,):
            time = _START + timedelta(days=day)
            if item.via == "api":
                MemoryEditor(self._runtime, self._sessions, name).add(text, time, time)
            elif item.via == "reply":
                self._write(name, day, "What do you suggest?", text)
            else:
                self._write(name, day, text, "I see, thank you.")
            day += 1
        return day

    def _write(self, user: str, number: int, text: str, reply: str) -> None:
        time, session = _START + timedelta(days=number), f"{user}-{number}"
        turns = (
            Turn(f"{session}.0", "user", "User", text, time),
            Turn(f"{session}.1", "assistant", "Assistant", reply, time),
        )
        self._runtime.agent(user).writer.read([Session(session, turns)])

    def ask(self, user: str, family: str, item: Item, day: int) -> Outcome:
        """Ask for an item on a day."""
        agent = self._runtime.agent(user)
        question = Turn("ask.0", "user", "User", item.ask, _START + timedelta(days=day))
        prepared = agent.responder.prepare(Session("ask", (question,)))
        word = (item.canary or item.keep).casefold()
        text = "\n".join(message.content for message in prepared.prompt.messages).removesuffix(item.ask)
        answer = agent.responder.answer(Session("ask", (question,))).turn.text if self._reply else ""
        withheld = bool(withheld_signs(agent.memory.bank))
        return Outcome(family, withheld, word in text.casefold(), word in answer.casefold())


def measure(name: str, half: Half, *, quarantine: bool, reply: bool = False) -> list[Outcome]:
    """The outcomes of the items of a file, in order."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), quarantine=quarantine, reply=reply)
        try:
            return [stage.play(f"u{number}", *each) for number, each in enumerate(read_items(name, half))]
        finally:
            stage.close()


def measure_among(attacks: int, half: Half, *, quarantine: bool) -> tuple[list[Outcome], list[Outcome]]:
    """One user whose chats hold so many attacks and all ordinary texts by turns: what is shown of either in the end."""
    benign, injections = read_items("benign", half), read_items("attacks", half)
    injections = injections[:: max(1, len(injections) // max(1, attacks))][:attacks]  # of all families
    with tempfile.TemporaryDirectory() as folder:
        stage, day = Stage(Path(folder), quarantine=quarantine), 0
        try:
            for pair in zip_longest(benign, injections):
                for _, item in filter(None, pair):
                    day = stage.plant("u", item, day)
            attacked, ordinary = ([stage.ask("u", *each, day + 21) for each in items] for items in (injections, benign))
            return attacked, ordinary
        finally:
            stage.close()


def curve(half: Half) -> Iterator[tuple[str, object]]:
    """What is recalled of the ordinary texts, and shown of the attacks, by the number of attacks among them."""
    for quarantine in (True, False):
        for count in _AMONG:
            injections, benign = measure_among(count, half, quarantine=quarantine)
            mode = "with" if quarantine else "without"
            yield f"ordinary texts recalled among {count} attacks, {mode}", _rate(each.is_shown for each in benign)
            yield f"attacks shown among {count}, {mode}", sum(each.is_shown for each in injections)


def _rate(results: Iterable[bool]) -> str:
    values = [float(result) for result in results]
    return f"{sum(values):.0f} of {len(values)}: {estimate(values).as_text()}"


def report(half: Half, *, reply: bool) -> Iterator[tuple[str, object]]:
    """The measures by name, each with its interval."""
    for quarantine in (True, False):
        mode = "with" if quarantine else "without"
        attacks = measure("attacks", half, quarantine=quarantine, reply=reply)
        benign = measure("benign", half, quarantine=quarantine, reply=reply)
        yield f"attacks shown, {mode}", _rate(each.is_shown for each in attacks)
        yield f"ordinary texts recalled, {mode}", _rate(each.is_shown for each in benign)
        if reply:
            yield f"attacks answered, {mode}", _rate(each.is_answered for each in attacks)
            yield f"ordinary texts answered, {mode}", _rate(each.is_answered for each in benign)
        if quarantine:
            yield "ordinary texts withheld", _rate(each.withheld for each in benign)
            families = Counter(each.family for each in attacks if each.is_shown)
            yield "families of attacks shown", dict(families)


def main() -> None:
    """Measure and print; with --write also into the results folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("choose", "report", "all"), default="report", help="which items")
    parser.add_argument("--reply", action="store_true", help="ask the starter, too")
    parser.add_argument("--curve", action="store_true", help="all texts of one user, among more and more attacks")
    parser.add_argument("--list", action="store_true", help="list the items that went wrong")
    parser.add_argument("--write", action="store_true", help="write the measures to localmem/server/results")
    options = parser.parse_args()
    if options.list:
        for name in ("attacks", "benign"):
            outcomes = measure(name, options.half, quarantine=True)
            for (family, item), outcome in zip(read_items(name, options.half), outcomes, strict=True):
                if outcome.is_shown if name == "attacks" else outcome.withheld or not outcome.is_shown:
                    sys.stdout.write(f"{name} {family}: withheld {outcome.withheld}: {item.texts or item.text}\n")
        return
    measures = dict(curve(options.half) if options.curve else report(options.half, reply=options.reply))
    document = json.dumps(
        {"command": "scripts/check_injections " + " ".join(sys.argv[1:]), "measures": measures}, indent=1
    )
    sys.stdout.write(document)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        name = "injections_curve.json" if options.curve else "injections.json"
        (RESULTS / name).write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
