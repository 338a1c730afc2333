"""What stands in a run's file: a line for each session that was read and each probe that was answered.

What a system remembered stands in it as changes, so that a run that broke off goes on from the file alone. Knows no
runner and no measure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from localmem.evaluation.episodes import Kind
from localmem.evaluation.metrics.likelihood import Likelihood
from localmem.llm.wrappers import Spent
from localmem.reporting.jsonl import Lines, read_lines
from localmem.types import Change


class Work(NamedTuple):
    """What one thread does from beginning to end: one system reads one episode of one data set."""

    system: str
    data: str
    episode: str


@dataclass(frozen=True, slots=True)
class Read:
    """A session that was read, and what was `said` in it by `user` and the other.

    `changes` are what the system remembered of it, `gold` the sentences that a memory should hold by then, where the
    data says so; `error` is why it failed, if it did.
    """

    work: Work
    session: str
    user: str
    said: str
    changes: tuple[Change, ...]
    seconds: float
    spent: Mapping[str, Spent]
    gold: tuple[str, ...] = ()
    error: str = ""
    type: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe that was answered, or failed to be (`error`).

    `about` is the probe's type in the data set and `session` the one after which it was asked. `units` are those that
    were recalled, each by the ids of its source turns, `evidence` the turns where the answer stands, `past` what those
    turns say. `dialogue` is the conversation up to the question, `speaker` the one who answers. `likelihood` is that of
    the gold answer under the backbone, where it was asked for. `seconds` and `spent` are by stage: recall, respond.
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
    spent: Mapping[str, Mapping[str, Spent]] = field(default_factory=dict)
    error: str = ""
    type: Literal["answer"] = "answer"


Line = Read | Answer

_FORM: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


def answers_in(path: Path) -> Lines[Line]:
    """The run's file, to be opened with `with` and written to."""
    return Lines(path, _FORM)


def lines_in(path: Path) -> list[Line]:
    """What a run's file holds in the end. Raises BadInput."""
    return settled(read_lines(path, _FORM))


def settled(lines: Iterable[Line]) -> list[Line]:
    """What holds in the end, where failed work was done again: by system and episode, sessions before answers.

    A session that was read again stands for what it was before, and nothing that came after it then holds.
    """
    reads: defaultdict[Work, dict[str, Read]] = defaultdict(dict)
    answers: defaultdict[Work, dict[str, Answer]] = defaultdict(dict)
    for line in lines:
        if isinstance(line, Answer):
            answers[line.work][line.probe] = line
            continue
        held = reads[line.work]
        if line.session in held:
            names = list(held)
            gone = set(names[names.index(line.session) :])
            reads[line.work] = held = {name: one for name, one in held.items() if name not in gone}
            kept = {probe: one for probe, one in answers[line.work].items() if one.session not in gone}
            answers[line.work] = kept
        held[line.session] = line
    found: list[Line] = []
    for work in dict.fromkeys([*reads, *answers]):
        found += reads[work].values()
        found += answers[work].values()
    return found


def unfailed(lines: Iterable[Line]) -> list[Line]:
    """What need not be done again: no failed answer, and nothing from a session on that was not remembered."""
    broken: defaultdict[Work, set[str]] = defaultdict(set)
    kept: list[Line] = []
    for line in settled(lines):
        gone = broken[line.work]
        if isinstance(line, Read) and (line.error or gone):
            gone.add(line.session)
        elif not line.error and line.session not in gone:
            kept.append(line)
    return kept


def answers_of(lines: Sequence[Line]) -> list[Answer]:
    """The answers in an order that does not depend on which thread was first."""
    return sorted((line for line in lines if isinstance(line, Answer)), key=lambda line: (line.work, line.probe))


def reads_of(lines: Sequence[Line]) -> list[Read]:
    """The sessions that were read, likewise."""
    return sorted((line for line in lines if isinstance(line, Read)), key=lambda line: (line.work, line.session))
