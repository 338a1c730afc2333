"""The file of a run: one line for each session that was read and each probe that was answered.

What a system remembered is stored as changes, so that an interrupted run can resume from the file alone. Depends on
neither the runner nor any measure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from localmem.evaluation.episodes import Kind
from localmem.evaluation.metrics.model_based import Likelihood
from localmem.files import JsonlLog, read_log
from localmem.llm.wrappers import PromptUsage
from localmem.types import Change


class Work(NamedTuple):
    """The unit of work of one thread: one system reads one episode of one data set."""

    system: str
    dataset: str
    episode: str


@dataclass(frozen=True, slots=True)
class Read:
    """A session that was read.

    `changes` are what the system remembered of it, `gold` the sentences that a memory should hold by then, where the
    data set has them; `error` is the reason of a failure.
    """

    work: Work
    session: str
    user: str
    transcript: str
    changes: tuple[Change, ...]
    seconds: float
    spent: Mapping[str, PromptUsage]
    gold: tuple[str, ...] = ()
    error: str = ""
    type: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe that was answered, or that failed (`error`).

    `about` is the probe's type in the data set and `session` the session after which it was asked. `units` are the
    recalled units, each by the ids of its source turns, `evidence` the turns that contain the answer and `past` their
    text. `dialogue` is the conversation up to the question, `speaker` who answers. `likelihood` is that of the gold
    answer under the backbone, where it was computed. `seconds` and `spent` are by stage: recall, respond.
    """

    work: Work
    probe: str
    kind: Kind
    about: str
    session: str
    question: str
    gold: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    past: str = ""
    dialogue: str = ""
    speaker: str = ""
    text: str = ""
    recalled: str = ""
    units: tuple[tuple[str, ...], ...] = ()
    likelihood: Likelihood | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, Mapping[str, PromptUsage]] = field(default_factory=dict)
    error: str = ""
    type: Literal["answer"] = "answer"


Line = Read | Answer

_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


def open_answers(path: Path) -> JsonlLog[Line]:
    """The file of a run, to be opened with `with` and appended to."""
    return JsonlLog(path, _LINE)


def read_answers(path: Path) -> list[Line]:
    """The valid lines of a run's file, see `resolve`. Raises BadInput."""
    return resolve(read_log(path, _LINE))


def resolve(lines: Iterable[Line]) -> list[Line]:
    """The lines that are valid after retries, by system and episode, sessions before answers.

    A session that was read again replaces its earlier line and invalidates everything after it.
    """
    reads: defaultdict[Work, dict[str, Read]] = defaultdict(dict)
    answers: defaultdict[Work, dict[str, Answer]] = defaultdict(dict)
    for line in lines:
        if isinstance(line, Answer):
            answers[line.work][line.probe] = line
            continue
        if line.session in (previous := reads[line.work]):
            names = list(previous)
            stale = set(names[names.index(line.session) :])
            reads[line.work] = {name: read for name, read in previous.items() if name not in stale}
            current = answers[line.work]
            answers[line.work] = {probe: answer for probe, answer in current.items() if answer.session not in stale}
        reads[line.work][line.session] = line
    return [
        line
        for work in dict.fromkeys([*reads, *answers])
        for lines_of_work in (reads[work], answers[work])
        for line in lines_of_work.values()
    ]


def successful(lines: Iterable[Line]) -> list[Line]:
    """The lines that need no retry: no failed answer, and nothing from the first failed session on."""
    stale: defaultdict[Work, set[str]] = defaultdict(set)
    result: list[Line] = []
    for line in resolve(lines):
        sessions = stale[line.work]
        if isinstance(line, Read) and (line.error or sessions):
            sessions.add(line.session)
        elif not line.error and line.session not in sessions:
            result.append(line)
    return result


def answers_of(lines: Sequence[Line]) -> list[Answer]:
    """The answers, in an order that does not depend on thread timing."""
    return sorted((line for line in lines if isinstance(line, Answer)), key=lambda line: (line.work, line.probe))


def reads_of(lines: Sequence[Line]) -> list[Read]:
    """The sessions that were read, in an order that does not depend on thread timing."""
    return sorted((line for line in lines if isinstance(line, Read)), key=lambda line: (line.work, line.session))
