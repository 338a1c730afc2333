"""Erasure, probed: afterwards no memory system brings back what was erased, whatever it had made of it before.

People of written conversations tell their lives to a system over a real store. The backbone copies: what it writes for
a memory are sentences that it was given, those with an answer first. So derived texts hold as much of an answer as they
can, and what is derived from them goes on holding it. Then something is erased in each of WAYS, the sessions that lost
memory by it are remembered again, and every question is asked whose answer stood in erased turns only.
"""

import json
import logging
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

import click

from localmem.config import system_names
from localmem.errors import NotFound
from localmem.evaluation.datasets.scenarios import Person, ScenarioProbe, read_people
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.encoder import CachedEncoder
from localmem.runtime import Runtime
from localmem.text.parse import sentences
from localmem.types import Choice, JsonSchema, Prompt, Session, Turn
from tests.drills.summary import RESULTS, write_summary
from tests.drills.victims import drill_settings
from tests.fakes import WordEncoder, instance

WAYS = ("unit", "session", "words in a chat", "user")
LESSONS = Path("finetune/lessons/people")
_MOST = 12  # sentences of a copied text


@dataclass(frozen=True)
class Question:
    """A question, the ids of the turns that answer it, and what tells that a text holds the answer."""

    question: str
    turns: frozenset[str]
    answer: re.Pattern[str]


class Copier:
    """A backbone that writes sentences of its inputs; those with one of the `answers` first."""

    def __init__(self, answers: Sequence[re.Pattern[str]]) -> None:
        self._answers = answers

    def __call__(self, prompt: Prompt) -> str:
        if prompt.name.endswith("/respond"):
            return "I see."
        texts = self._texts(prompt)
        match prompt.format:
            case Choice(options=options):
                return "APPEND" if "APPEND" in options else options[0]
            case JsonSchema(schema=schema):
                return json.dumps(instance(schema, cycle(texts)))
        return "\n".join(islice(texts, _MOST))

    def _texts(self, prompt: Prompt) -> list[str]:
        inputs = "\n".join(prompt.inputs.values()).splitlines()
        texts = dict.fromkeys(sentence for line in inputs for sentence in sentences(line) if len(sentence) > 10)
        first = [text for text in texts if any(answer.search(text) for answer in self._answers)]
        return [*first, *(text for text in texts if text not in first), "Mm-hm."]


def questions_of(person: Person) -> list[Question]:
    """The person's questions with an answer that can be told from any other text, in both wordings."""
    turns = [turn for session in person.sessions for turn in session.turns]
    questions = []
    for probe, evidence in zip(person.probes, person.evidence, strict=True):
        answer = _pattern(probe)
        if not (probe.is_answerable and evidence and answer) or answer.search(f"{probe.question} {probe.paraphrase}"):
            continue
        holders = frozenset(turn.id for turn in turns if answer.search(turn.text))
        if holders & set(evidence):
            wordings = [probe.question, *filter(None, [probe.paraphrase])]
            questions += [Question(wording, holders | set(evidence), answer) for wording in wordings]
    return questions


def _pattern(probe: ScenarioProbe) -> re.Pattern[str] | None:
    """Any of the words by which a reply is right; None where one is too short to be nothing else by chance."""
    if not probe.must_contain or any(len(text) < 4 or not re.search(r"[^\W\d]", text) for text in probe.must_contain):
        return None
    return re.compile("|".join(rf"\b{re.escape(text)}\b" for text in probe.must_contain), re.IGNORECASE)


def probe_erasure(home: Path, system: str, people: Sequence[Person]) -> dict[str, Counter[str]]:
    """By way, of the questions whose answer was erased: how many were `asked`, for how many the answer stood in the
    prompt and in texts derived by the system, before and after. `others` are the questions whose turns remain and that
    were answered before, `others after` those that are still answered.
    """
    totals = {way: Counter[str]() for way in WAYS}
    for person in people:
        questions = questions_of(person)
        llm = ScriptedLLM(Copier([each.answer for each in questions]))
        with Runtime(drill_settings(home / person.id, system), llm=llm) as runtime:
            runtime._encoder = CachedEncoder(WordEncoder(), runtime.store.vectors)
            runtime.agent(person.id).writer.read(person.sessions)
            lines = list(runtime.store.export(person.id))
            for number, way in enumerate(WAYS):
                user = f"{person.id}-{number}"
                runtime.store.restore(lines, "the drill", user)
                totals[way] += _probe(runtime, user, way, questions)
    return totals


def _probe(runtime: Runtime, user: str, way: str, questions: Sequence[Question]) -> Counter[str]:
    now = max(turn.time for turn in _turns(runtime, user)) + timedelta(days=1)
    before, derived = [_is_shown(runtime, user, each, now) for each in questions], _derived(runtime, user)
    candidates = [each for each, was_shown in zip(questions, before, strict=True) if was_shown] or questions
    if not ERASERS[way](runtime, user, candidates, now):
        return Counter({"nothing to erase": 1})
    runtime.forget_agent(user)
    runtime.replay_waiting(user)
    remaining, afterwards = {turn.id for turn in _turns(runtime, user)}, _derived(runtime, user)
    totals = Counter[str](erasures=1)
    for each, was_shown in zip(questions, before, strict=True):
        is_shown = _is_shown(runtime, user, each, now)
        if not each.turns & remaining:
            totals += Counter(asked=1, before=was_shown, after=is_shown)
            totals["derived before"] += bool(each.answer.search(derived))
            totals["derived after"] += bool(each.answer.search(afterwards))
        elif each.turns <= remaining and was_shown:
            totals += Counter({"others": 1, "others after": int(is_shown)})
    return totals


def _is_shown(runtime: Runtime, user: str, probe: Question, now: datetime) -> bool:
    """Whether the answer is in anything that the backbone would read with the question."""
    dialogue = Session("probe", (Turn("probe.0", "user", "User", probe.question, now + timedelta(days=1)),))
    messages = runtime.agent(user).responder.prepare(dialogue).prompt.messages
    return bool(probe.answer.search("\n".join(message.content for message in messages)))


def _turns(runtime: Runtime, user: str) -> Iterator[Turn]:
    if user in runtime.store.users():
        for info in runtime.store.sessions(user):
            yield from runtime.store.session(user, info.id).turns


def _derived(runtime: Runtime, user: str) -> str:
    """All that a system made: units in use or not, notes of all times, links, reasons, refused texts."""
    try:
        lines = [json.loads(line) for line in runtime.store.export(user)]
    except NotFound:
        return ""
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines if line.get("kind") != "turn")


# -- ways to erase: False where there is nothing to erase in this way -----------------------------------------------


def _target(questions: Sequence[Question], has: Callable[[Question], bool] = bool) -> Question | None:
    """The question most of whose neighbours are answered by the same turn."""
    shared = Counter(turn for each in questions for turn in each.turns)
    return max(filter(has, questions), key=lambda each: max(shared[turn] for turn in each.turns), default=None)


def _erase_unit(runtime: Runtime, user: str, questions: Sequence[Question], _now: datetime) -> bool:
    """Every unit that one question's turns made, with these turns."""
    system, target = runtime.settings.system, _target(questions)
    erased = False
    while target and (units := _units_from(runtime, user, target.turns)):
        runtime.store.delete_units(user, system, units[0], sources=True)
        erased = True
    return erased


def _units_from(runtime: Runtime, user: str, turns: Collection[str]) -> list[str]:
    bank = runtime.store.bank(user, runtime.settings.system)
    return [unit.id for unit in bank.units.values() if not set(unit.sources).isdisjoint(turns)]


def _erase_session(runtime: Runtime, user: str, questions: Sequence[Question], _now: datetime) -> bool:
    """All sessions in which one question is answered."""
    target = _target(questions)
    sessions = set(runtime.store.lookups.sessions_of_turns(user, target.turns).values()) if target else set()
    for name in sorted(sessions):
        runtime.store.delete_session(user, name)
    return bool(sessions)


def _erase_by_words(runtime: Runtime, user: str, questions: Sequence[Question], now: datetime) -> bool:
    """Ask in a chat to forget what one question is about, then erase what was put away by that."""
    turns = {turn.id: turn for turn in _turns(runtime, user)}
    target = _target(questions, lambda each: all(turns[name].role == "user" for name in each.turns))
    agent = runtime.agent(user)
    for turn in sorted(target.turns) if target else ():
        texts = sentences(turns[turn].text)
        sentence = next((text for text in texts if target and target.answer.search(text)), texts[0])
        request = agent.log_turns(f"Please forget what I told you: {sentence}", now, f"request-{turn}").turns[-1]
        for _ in agent.reply(f"request-{turn}"):
            pass
        agent.end_session()
        if request.id not in agent.memory.bank.hidden:
            return False
        runtime.store.delete_units(user, runtime.settings.system, request.id)
    return target is not None


def _erase_user(runtime: Runtime, user: str, _questions: Sequence[Question], _now: datetime) -> bool:
    return bool(runtime.store.delete_user(user).rows)


ERASERS: Mapping[str, Callable[[Runtime, str, Sequence[Question], datetime], bool]] = dict(
    zip(WAYS, (_erase_unit, _erase_session, _erase_by_words, _erase_user), strict=True)
)


@click.command("erasure")
@click.option("--people", default=6, show_default=True, help="Of each of two authors of finetune/lessons/people.")
@click.option("--system", "systems", multiple=True, help="Only this memory system. Repeatable.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "erasure.json", show_default=True)
def erasure(people: int, systems: tuple[str, ...], out: Path) -> None:
    """Erase in every memory system, and ask for what was erased."""
    logging.getLogger("localmem").setLevel(logging.ERROR)  # the backbone is no better than it has to be
    selected = [person for author in ("m", "n") for person in read_people(LESSONS, (author,))[:people]]
    summary: dict[str, dict[str, Counter[str]]] = {}
    for system in systems or [name for name in system_names() if name != "none"]:
        with tempfile.TemporaryDirectory(prefix="localmem-drill-") as folder:
            summary[system] = probe_erasure(Path(folder), system, selected)
        total = sum(summary[system].values(), Counter[str]())
        write_summary(out, {"people": [each.id for each in selected], "systems": summary})
        click.echo(f"{system}: {dict(total)}")
