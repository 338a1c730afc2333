"""Dialogues that people have cut into segments, read from the published files.

Reads the published forms of TIAGE and SuperDialSeg (JSONL, marks in the text) and of DialSeg711 (JSON). Each utterance
stands as an exchange of its own, for these data have boundaries anywhere. Knows no segmenter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from localmem.errors import BadInput
from localmem.segmentation.segmenters import between
from localmem.types import Session, Turn

_LINE = "[NEWLINE]"
_BOUNDARY = "[BOUNDARY]"
_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # these dialogues have no times


@dataclass(frozen=True, slots=True)
class SegmentedDialogue:
    """A dialogue and its right segments, as ranges over its exchanges."""

    session: Session
    segments: tuple[range, ...]


class _Marked(BaseModel):
    id: str
    dialogue: str


class _Listed(BaseModel):
    dial_id: int | str
    utterances: list[str]
    segments: list[int]


def read_segmented_dialogues(path: Path) -> list[SegmentedDialogue]:
    """The dialogues of a file. Raises BadInput for a file in neither form."""
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("["):
            return [_listed(item) for item in TypeAdapter(list[_Listed]).validate_json(text)]
        return [_marked(_Marked.model_validate_json(line)) for line in text.split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        problem = str(error).splitlines()[0]
        raise BadInput(
            f"cannot read labelled dialogues from {path}: {problem}; give JSONL with id and dialogue "
            f"(utterances parted by {_LINE}, segments by {_BOUNDARY}), or JSON as DialSeg711 has it"
        ) from error


def _marked(item: _Marked) -> SegmentedDialogue:
    said: list[tuple[str, str]] = []
    starts: set[int] = set()
    for line in item.dialogue.split(_LINE):
        if line.strip() == _BOUNDARY:
            starts.add(len(said))
        elif line.strip():
            speaker, _, text = line.strip().partition(": ")
            said.append((speaker, text))
    return SegmentedDialogue(_session(item.id, said), tuple(between(starts, len(said))))


def _listed(item: _Listed) -> SegmentedDialogue:
    ends = {sum(item.segments[: number + 1]) for number in range(len(item.segments))}
    said = [("agent" if number % 2 else "user", text) for number, text in enumerate(item.utterances)]
    return SegmentedDialogue(_session(str(item.dial_id), said), tuple(between(ends, len(said))))


def _session(name: str, said: Sequence[tuple[str, str]]) -> Session:
    """Every turn bears the user's role, so that each is an exchange; the speaker's name says whose it is."""
    turns = (Turn(f"{name}.{n}", "user", speaker, text, _UNDATED) for n, (speaker, text) in enumerate(said))
    return Session(name, tuple(turns))
