"""Runner: systems read episodes and answer their probes, many at once over one backbone; every step goes to a file.

Receives a function that makes agents; depends on no system, no data set format and no measure. A probe changes nothing,
so all probes of an episode are asked of the same memory. Failures are recorded and counted, never left out.
"""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from time import perf_counter
from typing import Protocol

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.chat.responder import Responder, Speakers
from localmem.errors import LocalmemError
from localmem.evaluation.answers import FIRST, Answer, Line, Read, Work, resolve, successful
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Kind, Probe
from localmem.evaluation.memory_turns import used_sentences
from localmem.evaluation.metrics.model_based import Likelihood
from localmem.journal import Journal, NoJournal
from localmem.llm.base import LLM
from localmem.llm.wrappers import Meter, PromptUsage
from localmem.prompts import load
from localmem.text.dialogue import transcript
from localmem.types import Change, Completion, Prompt, Recall, Session, Turn, Unit

log = logging.getLogger(__name__)

_GAP = timedelta(days=1)  # between the last session and a probe without a time
_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # for a probe when nothing before it has a time either


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What an agent is made from: the work, the LLM to ask, the bank to start with and the journal to write to."""

    work: Work
    speakers: Speakers
    llm: LLM
    bank: Bank
    journal: Journal


NewAgent = Callable[[AgentSpec], Conversation]
Track = Callable[[int], None]  # receives the number of newly answered probes
AnswerLikelihood = Callable[[Prompt, str], Likelihood | None]  # None where it cannot be computed
WrapLLM = Callable[[LLM, Work], LLM]
Enter = Callable[[Work, Episode, str, datetime], object]  # receives the session that is read, or asked or replied in


class AnswerLog(Protocol):
    """Where lines go; a file of a run is one. `records` are those of before."""

    @property
    def records(self) -> Sequence[Line]:
        """The lines of before."""

    def append(self, record: Line, /) -> None:
        """Keep a line; for many threads."""


def run_systems(
    systems: Sequence[str],
    datasets: Sequence[Dataset],
    new_agent: NewAgent,
    llm: LLM,
    answers: AnswerLog,
    *,
    threads: int = 8,
    track: Track = lambda _: None,
    likelihood: AnswerLikelihood | None = None,
    retry_failed: bool = False,
    stream: bool = False,
    wrap: WrapLLM = lambda llm, _: llm,
    enter: Enter = lambda *_: None,
) -> None:
    """Run every system over every episode; work that `answers` already contains is skipped.

    With `retry_failed`, failed work is repeated. `likelihood` is computed for every gold answer, `wrap` wraps the LLM
    of each episode, and `enter` is called before each session and probe. With `stream`, replies are streamed and the
    time to their first piece is measured. On an interrupt the current steps finish and nothing new begins.
    """
    previous: defaultdict[Work, list[Line]] = defaultdict(list)
    for line in successful(answers.records) if retry_failed else resolve(answers.records):
        previous[line.work].append(line)
    stop = threading.Event()
    tasks = [
        _EpisodeTask(
            work, episode, previous[work], meter, wrap(meter, work), answers, track, stop, likelihood, enter, stream
        )
        for system in systems
        for dataset in datasets
        for episode in dataset.episodes
        for work, meter in [(Work(system, dataset.name, episode.id), Meter(llm))]
    ]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(task.run, new_agent) for task in tasks]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()  # a defect in one task ends the run at once
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def count_probes(datasets: Iterable[Dataset]) -> int:
    """The number of probes in these data sets."""
    return sum(len(episode.probes) for dataset in datasets for episode in dataset.episodes)


@dataclass(frozen=True)
class _EpisodeTask:
    """One system over one episode; `previous` are the lines that need no repetition."""

    work: Work
    episode: Episode
    previous: Sequence[Line]
    meter: Meter
    llm: LLM
    answers: AnswerLog
    track: Track
    stop: threading.Event
    likelihood: AnswerLikelihood | None
    enter: Enter
    stream: bool

    @cached_property
    def _read(self) -> set[str]:
        return {line.session for line in self.previous if isinstance(line, Read)}

    @cached_property
    def _answered_probes(self) -> set[str]:
        return {line.probe for line in self.previous if isinstance(line, Answer)}

    def run(self, new_agent: NewAgent) -> None:
        """Given memories first, then the sessions in order, each followed by the probes asked after it."""
        episode = self.episode
        self.track(sum(probe.id in self._answered_probes for probe in episode.probes))
        initial = memory_sessions(episode.memories, episode.sessions)
        is_read = all(session.id in self._read for session in (*initial, *episode.sessions))
        if is_read and all(probe.id in self._answered_probes for probe in episode.probes):
            return
        journal = _CollectingJournal()
        bank = Bank().apply([change for line in self.previous if isinstance(line, Read) for change in line.changes])
        agent = new_agent(AgentSpec(self.work, _speakers(episode.sessions), self.llm, bank, journal))
        for session in initial:
            self._remember(agent, session, journal)
        for current, probes in episode.in_order():
            if current is not None:
                self._remember(agent, current, journal)
            for probe in probes:
                self._ask(agent.responder, current, probe)

    def _remember(self, agent: Conversation, session: Session, journal: "_CollectingJournal") -> None:
        if self.stop.is_set() or session.id in self._read:
            return
        self.enter(self.work, self.episode, session.id, session.turns[0].time)
        before, start = self.meter.usage(), perf_counter()
        error = ""
        try:
            agent.writer.read([session])
        except Exception as failure:  # noqa: BLE001  # any failure is a result about the system
            error = self._log_failure(f"session {session.id} was not remembered", failure)
        line = Read(
            self.work,
            session.id,
            agent.responder.speakers.user,
            transcript(session.turns),
            journal.take_changes(),
            perf_counter() - start,
            _usage_between(before, self.meter.usage()),
            tuple(unit.text for unit in self.episode.golds.get(session.id, ())),
            error,
        )
        self.answers.append(line)

    def _ask(self, responder: Responder, session: Session | None, probe: Probe) -> None:
        if self.stop.is_set() or probe.id in self._answered_probes:
            return
        past = transcript(turn for own in self.episode.sessions for turn in own.turns if turn.id in probe.evidence)
        gold, after = (probe.answer, *probe.others), session.id if session else BEFORE_ALL
        rests_on = used_sentences(self.episode, probe)
        answer = Answer(
            self.work, probe.id, probe.kind, probe.type, after, probe.question, gold, probe.evidence, past, rests_on
        )
        try:
            assistant = responder.speakers.assistant
            if probe.speaker and probe.speaker != assistant:  # in some data sets either speaker may reply
                responder.speakers = Speakers(assistant, probe.speaker)
            dialogue = _probe_dialogue(responder.speakers.user, session, probe)
            name = probe.sessions[-1] if probe.kind == "next" and probe.sessions else after
            self.enter(self.work, self.episode, name, dialogue.turns[-1].time)
            answer = self._answer(responder, dialogue, answer)
        except Exception as failure:  # noqa: BLE001  # any failure is a result about the system
            answer = replace(answer, error=self._log_failure(f"probe {probe.id} failed", failure))
        self.answers.append(answer)
        self.track(1)

    def _log_failure(self, event: str, failure: Exception) -> str:
        """Log a failure, with the traceback if it is a defect, and return it as one line."""
        defect = None if isinstance(failure, LocalmemError) else failure
        line = f"{type(failure).__name__}: {' '.join(str(failure).split())[:300]}"
        log.warning("%s: %s: %s", " ".join(self.work), event, line, exc_info=defect)
        return line

    def _answer(self, responder: Responder, dialogue: Session, answer: Answer) -> Answer:
        usages, times = [self.meter.usage()], [perf_counter()]
        fallbacks = responder.memory.fallbacks
        before = fallbacks.total()

        def mark() -> None:
            times.append(perf_counter())
            usages.append(self.meter.usage())

        recall = responder.memory.recall_shown(dialogue)
        to_recall = fallbacks.total() - before
        mark()
        prompt = _prompt(responder, dialogue, recall, answer.kind)
        completion, first = self._respond(prompt)
        mark()
        return replace(
            answer,
            dialogue=transcript(dialogue.turns),
            speaker=responder.speakers.assistant,
            text=completion.text,
            recalled=recall.text,
            units=tuple(hit.unit.sources for hit in recall.hits),
            likelihood=self.likelihood(prompt, answer.gold[0]) if self.likelihood and answer.gold[0] else None,
            seconds={
                "recall": times[1] - times[0],
                "respond": times[2] - times[1],
                **({FIRST: first - times[0]} if first else {}),
            },
            spent={"recall": _usage_between(*usages[:2]), "respond": _usage_between(*usages[1:])},
            fallbacks=to_recall,
        )

    def _respond(self, prompt: Prompt) -> tuple[Completion, float | None]:
        """The reply, and when its first piece came if it was streamed."""
        if not self.stream:
            return self.llm.generate([prompt])[0], None
        pieces, first = self.llm.stream(prompt), None
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                completion: Completion = end.value
                return completion, first
            first = first or perf_counter()


class _CollectingJournal(NoJournal):
    """Collects what an agent commits."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def commit(self, cause: str, changes: Sequence[Change], *, derived: bool = False) -> bool:
        self._changes += changes
        return True

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        self._changes += changes
        return True

    def take_changes(self) -> tuple[Change, ...]:
        """The changes since the last call."""
        changes, self._changes = tuple(self._changes), []
        return changes


def _speakers(sessions: Sequence[Session]) -> Speakers:
    """The most frequent names of the user and the assistant."""
    counts = Counter((turn.role, turn.speaker) for session in sessions for turn in session.turns)
    names = {role: name for (role, name), _ in reversed(counts.most_common())}
    return Speakers(**{role: names[role] for role in Speakers._fields if role in names})


def memory_sessions(memories: Sequence[Unit], sessions: Sequence[Session]) -> list[Session]:
    """Given memories as sessions in which each speaker states them, which any system can read.

    The papers put such sentences into their own memory directly, which is impossible for a system without sentences.
    """
    roles = {turn.speaker: turn.role for session in sessions for turn in session.turns}
    user = _speakers(sessions).user  # states memories about nobody or about both
    by_session: defaultdict[str, list[Turn]] = defaultdict(list)
    for unit in memories:
        role = roles.get(unit.speaker, "user")
        by_session[unit.session].append(Turn(unit.id, role, unit.speaker or user, unit.text, unit.time))
    return [Session(f"given-{name}", tuple(turns)) for name, turns in by_session.items()]


def _probe_dialogue(user: str, session: Session | None, probe: Probe) -> Session:
    """The session in which the probe is asked: its dialogue, then the question as the user's turn."""
    name, before = f"probe-{probe.id}", probe.dialogue or (session.turns if session else ())
    gap = timedelta() if probe.dialogue else _GAP
    time = probe.time or (before[-1].time + gap if before else _UNDATED)
    question = Turn(f"{name}.{len(probe.dialogue)}", "user", user, probe.question, time)
    return Session(name, (*probe.dialogue, question))


def _prompt(responder: Responder, dialogue: Session, recall: Recall, kind: Kind) -> Prompt:
    """A question asks for a short answer from memory; a dialogue is continued as in a chat."""
    if kind == "next":
        return responder.prepare(dialogue, recall=recall).prompt
    file = load("evaluation/question")
    prompt = responder.prepare(dialogue, file.section("system"), recall).prompt
    return replace(prompt, max_tokens=file.max_tokens, open_ended=False)


def _usage_between(before: Mapping[str, PromptUsage], after: Mapping[str, PromptUsage]) -> dict[str, PromptUsage]:
    """What was spent between two readings of a meter, by prompt."""
    nothing = PromptUsage()
    return {name: usage.minus(before.get(name, nothing)) for name, usage in after.items() if usage != before.get(name)}
