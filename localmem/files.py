"""Reading, checking and writing files: one clear error for each way it can fail, and no half-written file.

Every error is a BadInput of one line: what failed, the path, the reason, the cure. Does not depend on what the files
contain.
"""

import json
import os
import subprocess
import sys
import threading
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from secrets import token_hex
from typing import IO, Generic, TypeVar, cast

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from localmem.errors import BadInput, without_passwords

Record = TypeVar("Record")
Form = TypeAdapter[Record] | type[Record]
Part = str | bytes | memoryview

READABLE = "give a readable UTF-8 file"
WRITABLE = "choose another path"
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast, where it was built in
_PEEK = 256  # bytes that show whether a file is a list
_WIDTH = 60  # characters of a wrong value that an error shows
_NOT_A_VALUE = {"missing", "json_invalid"}  # pydantic errors whose input is the whole record
_COPY = "import shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), sys.stdout.buffer)"


def one_line(error: ValidationError) -> str:
    """The first problem of a pydantic error in a file: `field.path: message (got value)`."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(map(str, problem["loc"]))
    value = problem["input"]
    scalar = value is None or isinstance(value, str | int | float)
    quoted = f" (got {value!r:.{_WIDTH}})" if scalar and problem["type"] not in _NOT_A_VALUE else ""
    return f"{place}{': ' if place else ''}{problem['msg'].removeprefix('Value error, ')}{quoted}"


def validation_line(
    error: ValidationError, model: type[BaseModel], noun: str, secrets: Collection[str] = frozenset()
) -> str:
    """The first problem of a pydantic error in what a user set: the path of the `noun`, the value, the nearest name.

    Of `secrets` neither the value is shown, nor a name right below them.
    """
    problem = error.errors(include_url=False)[0]
    parts = [str(part) for part in problem["loc"]]
    secret = next((size for size in range(1, len(parts) + 1) if ".".join(parts[:size]) in secrets), None)
    if secret:
        parts[secret : secret + 1] = ["***"] * (len(parts) > secret)
    path = ".".join(parts)
    if problem["type"] == "missing":
        return f"{noun} {path!r} is required; set it"
    if problem["type"] != "extra_forbidden":
        value = "'***'" if secret else without_passwords(repr(problem["input"]))
        return f"{noun} {path!r} cannot be {value}: {problem['msg'].removeprefix('Value error, ')}"
    *parents, name = parts
    for part in parents:
        field = model.model_fields.get(part)
        inner = field.annotation if field else None
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else model
    return f"unknown {noun} {path!r}{nearest(name, model.model_fields, path.removesuffix(name))}"


def nearest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """` (did you mean 'x'?)` for the most similar of the names, with the prefix before it, or an empty string."""
    close = get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" (did you mean {prefix + close[0]!r}?)" if close else ""


@contextmanager
def reading(path: Path | str, cure: str = READABLE) -> Iterator[None]:
    """Turns an OSError or a decoding error of the block into a BadInput about reading `path`."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror or error}); {cure}") from error
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: {error.reason} at byte {error.start}"
        raise BadInput(f"cannot read {path} ({reason}); {cure}") from error


@contextmanager
def writing(path: Path | str, cure: str = WRITABLE) -> Iterator[None]:
    """Turns an OSError of the block into a BadInput about writing `path`."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror or error}); {cure}") from error


def read_text(path: Path, cure: str = READABLE) -> str:
    """A UTF-8 file, without a byte order mark. Raises BadInput."""
    with reading(path, cure):
        return path.read_text(encoding="utf-8-sig")


@contextmanager
def open_apart(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, read by a process of its own. Raises BadInput where the whole file could not be read.

    A process that closes a file loses all its locks on it (POSIX), and so SQLite's connections lose theirs; a program
    that then closes the database takes itself for the last one and deletes the log to which the others still write.
    """
    command = [sys.executable, "-I", "-S", "-c", _COPY, str(path)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        content, errors = cast(tuple[IO[bytes], IO[bytes]], (child.stdout, child.stderr))  # pipes, as asked for
        yield content
        is_at_end = not content.read(1)
        content.close()
        reason = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
    if is_at_end and child.returncode:
        raise BadInput(f"cannot read {path} ({reason}); {READABLE}")


def is_json_list(path: Path, cure: str = READABLE) -> bool:
    """Whether a file begins as a JSON list and not as JSON lines. Raises BadInput."""
    with reading(path, cure), path.open("rb") as file:
        return file.read(_PEEK).removeprefix(BOM_UTF8).lstrip().startswith(b"[")


def read_json(path: Path, form: Form[Record], cure: str = READABLE) -> Record:
    """A JSON file as a checked value. Raises BadInput."""
    return parse_json(str(path), read_text(path, cure), form, cure)


def read_yaml(path: Path, cure: str = "give `key: value` lines") -> dict[str, object]:
    """A YAML file that holds a mapping; an empty file is an empty mapping. Raises BadInput with the line if known."""
    text = read_text(path)
    try:
        content = yaml.load(text, Loader=_YAML_LOADER)  # noqa: S506  # a safe one
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is not YAML: {' '.join(str(error).split())}; {cure}") from error
    if not isinstance(content or {}, dict):
        raise BadInput(f"{path} holds a {type(content).__name__}, not a mapping; {cure}")
    return content or {}


def parse(place: str, value: object, form: Form[Record], cure: str) -> Record:
    """A Python value as a checked record. Raises BadInput that begins with `place`."""
    try:
        return _adapter(form).validate_python(value)
    except ValidationError as error:
        raise BadInput(f"{place}: {one_line(error)}; {cure}") from error


def parse_json(place: str, text: str | bytes, form: Form[Record], cure: str) -> Record:
    """A JSON text as a checked record. Raises BadInput that begins with `place`."""
    try:
        return _adapter(form).validate_json(text)
    except ValidationError as error:
        raise BadInput(f"{place}: {one_line(error)}; {cure}") from error


def read_lines(path: Path, cure: str = READABLE) -> Iterator[tuple[str, str]]:
    """Each non-blank line of a UTF-8 file with its place, `FILE, line N`. Raises BadInput.

    Only a line feed ends a line, for JSON texts may contain the other characters that `str.splitlines` splits at.
    """
    with reading(path, cure):
        file = path.open("rb")
    with file:
        for number, line in enumerate(file, start=1):
            with reading(f"{path}, line {number}", cure):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            if text.strip():
                yield f"{path}, line {number}", text


def read_jsonl(path: Path, form: Form[Record], cure: str = "give one JSON record per line") -> Iterator[Record]:
    """Every record of a file of JSON lines. Raises BadInput with file and line."""
    adapter = _adapter(form)
    for place, text in read_lines(path, cure):
        yield parse_json(place, text, adapter, cure)


def read_log(path: Path, form: Form[Record]) -> Iterator[Record]:
    """The records of a JsonlLog; a last line without its line feed was cut off and is skipped. Raises BadInput."""
    adapter, cure = _adapter(form), "give a run of this version"
    with reading(path, cure):
        file = path.open("rb")
    with file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield parse_json(f"{path}, line {number}", line, adapter, cure)


def write_atomic(path: Path, content: Part | Iterable[Part], cure: str = WRITABLE, *, mode: int = 0o666) -> None:
    """Replaces the file in one step: readers and a crash see the old content or the new one. Raises BadInput.

    Makes missing folders. `content` may be an iterable of parts, which are written as they come; when it or the disk
    fails, the old file stays and nothing else is left behind. `mode` is limited by the umask.
    """
    parts = [content] if isinstance(content, str | bytes | memoryview) else content
    with writing(path, cure):
        if path.exists() and not path.is_file():  # a pipe or a device such as /dev/stdout, which nothing can replace
            with path.open("wb") as stream:
                stream.writelines(map(_to_bytes, parts))
            return
        target = Path(os.path.realpath(path))  # through a link, which stays
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{token_hex(4)}.partial")
        try:
            # In the same folder, because a rename is atomic within one file system only. Without the fsync a power
            # cut soon after could leave the new name with no content.
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.writelines(map(_to_bytes, parts))
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: object, cure: str = WRITABLE, *, indent: int = 2) -> None:
    """Replaces the file by the value as indented JSON. Raises BadInput."""
    write_atomic(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n", cure)


def write_jsonl(path: Path, rows: Iterable[object], cure: str = WRITABLE) -> None:
    """Replaces the file by one JSON line per row. Raises BadInput."""
    write_atomic(path, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows), cure)


class JsonlLog(Generic[Record]):
    """A JSON-lines file that grows while work is done, and from which interrupted work resumes.

    Opened with `with`; safe for many threads. `records` are those that the file contained when it was opened. A last
    line that a kill cut off is dropped: its work is done again.
    """

    def __init__(self, path: Path, form: TypeAdapter[Record]) -> None:
        self._path = path
        self._form = form
        self._guard = threading.Lock()
        self._file: IO[bytes] | None = None
        self.records: tuple[Record, ...] = ()

    def __enter__(self) -> "JsonlLog[Record]":
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.records = tuple(read_log(self._path, self._form)) if self._path.exists() else ()
            self._file = self._path.open("a+b")
            self._file.seek(0)
            self._file.truncate(self._file.read().rfind(b"\n") + 1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def append(self, record: Record) -> None:
        """On return the record is with the operating system: it survives a kill of the process, not a power cut."""
        line = self._form.dump_json(record) + b"\n"
        with self._guard:
            if self._file is None:
                raise BadInput(f"{self._path} is not open for writing; open it with `with`")
            self._file.write(line)
            self._file.flush()


def _adapter(form: Form[Record]) -> TypeAdapter[Record]:
    return form if isinstance(form, TypeAdapter) else TypeAdapter(form)


def _to_bytes(part: Part) -> bytes | memoryview:
    return part.encode() if isinstance(part, str) else part
