"""Runner: systems read episodes and answer their probes, many at once over one backbone; every step goes to a file.

Receives a function that makes agents; knows no system, no data set's format and no measure. A probe changes nothing, so
all probes of an episode are asked of the same memory. What fails is written down and counted, never left out.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from time import perf_counter

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.chat.responder import Speakers
from localmem.errors import LocalmemError
from localmem.evaluation.answers import Answer, Line, Read, Work, settled, successful
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Kind, Probe
from localmem.evaluation.metrics.likelihood import Likelihood
from localmem.files import JsonlLog
from localmem.journal import Journal, NoJournal
from localmem.llm.base import LLM
from localmem.llm.wrappers import Meter, PromptUsage
from localmem.prompts import load
from localmem.text.dialogue import transcript
from localmem.types import Change, Prompt, Recall, Session, Turn, Unit

log = logging.getLogger(__name__)

_LATER = timedelta(days=1)  # a probe of no time is asked so long after the session before it
_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # when nothing before it has a time either


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What an agent is made for: the work, who talks, the LLM to ask, the bank to begin with, where it writes."""

    work: Work
    user: str
    assistant: str
    llm: LLM
    bank: Bank
    journal: Journal


NewAgent = Callable[[AgentSpec], Conversation]
Track = Callable[[int], None]  # told how many probes have been answered
Weigh = Callable[[Prompt, str], Likelihood | None]  # how likely a backbone finds an answer, if it can say


def run(
    systems: Sequence[str],
    data: Sequence[Dataset],
    new_agent: NewAgent,
    llm: LLM,
    answers: JsonlLog[Line],
    *,
    threads: int = 8,
    track: Track = lambda _: None,
    weigh: Weigh | None = None,
    again: bool = False,
) -> None:
    """Every system over every episode; what `answers` holds already is not done again, but, with `again`, what failed.

    `weigh` is asked of every gold answer. On an interrupt what goes on finishes its step, and nothing new is begun.
    """
    done: defaultdict[Work, list[Line]] = defaultdict(list)
    for line in successful(answers.records) if again else settled(answers.records):
        done[line.work].append(line)
    works = [
        (Work(system, one.name, episode.id), episode) for system in systems for one in data for episode in one.episodes
    ]
    stopped: list[bool] = []
    with ThreadPoolExecutor(threads) as pool:
        tasks = [
            pool.submit(_Task(work, episode, done[work], llm, answers, track, stopped, weigh).run, new_agent)
            for work, episode in works
        ]
        try:
            _settle(tasks)
        except BaseException:
            stopped.append(True)
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def count_probes(data: Iterable[Dataset]) -> int:
    """How many probes these data sets hold."""
    return sum(len(episode.probes) for one in data for episode in one.episodes)


class _Task:
    """One system over one episode."""

    def __init__(
        self,
        work: Work,
        episode: Episode,
        done: Sequence[Line],
        llm: LLM,
        answers: JsonlLog[Line],
        track: Track,
        stopped: Sequence[bool],
        weigh: Weigh | None,
    ) -> None:
        self._work, self._episode, self._answers, self._track, self._stopped = work, episode, answers, track, stopped
        self._weigh = weigh
        self._read = {line.session for line in done if isinstance(line, Read)}
        self._answered = {line.probe for line in done if isinstance(line, Answer)}
        self._changes = [change for line in done if isinstance(line, Read) for change in line.changes]
        self._meter = Meter(llm)

    def run(self, new_agent: NewAgent) -> None:
        """What is given as remembered, then the sessions in order, and behind each the probes that belong there."""
        episode = self._episode
        self._track(sum(probe.id in self._answered for probe in episode.probes))
        given = told(episode.memories, episode.sessions)
        if self._finished(given):
            return
        kept = _Kept()
        user, assistant = _speakers(episode.sessions)
        bank = Bank().apply(self._changes)
        agent = new_agent(AgentSpec(self._work, user, assistant, self._meter, bank, kept))
        for statements in given:
            self._remember(agent, statements, kept)
        for session, probes in episode.in_order():
            if session is not None:
                self._remember(agent, session, kept)
            for probe in probes:
                self._ask(agent, session, probe)

    def _finished(self, given: Sequence[Session]) -> bool:
        read = all(session.id in self._read for session in (*given, *self._episode.sessions))
        return read and all(probe.id in self._answered for probe in self._episode.probes)

    def _remember(self, agent: Conversation, session: Session, kept: "_Kept") -> None:
        if self._stopped or session.id in self._read:
            return
        before, began = self._meter.usage(), perf_counter()
        error = ""
        try:
            agent.writer.read([session])
        except Exception as failure:  # noqa: BLE001  # whatever it is, it is a finding about the system
            error = self._failed(f"session {session.id} was not remembered", failure)
        seconds = perf_counter() - began
        spent = _since(before, self._meter.usage())
        gold = tuple(unit.text for unit in self._episode.golds.get(session.id, ()))
        said = transcript(session.turns)
        self._answers.append(
            Read(self._work, session.id, agent.responder.speakers.user, said, kept.taken(), seconds, spent, gold, error)
        )

    def _ask(self, agent: Conversation, session: Session | None, probe: Probe) -> None:
        if self._stopped or probe.id in self._answered:
            return
        answer = Answer(
            self._work,
            probe.id,
            probe.kind,
            probe.type,
            session.id if session else BEFORE_ALL,
            probe.question,
            (probe.answer, *probe.others),
            probe.evidence,
            self._past(probe),
        )
        try:
            _take_sides(agent, probe)
            answer = self._answered_by(agent, _dialogue(agent, session, probe), answer)
        except Exception as failure:  # noqa: BLE001  # whatever it is, it is a finding about the system
            answer = replace(answer, error=self._failed(f"probe {probe.id} failed", failure))
        self._answers.append(answer)
        self._track(1)

    def _past(self, probe: Probe) -> str:
        """What the turns say where the answer stands."""
        wanted = set(probe.evidence)
        if not wanted:
            return ""
        return transcript([turn for one in self._episode.sessions for turn in one.turns if turn.id in wanted])

    def _failed(self, what: str, failure: Exception) -> str:
        """Logged, with the traceback where it is a defect; and as the file tells it."""
        defect = None if isinstance(failure, LocalmemError) else failure
        told = f"{type(failure).__name__}: {' '.join(str(failure).split())[:300]}"
        log.warning("%s: %s: %s", " ".join(self._work), what, told, exc_info=defect)
        return told

    def _answered_by(self, agent: Conversation, dialogue: Session, answer: Answer) -> Answer:
        start, began = self._meter.usage(), perf_counter()
        recall = agent.memory.recall(dialogue)
        recalled, middle = perf_counter(), self._meter.usage()
        prompt = _prompt(agent, dialogue, recall, answer.kind)
        (completion,) = self._meter.generate([prompt])
        ended, end = perf_counter(), self._meter.usage()
        return replace(
            answer,
            dialogue=transcript(dialogue.turns),
            speaker=agent.responder.speakers.assistant,
            text=completion.text,
            recalled=recall.text,
            units=tuple(hit.unit.sources for hit in recall.hits),
            likelihood=self._weigh(prompt, answer.gold[0]) if self._weigh and answer.gold[0] else None,
            seconds={"recall": recalled - began, "respond": ended - recalled},
            spent={"recall": _since(start, middle), "respond": _since(middle, end)},
        )


class _Kept(NoJournal):
    """Holds what an agent commits until it is taken."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        self._changes += changes

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        self._changes += changes
        return True

    def taken(self) -> tuple[Change, ...]:
        """What was committed since the last time."""
        taken, self._changes = tuple(self._changes), []
        return taken


def _settle(tasks: Sequence["Future[None]"]) -> None:
    """Waits for all; a defect in one ends the run at once."""
    finished, _ = wait(tasks, return_when=FIRST_EXCEPTION)
    for task in finished:
        task.result()


def _speakers(sessions: Sequence[Session]) -> tuple[str, str]:
    """The names of the user and of the assistant, as most of the turns have them."""
    found = Counter((turn.role, turn.speaker) for session in sessions for turn in session.turns)
    names = {role: name for (role, name), _ in reversed(found.most_common())}
    return names.get("user", "User"), names.get("assistant", "Assistant")


def told(memories: Sequence[Unit], sessions: Sequence[Session]) -> list[Session]:
    """What is given as remembered, as sessions in which each speaker states it: any system can read these.

    The papers put such sentences into their own memory at once; a system that keeps no sentences could not.
    """
    roles = {turn.speaker: turn.role for session in sessions for turn in session.turns}
    user, _ = _speakers(sessions)  # states what is nobody's, or of both
    found: defaultdict[str, list[Unit]] = defaultdict(list)
    for unit in memories:
        found[unit.session].append(unit)
    return [
        Session(
            f"given-{name}",
            tuple(
                Turn(unit.id, roles.get(unit.speaker, "user"), unit.speaker or user, unit.text, unit.time)
                for unit in units
            ),
        )
        for name, units in found.items()
    ]


def _take_sides(agent: Conversation, probe: Probe) -> None:
    """Either speaker of a data set may be the one to reply: the agent speaks as the one that the probe names."""
    user = agent.responder.speakers.assistant
    if probe.speaker and probe.speaker != user:
        agent.responder.speakers = Speakers(user, probe.speaker)


def _dialogue(agent: Conversation, session: Session | None, probe: Probe) -> Session:
    """The session in which the probe is asked: what was said in it, and last the user's turn."""
    name, before = f"probe-{probe.id}", probe.dialogue or (session.turns if session else ())
    later = timedelta() if probe.dialogue else _LATER
    time = probe.time or (before[-1].time + later if before else _UNDATED)
    asked = Turn(f"{name}.{len(probe.dialogue)}", "user", agent.responder.speakers.user, probe.question, time)
    return Session(name, (*probe.dialogue, asked))


def _prompt(agent: Conversation, dialogue: Session, recall: Recall, kind: Kind) -> Prompt:
    """A question asks for a short answer from memory; a dialogue is gone on with as in a chat."""
    if kind == "next":
        return agent.responder.prepare(dialogue, recall=recall).prompt
    instructions, max_tokens = _question()
    return replace(agent.responder.prepare(dialogue, instructions, recall).prompt, max_tokens=max_tokens)


@cache
def _question() -> tuple[str, int]:
    """What every question is asked with, and how many tokens its answer may have."""
    asked = load("evaluation/question")
    return asked.section("system"), asked.max_tokens


def _since(before: Mapping[str, PromptUsage], after: Mapping[str, PromptUsage]) -> dict[str, PromptUsage]:
    """What was spent between two readings of a meter, by prompt."""
    return {
        name: spent.minus(before[name]) if name in before else spent
        for name, spent in after.items()
        if spent != before.get(name)
    }
