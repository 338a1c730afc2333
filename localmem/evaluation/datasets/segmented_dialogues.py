"""Dialogues that people have divided into segments, and the agreement of two segmentations of a dialogue.

Reads the published forms of TIAGE and SuperDialSeg (JSONL, marks in the text) and of DialSeg711 (JSON). Each utterance
is an exchange of its own, since these data have boundaries anywhere. Agreement is F1 of the boundaries, P_k,
WindowDiff, and SeCom's Score of the three, by the protocol of SuperDialSeg, as in SeCom (section 3.3): a measure
of each dialogue, then the mean over all. Does not depend on a segmenter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, TypeAdapter

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import UNDATED
from localmem.files import is_json_list, read_json, read_jsonl
from localmem.segmentation.segmenters import segments_between
from localmem.types import Session, Turn


class Agreement(NamedTuple):
    """Each from 0 to 1; 1 is best for `f1` and `score`, 0 for the two errors."""

    f1: float
    p_k: float
    window_diff: float

    @property
    def score(self) -> float:
        """(2 F1 + (1 - P_k) + (1 - WD)) / 4 (SeCom, section 3.3, footnote 5)."""
        return (2 * self.f1 + (1 - self.p_k) + (1 - self.window_diff)) / 4


def agreement(reference: Sequence[range], predicted: Sequence[range]) -> Agreement:
    """All measures of `predicted` against `reference`, both of the same dialogue."""
    return Agreement(f1(reference, predicted), p_k(reference, predicted), window_diff(reference, predicted))


def mean_agreement(agreements: Sequence[Agreement]) -> Agreement:
    """Each measure's mean over dialogues; the worst values if there are none."""
    if not agreements:
        return Agreement(0.0, 1.0, 1.0)
    return Agreement(*(sum(column) / len(agreements) for column in zip(*agreements, strict=True)))


def f1(reference: Sequence[range], predicted: Sequence[range]) -> float:
    """F1 of the boundaries at exactly the same place; 0 if neither has one, as SuperDialSeg counts it."""
    ours, theirs = _boundaries(reference), _boundaries(predicted)
    return 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 0.0


def p_k(reference: Sequence[range], predicted: Sequence[range], size: int | None = None) -> float:
    """The share of windows with a boundary in one segmentation and none in the other (Beeferman et al., 1999)."""
    pairs = _window_counts(reference, predicted, size)
    return sum((ours > 0) != (theirs > 0) for ours, theirs in pairs) / max(1, len(pairs))


def window_diff(reference: Sequence[range], predicted: Sequence[range], size: int | None = None) -> float:
    """The share of windows in which the number of boundaries differs (Pevzner and Hearst, 2002).

    A window has `size` utterances; by default half the mean length of the reference segments, at least 2, as in
    SuperDialSeg.
    """
    pairs = _window_counts(reference, predicted, size)
    return sum(ours != theirs for ours, theirs in pairs) / max(1, len(pairs))


def window_size(reference: Sequence[range]) -> int:
    """Half the mean length of the segments, rounded, at least 2."""
    return max(2, round(reference[-1].stop / len(reference) / 2)) if reference else 2


def _window_counts(reference: Sequence[range], predicted: Sequence[range], size: int | None) -> list[tuple[int, int]]:
    """The number of boundaries in each window, in the reference and in the prediction."""
    count = reference[-1].stop if reference else 0
    size = min(size or window_size(reference), count)
    ours, theirs = _boundaries(reference), _boundaries(predicted)
    starts = range(count - size + 1) if count else ()
    return [(_count_within(ours, start, size), _count_within(theirs, start, size)) for start in starts]


def _count_within(boundaries: set[int], start: int, size: int) -> int:
    return sum(number in boundaries for number in range(start, start + size))


def _boundaries(segments: Sequence[range]) -> set[int]:
    """The utterances after which a segment ends, without the last of the dialogue."""
    return {segment.stop - 1 for segment in segments[:-1]}


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
    """The dialogues of a file, at least one. Raises BadInput for a file in neither form, and for an empty dialogue."""
    if is_json_list(path, _CURE):
        listed = read_json(path, TypeAdapter(list[_SegmentLengths]), _CURE)
        dialogues = [_from_lengths(path, record) for record in listed]
    else:
        dialogues = [_from_marks(record) for record in read_jsonl(path, _MarkedText, _CURE)]
    if not dialogues or not all(dialogue.segments for dialogue in dialogues):
        empty = [f"dialogue {each.session.id} of {path}" for each in dialogues if not each.segments] or [str(path)]
        raise BadInput(f"{empty[0]} is empty; {_CURE}")
    return dialogues


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


def _from_lengths(path: Path, record: _SegmentLengths) -> SegmentedDialogue:
    if sum(record.segments) != len(record.utterances) or min(record.segments, default=0) < 1:
        raise BadInput(
            f"dialogue {record.dial_id} of {path} has {len(record.utterances)} utterances and the segments "
            f"{record.segments}; give lengths of 1 or more that add up to the utterances"
        )
    ends = {sum(record.segments[: number + 1]) for number in range(len(record.segments))}
    utterances = [("agent" if number % 2 else "user", text) for number, text in enumerate(record.utterances)]
    return SegmentedDialogue(_session(str(record.dial_id), utterances), tuple(segments_between(ends, len(utterances))))


def _session(name: str, utterances: Sequence[tuple[str, str]]) -> Session:
    """Every turn has the user's role, so that each is an exchange; the speaker is in the speaker's name."""
    turns = (Turn(f"{name}.{n}", "user", speaker, text, UNDATED) for n, (speaker, text) in enumerate(utterances))
    return Session(name, tuple(turns))
