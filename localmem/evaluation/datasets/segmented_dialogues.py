"""Dialogues that people have divided into segments, read from the published files.

Reads the published forms of TIAGE and SuperDialSeg (JSONL, marks in the text) and of DialSeg711 (JSON). Each utterance
is an exchange of its own, since these data have boundaries anywhere. Does not depend on a segmenter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from localmem.evaluation.datasets.readers import UNDATED
from localmem.files import read_json, read_jsonl, reading
from localmem.segmentation.segmenters import segments_between
from localmem.types import Session, Turn

_LINE = "[NEWLINE]"
_BOUNDARY = "[BOUNDARY]"
_CURE = (
    f"give JSONL with id and dialogue (utterances separated by {_LINE}, segments by {_BOUNDARY}), "
    "or JSON in the format of DialSeg711"
)


@dataclass(frozen=True, slots=True)
class SegmentedDialogue:
    """A dialogue and its correct segments, as ranges over its exchanges."""

    session: Session
    segments: tuple[range, ...]


class _MarkedText(BaseModel):
    id: str
    dialogue: str


class _SegmentLengths(BaseModel):
    dial_id: int | str
    utterances: list[str]
    segments: list[int]


def read_segmented_dialogues(path: Path) -> list[SegmentedDialogue]:
    """The dialogues of a file. Raises BadInput for a file in neither form."""
    with reading(path, _CURE), path.open("rb") as file:
        is_list = file.read(256).lstrip().startswith(b"[")
    if is_list:
        return [_from_lengths(record) for record in read_json(path, TypeAdapter(list[_SegmentLengths]), _CURE)]
    return [_from_marks(record) for record in read_jsonl(path, _MarkedText, _CURE)]


def _from_marks(record: _MarkedText) -> SegmentedDialogue:
    utterances: list[tuple[str, str]] = []
    starts: set[int] = set()
    for line in record.dialogue.split(_LINE):
        if line.strip() == _BOUNDARY:
            starts.add(len(utterances))
        elif line.strip():
            speaker, _, text = line.strip().partition(": ")
            utterances.append((speaker, text))
    return SegmentedDialogue(_session(record.id, utterances), tuple(segments_between(starts, len(utterances))))


def _from_lengths(record: _SegmentLengths) -> SegmentedDialogue:
    ends = {sum(record.segments[: number + 1]) for number in range(len(record.segments))}
    utterances = [("agent" if number % 2 else "user", text) for number, text in enumerate(record.utterances)]
    return SegmentedDialogue(_session(str(record.dial_id), utterances), tuple(segments_between(ends, len(utterances))))


def _session(name: str, utterances: Sequence[tuple[str, str]]) -> Session:
    """Every turn has the user's role, so that each is an exchange; the speaker is in the speaker's name."""
    turns = (Turn(f"{name}.{n}", "user", speaker, text, UNDATED) for n, (speaker, text) in enumerate(utterances))
    return Session(name, tuple(turns))
