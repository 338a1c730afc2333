"""Dialogues that people have cut into segments, read from the published files.

Reads the published forms of TIAGE and SuperDialSeg (JSONL, marks in the text) and of DialSeg711 (JSON). Each utterance
stands as an exchange of its own, for these data have boundaries anywhere. Knows no segmenter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from localmem.files import read_json, read_jsonl, reading
from localmem.segmentation.segmenters import segments_between
from localmem.types import Session, Turn

_LINE = "[NEWLINE]"
_BOUNDARY = "[BOUNDARY]"
_CURE = (
    f"give JSONL with id and dialogue (utterances separated by {_LINE}, segments by {_BOUNDARY}), "
    "or JSON in the format of DialSeg711"
)
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
    with reading(path, _CURE), path.open("rb") as file:
        is_list = file.read(256).lstrip().startswith(b"[")
    if is_list:
        return [_listed(item) for item in read_json(path, TypeAdapter(list[_Listed]), _CURE)]
    return [_marked(item) for item in read_jsonl(path, _Marked, _CURE)]


def _marked(item: _Marked) -> SegmentedDialogue:
    said: list[tuple[str, str]] = []
    starts: set[int] = set()
    for line in item.dialogue.split(_LINE):
        if line.strip() == _BOUNDARY:
            starts.add(len(said))
        elif line.strip():
            speaker, _, text = line.strip().partition(": ")
            said.append((speaker, text))
    return SegmentedDialogue(_session(item.id, said), tuple(segments_between(starts, len(said))))


def _listed(item: _Listed) -> SegmentedDialogue:
    ends = {sum(item.segments[: number + 1]) for number in range(len(item.segments))}
    said = [("agent" if number % 2 else "user", text) for number, text in enumerate(item.utterances)]
    return SegmentedDialogue(_session(str(item.dial_id), said), tuple(segments_between(ends, len(said))))


def _session(name: str, said: Sequence[tuple[str, str]]) -> Session:
    """Every turn bears the user's role, so that each is an exchange; the speaker's name says whose it is."""
    turns = (Turn(f"{name}.{n}", "user", speaker, text, _UNDATED) for n, (speaker, text) in enumerate(said))
    return Session(name, tuple(turns))
