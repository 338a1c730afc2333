"""Labelled sentence pairs to train and judge pair classifiers on, read from the published files and from our own.

Inference pairs (SICK, SNLI, MultiNLI, KLUE-NLI), operation pairs (memory, summary), HaluMem's changes of preference.
Knows no model. How pairs are divided is `finetune.cross_validation`'.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AliasChoices, Field

from localmem.classification.nli_mapping import INFERENCES
from localmem.errors import BadInput
from localmem.evaluation.datasets.files import Record, records
from localmem.text.base import OPERATIONS

SHIPPED = Path(__file__).parent / "data" / "operations.jsonl"  # see finetune/data/README.md

_UNDECIDED = "-"  # SNLI and MultiNLI: the annotators did not agree


class LabelledPair(NamedTuple):
    """Two sentences and what holds between them. Pairs of one `group` stay on one side of every division."""

    first: str
    second: str
    label: str
    group: str


@dataclass(frozen=True, slots=True)
class PairSet:
    """The pairs of a file, in its order, and how many it holds that nobody could label."""

    pairs: tuple[LabelledPair, ...]
    undecided: int = 0


class _Inference(Record):
    premise: str = Field(validation_alias=AliasChoices("sentence1", "premise"))
    hypothesis: str = Field(validation_alias=AliasChoices("sentence2", "hypothesis"))
    gold_label: str


class _Operation(Record):
    memory: str
    summary: str
    label: str
    group: str = ""


class _Point(Record):
    type: Literal["like", "dislike"]
    specific_item: str
    reason: str


class _Points(Record):
    memory_points: list[_Point] = Field(min_length=1)


class _Event(Record):
    event_id: int
    preference_type: str
    update_direction: str
    update_reason: str
    before_preference: _Points
    after_preference: _Points


class _Persona(Record):
    uuid: str
    event_list: list[_Event]


def read_inference(path: Path) -> PairSet:
    """Pairs (premise, hypothesis) labelled as `INFERENCES`, of SICK's table, SNLI's or MultiNLI's JSONL, KLUE's JSON.

    A group is the pairs of one premise; in SICK, whose sentences come back in many pairs and on both sides, it is all
    that hang together through their sentences. Pairs labelled '-' are left out and counted. Raises BadInput.
    """
    if _first_line(path).startswith("pair_ID\t"):
        return PairSet(_linked(_sick(path)))
    found = list(records(path, _Inference))
    decided = [(place, item) for place, item in found if item.gold_label != _UNDECIDED]
    pairs = tuple(
        _pair(place, item.premise, item.hypothesis, item.gold_label, INFERENCES, item.premise)
        for place, item in decided
    )
    if not pairs:
        raise BadInput(f"{path} holds no labelled pair, only {len(found)} marked '-'; give another file")
    return PairSet(pairs, len(found) - len(decided))


def read_operations(path: Path = SHIPPED) -> PairSet:
    """Pairs (memory, summary) with the labels of `OPERATIONS`, from JSONL of memory, summary, label and maybe group.

    Without a group, the pairs of one memory are one. Raises BadInput.
    """
    return PairSet(
        tuple(
            _pair(place, item.memory, item.summary, item.label, OPERATIONS, item.group or item.memory)
            for place, item in records(path, _Operation)
        )
    )


def read_preferences(path: Path) -> PairSet:
    """HaluMem's events of changing preference: Modify is a REPLACE, Delete a DELETE, of what was liked before.

    Only these two labels occur, and they are the data's own view: a changed reason counts as a change, and a preference
    given up as nothing to keep. A persona's events of one kind build on each other: they are a group. Raises BadInput.
    """
    return PairSet(
        tuple(
            _preference(f"{place}, event {event.event_id}", event, f"{persona.uuid}/{event.preference_type}")
            for place, persona in records(path, _Persona)
            for event in persona.event_list
        )
    )


def counts(pairs: Iterable[LabelledPair], labels: Sequence[str]) -> dict[str, int]:
    """How many pairs bear each label. Raises BadInput where one has none: nothing can be learned or said about it."""
    found = Counter(pair.label for pair in pairs)
    missing = [label for label in labels if not found[label]]
    if missing:
        raise BadInput(f"no example of {', '.join(missing)} among {found.total()} pairs; give data with every label")
    return {label: found[label] for label in labels}


def _pair(place: str, first: str, second: str, label: str, labels: Sequence[str], group: str) -> LabelledPair:
    if label not in labels:
        raise BadInput(f"{place}: the label {label!r} is none of {', '.join(labels)}; mend the file")
    if not (first.strip() and second.strip()):
        raise BadInput(f"{place}: a sentence is empty; mend the file")
    return LabelledPair(first.strip(), second.strip(), label, group.strip())


def _preference(place: str, event: _Event, group: str) -> LabelledPair:
    before, after = event.before_preference.memory_points[0], event.after_preference.memory_points[0]
    direction = {"Modify": "REPLACE", "Delete": "DELETE"}.get(event.update_direction, event.update_direction)
    gone = f"No longer {before.type}s {before.specific_item}. {event.update_reason}"
    told = gone if direction == "DELETE" else f"{after.type.capitalize()}s {after.specific_item}. {after.reason}"
    held = f"{before.type.capitalize()}s {before.specific_item}. {before.reason}"
    return _pair(place, held, told, direction, ("REPLACE", "DELETE"), group)


def _first_line(path: Path) -> str:
    """Empty for what cannot be read as text; whoever reads the whole file says so."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            return file.readline()
    except (OSError, UnicodeDecodeError):
        return ""


def _sick(path: Path) -> list[LabelledPair]:
    """SICK's rows, each a group. Its editions name the column of labels differently, and write them in capitals."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}; give SICK's own file") from error
    rows = csv.DictReader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
    pairs = [_sick_pair(f"{path}, line {rows.line_num}", row) for row in rows]
    if not pairs:
        raise BadInput(f"{path} holds no pair, only a heading; give SICK's own file")
    return pairs


def _sick_pair(place: str, row: Mapping[str, str | None]) -> LabelledPair:
    label = row.get("entailment_judgment") or row.get("entailment_label") or ""
    first, second = row.get("sentence_A") or "", row.get("sentence_B") or ""
    return _pair(place, first, second, label.strip().lower(), INFERENCES, row["pair_ID"] or "")


def _linked(pairs: Sequence[LabelledPair]) -> tuple[LabelledPair, ...]:
    """The same pairs; those that share a sentence, with each other or through a third, get one group."""
    above: dict[str, str] = {}

    def head(sentence: str) -> str:
        while (parent := above.setdefault(sentence, sentence)) != sentence:
            above[sentence] = sentence = above[parent]
        return sentence

    for pair in pairs:
        above[head(pair.first)] = head(pair.second)
    return tuple(pair._replace(group=head(pair.first)) for pair in pairs)
