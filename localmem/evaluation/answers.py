"""A run's file: a line for each session that was read and each probe that was answered, written when it happened.

What a system remembered stands in it as changes, so that a run that broke off goes on from the file alone. Knows no
runner and no measure.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from localmem.errors import BadInput
from localmem.evaluation.episodes import Kind
from localmem.llm.wrappers import Spent
from localmem.types import Change


class Work(NamedTuple):
    """What one thread does from beginning to end: one system reads one episode of one data set."""

    system: str
    data: str
    episode: str


@dataclass(frozen=True, slots=True)
class Read:
    """A session that was read; `changes` are what the system remembered of it, `error` why it failed, if it did."""

    work: Work
    session: str
    changes: tuple[Change, ...]
    seconds: float
    spent: Mapping[str, Spent]
    error: str = ""
    type: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe that was answered, or failed to be (`error`).

    `about` is the probe's type in the data set and `session` the one after which it was asked. `units` are those that
    were recalled, each by the ids of its source turns, `evidence` the turns where the answer stands. `seconds` and
    `spent` are by stage: recall and respond.
    """

    work: Work
    probe: str
    kind: Kind
    about: str
    session: str
    question: str
    gold: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    text: str = ""
    recalled: str = ""
    units: tuple[tuple[str, ...], ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, Mapping[str, Spent]] = field(default_factory=dict)
    error: str = ""
    type: Literal["answer"] = "answer"


Line = Read | Answer

_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


class Answers:
    """The file, to be opened with `with`; safe for many threads. What it held when it was opened is in `lines`.

    A last line that was cut off by a kill is dropped: its probe is asked again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._file: IO[bytes] | None = None
        self.lines: tuple[Line, ...] = ()

    def __enter__(self) -> "Answers":
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.lines = tuple(read_lines(self._path)) if self._path.exists() else ()
            self._file = self._path.open("a+b")
            _drop_cut_line(self._file)
        except OSError as error:
            raise BadInput(f"cannot write to {self._path} ({error.strerror}); choose another --out") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def write(self, line: Line) -> None:
        """The line is in the file, in the operating system's hands, on return."""
        text = _LINES.dump_json(line) + b"\n"
        with self._guard:
            if self._file is None:
                raise BadInput(f"{self._path} is not open for answers; open it with `with`")
            self._file.write(text)
            self._file.flush()


def read_lines(path: Path) -> Iterator[Line]:
    """Every whole line. Raises BadInput with file and line."""
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if text.endswith(b"\n"):
                    yield _line(f"{path}, line {number}", text)
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}); give the folder of a run") from error


def answers_of(lines: Sequence[Line]) -> list[Answer]:
    """The answers in an order that does not depend on which thread was first."""
    return sorted((line for line in lines if isinstance(line, Answer)), key=lambda line: (line.work, line.probe))


def reads_of(lines: Sequence[Line]) -> list[Read]:
    """The sessions that were read, likewise."""
    return sorted((line for line in lines if isinstance(line, Read)), key=lambda line: (line.work, line.session))


def _line(place: str, text: bytes) -> Line:
    try:
        return _LINES.validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadInput(f"{place}: {problem['msg']}; the file is not one of this version's runs") from error


def _drop_cut_line(file: IO[bytes]) -> None:
    file.seek(0)
    text = file.read()
    file.truncate(text.rfind(b"\n") + 1)
