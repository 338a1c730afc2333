"""A file of JSON lines that grows while work is done, and from which work that broke off goes on.

Knows nothing of what the lines say.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from localmem.errors import BadInput

Line = TypeVar("Line")


class Lines(Generic[Line]):
    """The file, to be opened with `with`; safe for many threads. What it held when it was opened is in `held`.

    A last line that was cut off by a kill is dropped: what it stood for is done again.
    """

    def __init__(self, path: Path, form: TypeAdapter[Line]) -> None:
        self._path = path
        self._form = form
        self._guard = threading.Lock()
        self._file: IO[bytes] | None = None
        self.held: tuple[Line, ...] = ()

    def __enter__(self) -> "Lines[Line]":
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.held = tuple(read_lines(self._path, self._form)) if self._path.exists() else ()
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
        text = self._form.dump_json(line) + b"\n"
        with self._guard:
            if self._file is None:
                raise BadInput(f"{self._path} is not open for writing; open it with `with`")
            self._file.write(text)
            self._file.flush()


def read_lines(path: Path, form: TypeAdapter[Line]) -> Iterator[Line]:
    """Every whole line. Raises BadInput with file and line."""
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if text.endswith(b"\n"):
                    yield _read(f"{path}, line {number}", text, form)
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}); give the folder of a run") from error


def _read(place: str, text: bytes, form: TypeAdapter[Line]) -> Line:
    try:
        return form.validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadInput(f"{place}: {problem['msg']}; the file is not one of this version's runs") from error


def _drop_cut_line(file: IO[bytes]) -> None:
    file.seek(0)
    text = file.read()
    file.truncate(text.rfind(b"\n") + 1)
