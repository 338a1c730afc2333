"""Episodes on a Ray cluster: one process reads and answers an episode as `run_systems` does, and sends its lines back.

A resumed run passes on the lines that need no repetition. An interrupt loses the episodes in progress, each from its
beginning.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from localmem.config import Settings
from localmem.evaluation.answers import Answer, Line, Read, Work, open_answers, resolve, successful
from localmem.evaluation.episodes import Dataset
from localmem.evaluation.runner import Enter, count_probes, memory_sessions, run_systems
from localmem.experiments.ray_pool import map_on_ray
from localmem.experiments.runs import ANSWERS, Progress, counting, open_agents
from localmem.llm.base import LLM

log = logging.getLogger(__name__)


class NoteTaker(Protocol):
    """What is taken down in a worker beside the lines of an episode."""

    def wrap(self, llm: LLM, work: Work) -> LLM:
        """The LLM that the episode asks."""

    @property
    def enter_episode(self) -> Enter:
        """`enter` of `run_systems`."""

    def take(self) -> list[Any]:
        """The notes since the last call."""


class _NoNotes:
    def wrap(self, llm: LLM, work: Work) -> LLM:
        return llm

    def enter_episode(self, *_: object) -> None:
        return None

    def take(self) -> list[Any]:
        return []


class _Task(NamedTuple):
    """`dataset` holds one episode; `previous` are the lines that need no repetition."""

    system: str
    dataset: Dataset
    previous: Sequence[Line]


@dataclass
class _Lines:
    """The lines of one episode, in place of a file."""

    records: Sequence[Line]
    new: list[Line] = field(default_factory=list)

    def append(self, line: Line) -> None:
        self.new.append(line)


@dataclass(frozen=True)
class RayRun:
    """How episodes are answered on the cluster at `address`; `open_notes` makes what is taken down in each process."""

    address: str
    settings: Settings
    by_system: Mapping[str, Settings]
    open_notes: Callable[[], NoteTaker] = _NoNotes
    stream: bool = False

    def answer(
        self,
        datasets: Sequence[Dataset],
        out: Path,
        *,
        retry_failed: bool,
        progress: Progress,
        keep: Callable[[Any], object] = lambda _: None,
    ) -> None:
        """Append to the answers in `out`, a folder that `claim_run` made, and `keep` the notes."""
        track = counting(progress, "answering", count_probes(datasets) * len(self.by_system))
        with open_answers(out / ANSWERS) as answers:
            tasks = list(_tasks(self.by_system, datasets, answers.records, retry_failed=retry_failed))
            track(sum(isinstance(line, Answer) for task in tasks for line in task.previous))
            incomplete = [task for task in tasks if not _is_complete(task)]
            for lines, notes in map_on_ray(self.address, self._open_answerer, incomplete):
                for note in notes:
                    keep(note)
                for line in lines:
                    answers.append(line)
                track(sum(isinstance(line, Answer) for line in lines))

    def _open_answerer(self) -> Callable[[_Task], tuple[list[Line], list[Any]]]:
        """In a process of the cluster, which keeps the backbone and the encoder until it ends."""
        llm, new_agent = open_agents(self.settings, self.by_system, ExitStack(), log.info)
        notes = self.open_notes()

        def answer(task: _Task) -> tuple[list[Line], list[Any]]:
            lines = _Lines(task.previous)
            run_systems(
                [task.system], [task.dataset], new_agent, llm, lines, threads=1, stream=self.stream, wrap=notes.wrap,
                enter=notes.enter_episode,
            )  # fmt: skip
            return lines.new, notes.take()

        return answer


def _tasks(
    systems: Iterable[str], datasets: Sequence[Dataset], records: Sequence[Line], *, retry_failed: bool
) -> Iterable[_Task]:
    previous: defaultdict[Work, list[Line]] = defaultdict(list)
    for line in successful(records) if retry_failed else resolve(records):
        previous[line.work].append(line)
    for system in systems:
        for dataset in datasets:
            for episode in dataset.episodes:
                lines = previous[Work(system, dataset.name, episode.id)]
                yield _Task(system, replace(dataset, episodes=(episode,)), lines)


def _is_complete(task: _Task) -> bool:
    (episode,) = task.dataset.episodes
    sessions = {session.id for session in (*memory_sessions(episode.memories, episode.sessions), *episode.sessions)}
    read = {line.session for line in task.previous if isinstance(line, Read)}
    answered = {line.probe for line in task.previous if isinstance(line, Answer)}
    return sessions <= read and {probe.id for probe in episode.probes} <= answered
