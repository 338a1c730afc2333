"""Recognises the format of a file of past conversations and reads it: nothing is lost in silence.

A record that cannot be read is skipped and named in `skipped`, with whatever else is not read; a file of which nothing
can be read is an error. localmem's own JSON lines are stricter: there a bad record is an error with file and line.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile, is_zipfile

from localmem.errors import BadInput
from localmem.files import read_lines, read_text, reading
from localmem.transfer import character_card, chatgpt, claude, letta, mem0, open_webui, sharegpt
from localmem.transfer.drafts import Draft, FileDefaults, Record, date_draft, records_with
from localmem.transfer.session_lines import CURE, parse_session
from localmem.types import Session

_LISTS = ("results", "memories")  # fields in which programs return a list of records
_CURE = f"{CURE}, or an export that `localmem remember --help` names"


class _Format(NamedTuple):
    name: str
    keys: Sequence[str]
    read: Callable[[Record], Iterable[Draft]]


_FORMATS = (
    _Format("ChatGPT", chatgpt.KEYS, chatgpt.read),
    _Format("Claude", claude.KEYS, claude.read),
    _Format("Open WebUI", open_webui.KEYS, open_webui.read),
    _Format("mem0", mem0.KEYS, mem0.read),
    _Format("Letta", letta.FILE_KEYS, letta.read_file),
    _Format("Letta", letta.AGENT_KEYS, letta.read_agent),
    _Format("Letta passages", letta.PASSAGE_KEYS, letta.read_passage),
    _Format("character card", character_card.KEYS, character_card.read),
    _Format("ShareGPT", sharegpt.KEYS, sharegpt.read),
)


@dataclass(frozen=True, slots=True)
class Imported:
    """Sessions in the order of their first turns, and a line for each thing that was not read, and why."""

    format: str
    sessions: list[Session]
    skipped: list[str] = field(default_factory=list)


def read_sessions(path: Path, defaults: FileDefaults | None = None) -> list[Session]:
    """The sessions of a file in the order of their first turns. Raises BadInput."""
    return import_file(path, defaults).sessions


def import_file(path: Path, defaults: FileDefaults | None = None, owner: str | None = None) -> Imported:
    """The sessions of a file. `owner` is whose records to read in a dump of several users.

    Raises BadInput for a file of which nothing can be read, and for one of several users without the owner.
    """
    defaults = defaults or FileDefaults()
    document, skipped = _read_document(path)
    for form in _FORMATS:
        if records := records_with(document, *form.keys):
            imported = _read_records(path, form, _of_owner(path, records, owner, skipped), defaults, skipped)
            break
    else:
        imported = Imported("localmem", _read_own_lines(path, document, defaults))
    imported.sessions.sort(key=lambda session: session.turns[0].time)
    return imported


def _read_own_lines(path: Path, document: object, defaults: FileDefaults) -> list[Session]:
    first = document[0] if isinstance(document, list) and document else document
    if isinstance(first, Mapping) and first.get("localmem") == "export":
        raise BadInput(f"{path} is a full export of localmem; use `localmem import`")
    if isinstance(document, list) and not all(isinstance(record, Mapping) for record in document):
        raise BadInput(f"{path} is not a list of records; {_CURE}")
    if path.suffix == ".zip" or (isinstance(document, list) and _is_json(path)):
        raise BadInput(f"{path} contains no known records; {_CURE}")
    sessions = dict[str, Session]()
    for place, line in read_lines(path, CURE):
        session = parse_session(line, place, defaults)
        if sessions.setdefault(session.id, session) != session:
            raise BadInput(f"{place}: another session has the id {session.id!r}; give each an id of its own")
    if not sessions:
        raise BadInput(f"{path} does not contain sessions; each line must be one session with its turns")
    return list(sessions.values())


def _read_records(
    path: Path, form: _Format, records: Sequence[Record], defaults: FileDefaults, skipped: list[str]
) -> Imported:
    sessions: dict[str, Session] = {}
    for number, record in enumerate(records, start=1):
        place = f"{path}, {form.name} record {number}"
        try:
            for draft in form.read(record):
                if draft.turns and draft.id not in sessions:
                    sessions[draft.id] = date_draft(draft, defaults)
                elif not draft.omitted:
                    skipped.append(f"{place}: {'is there twice' if draft.turns else 'has no words of anybody'}")
                skipped += [f"{place}: {line}" for line in draft.omitted]
        except BadInput as error:
            skipped.append(f"{place} {error}")
    if not sessions:
        raise BadInput(f"nothing in {path} can be read; the first reason: {skipped[0] if skipped else 'it is empty'}")
    return Imported(form.name, list(sessions.values()), skipped)


def _of_owner(path: Path, records: list[Record], owner: str | None, skipped: list[str]) -> list[Record]:
    """The records of one user. Raises BadInput where there are several and none is named: each has their own memory."""
    owners = sorted({str(record["user_id"]) for record in records if record.get("user_id")})
    if len(owners) < 2 and owner in (None, *owners):
        return records
    if owner not in owners:
        raise BadInput(f"{path} belongs to {', '.join(owners) or 'nobody by name'}; name one with --source-user")
    chosen = [record for record in records if record.get("user_id") == owner]
    skipped.append(f"{path}: {len(records) - len(chosen)} records of other users are not read")
    return chosen


# -- files ---------------------------------------------------------------------------------------------------------


def _read_document(path: Path) -> tuple[object, list[str]]:
    """The value of a JSON file, of all lines of a JSON-lines file as a list, of a card, or of an archive."""
    with reading(path, _CURE), path.open("rb") as file:
        start = file.read(len(character_card.PNG))
    if start == character_card.PNG:
        return character_card.read_card(path), []
    if is_zipfile(path):
        return _read_archive(path)
    text = read_text(path, _CURE)
    try:
        document = json.loads(text)
    except ValueError:
        return list(_line_values(text)), []
    return _unwrap(document), []


def _line_values(text: str) -> Iterator[object]:
    """The lines that are JSON; those that are not are reported when the file is read as localmem's own."""
    for line in text.split("\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _unwrap(document: object) -> object:
    if isinstance(document, Mapping):
        return next((document[key] for key in _LISTS if isinstance(document.get(key), list)), document)
    return document


def _is_json(path: Path) -> bool:
    return read_text(path).lstrip().startswith("[")


def _read_archive(path: Path) -> tuple[object, list[str]]:
    """The conversations of an export as it is downloaded, and which other JSON files of it are not read."""
    records: list[object] = []
    others: list[str] = []
    try:
        with ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if Path(name).name.startswith("conversations") and name.endswith(".json"):
                    document = json.loads(archive.read(name))
                    records += document if isinstance(document, list) else [document]
                elif name.endswith(".json"):
                    others.append(name)
    except (BadZipFile, ValueError, OSError) as error:
        raise BadInput(f"cannot read {path} ({error}); unpack it and give its conversations.json") from error
    return records, [f"{path}: {', '.join(others)} are not read"] if others else []
