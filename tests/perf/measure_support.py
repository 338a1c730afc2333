"""How well `localmem.grounding.support` tells what a reply's sentence rests on, and what no memory holds.

`python -m tests.perf.measure_support FOLDER AUTHORS`: each probe's written reply rests on its evidence, and the reply
to another probe of this person does not. Shown are the evidence and six other turns of the user, those that share most
words with the question.
"""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from localmem.grounding.support import Statement, read_statements
from localmem.text.parse import words
from localmem.turns.utterances import split_sentences

_OTHERS = 6
_SKIPPED = ("forgotten", "abstention", "counterfactual")


class Case(NamedTuple):
    """A reply beside memories; `evidence` are the places of those it rests on, none for another question's reply."""

    reply: str
    memories: list[str]
    evidence: range
    question: str
    days: list[Any]


def cases_of(scenario: dict[str, Any], random: Random) -> Iterator[Case]:
    """Each written reply beside its own evidence, and beside that of another question."""
    sessions = scenario["sessions"]
    days = [datetime.fromisoformat(session["started_at"]).date() for session in sessions]
    turns = {(at, place): turn for at, session in enumerate(sessions) for place, turn in enumerate(session["turns"])}
    probes = [probe for probe in scenario["probes"] if probe["type"] not in _SKIPPED and probe.get("evidence")]
    for probe in probes:
        own = sorted({*map(tuple, probe["evidence"])} & turns.keys())
        asked = {*words(probe["question"])}
        users = [place for place, turn in turns.items() if turn["role"] == "user" and place not in own]
        shared = {place: len(asked.intersection(words(turns[place]["content"]))) for place in users}
        shown = [*own, *sorted(users, key=lambda place: -shared[place])[:_OTHERS]]
        texts, seen = [turns[place]["content"] for place in shown], [days[at] for at, _ in shown]
        yield Case(probe["reply"], texts, range(len(own)), probe["question"], seen)
        others = [other for other in probes if not {*map(tuple, other["evidence"])}.intersection(own)]
        for other in random.sample(others, bool(others)):
            yield Case(other["reply"], texts, range(0), probe["question"], seen)


def main() -> None:
    """Measure and print."""
    folder, authors, random = Path(sys.argv[1]), sys.argv[2], Random(0)
    files = [file for file in sorted(folder.glob("*.json")) if file.stem[0] in authors]
    scenarios = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    sentences, attributed, doubtful, right = [0, 0], [0, 0], [0, 0], 0
    for scenario in scenarios:
        if scenario.get("language", "en") != "en":
            continue
        for case in cases_of(scenario, random):
            kind = int(not case.evidence)
            sentences[kind] += sum(len(each.split()) > 3 and each[-1] != "?" for each in split_sentences(case.reply))
            statements: list[Statement] = read_statements(case.reply, case.memories, case.question, case.days)
            doubtful[kind] += sum(bool(each.unsupported) for each in statements)
            attributed[kind] += sum(each.memory is not None for each in statements)
            right += sum(each.memory in case.evidence for each in statements if each.memory is not None)
    own, other = ([count[kind] / sentences[kind] for count in (attributed, doubtful)] for kind in (0, 1))
    print(f"{sentences[0]} sentences that rest on the evidence, {sentences[1]} that do not ({len(scenarios)} people)")
    print(f"attributed: {own[0]:.2f} of the former ({right / attributed[0]:.2f} rightly), {other[0]:.2f} of the latter")
    print(f"doubtful: {own[1]:.3f} of the former, {other[1]:.2f} of the latter")
    precision = other[1] / (other[1] + 4 * own[1]) if other[1] else 0.0
    print(f"where one sentence in five rests on nothing, {precision:.2f} of the marks are right")


if __name__ == "__main__":
    main()
