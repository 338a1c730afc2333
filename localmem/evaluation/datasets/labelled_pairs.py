"""Readers for labelled sentence pairs: inference (SICK, SNLI, MultiNLI, KLUE-NLI) and memory operations.

Does not depend on any model. `finetune.operation_pairs` divides the pairs into folds.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AliasChoices, AliasPath, Field

from localmem.classification import OPERATIONS
from localmem.classification.pair_classifier import INFERENCES
from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import Record, read_records
from localmem.files import read_text

SHIPPED = Path(__file__).parent.parent / "data" / "operations" / "operations.jsonl"  # described in the README beside it

_UNDECIDED = "-"  # SNLI and MultiNLI: the annotators did not agree


class LabelledPair(NamedTuple):
    """Two sentences and the label of their relation. Pairs of one `group` stay on one side of every division."""

    first: str
    second: str
    label: str
    group: str


@dataclass(frozen=True, slots=True)
class PairSet:
    """The pairs of a file in file order, and how many pairs without an agreed label were skipped."""

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


class _Event(Record):
    event_id: int
    preference_type: str
    update_direction: str
    update_reason: str
    before: _Point = Field(validation_alias=AliasPath("before_preference", "memory_points", 0))
    after: _Point = Field(validation_alias=AliasPath("after_preference", "memory_points", 0))


class _Persona(Record):
    uuid: str
    event_list: list[_Event]


def read_inference(path: Path) -> PairSet:
    """Read (premise, hypothesis) pairs labelled as in `INFERENCES`: SICK's table, SNLI or MultiNLI JSONL, KLUE's JSON.

    A group is all pairs of one premise. SICK repeats its sentences in many pairs and on both sides, so there a group is
    a connected component of sentences. Pairs labelled '-' are skipped and counted. Raises BadInput.
    """
    if _first_line(path).startswith("pair_ID\t"):
        return PairSet(_connected_groups(_read_sick(path)))
    records = list(read_records(path, _Inference))
    decided = [(place, record) for place, record in records if record.gold_label != _UNDECIDED]
    pairs = tuple(
        _pair(place, record.premise, record.hypothesis, record.gold_label, INFERENCES, record.premise)
        for place, record in decided
    )
    if not pairs:
        raise BadInput(f"{path} holds no labelled pair: all {len(records)} are marked '-'; use another file")
    return PairSet(pairs, len(records) - len(decided))


def read_operations(path: Path = SHIPPED) -> PairSet:
    """Read (memory, summary) pairs labelled as in `OPERATIONS`: JSONL of memory, summary, label and optionally group.

    Pairs without a group are grouped by memory. HaluMem's file of personas is recognised, too: its changes of
    preference are REPLACE and DELETE pairs. Raises BadInput.
    """
    if '"event_list"' in _first_line(path):
        return PairSet(tuple(_halumem_pairs(path)))
    pairs = (
        _pair(place, record.memory, record.summary, record.label, OPERATIONS, record.group or record.memory)
        for place, record in read_records(path, _Operation)
    )
    return PairSet(tuple(pairs))


def count_labels(pairs: Iterable[LabelledPair], labels: Sequence[str]) -> dict[str, int]:
    """Number of pairs for each label. Raises BadInput if a label has no example, since it cannot be learned."""
    counts = Counter(pair.label for pair in pairs)
    missing = [label for label in labels if not counts[label]]
    if missing:
        raise BadInput(f"no example of {', '.join(missing)} among {counts.total()} pairs; add data with every label")
    return {label: counts[label] for label in labels}


def _pair(place: str, first: str, second: str, label: str, labels: Sequence[str], group: str) -> LabelledPair:
    if label not in labels:
        raise BadInput(f"{place}: the label {label!r} is not one of {', '.join(labels)}; correct the file")
    if not (first.strip() and second.strip()):
        raise BadInput(f"{place}: a sentence is empty; correct the file")
    return LabelledPair(first.strip(), second.strip(), label, group.strip())


def _halumem_pairs(path: Path) -> Iterable[LabelledPair]:
    """HaluMem's events of changing preference: Modify is a REPLACE and Delete a DELETE of the earlier preference.

    These labels are the data's own view: a changed reason counts as a change. A persona's events of one kind build on
    each other, so they form a group.
    """
    for place, persona in read_records(path, _Persona):
        for event in persona.event_list:
            before, after, where = event.before, event.after, f"{place}, event {event.event_id}"
            label = {"Modify": "REPLACE", "Delete": "DELETE"}.get(event.update_direction, event.update_direction)
            memory = f"{before.type.capitalize()}s {before.specific_item}. {before.reason}"
            if label == "DELETE":
                summary = f"No longer {before.type}s {before.specific_item}. {event.update_reason}"
            else:
                summary = f"{after.type.capitalize()}s {after.specific_item}. {after.reason}"
            group = f"{persona.uuid}/{event.preference_type}"
            yield _pair(where, memory, summary, label, ("REPLACE", "DELETE"), group)


def _first_line(path: Path) -> str:
    """Empty if the file is not readable text; the reader of the whole file reports that."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            return file.readline()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_sick(path: Path) -> list[LabelledPair]:
    """SICK's rows, each in its own group. Its editions differ in the name of the label column and write capitals."""
    pairs: list[LabelledPair] = []
    text = read_text(path, "use SICK's own file")
    rows = csv.DictReader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
    for row in rows:
        label = row.get("entailment_judgment") or row.get("entailment_label") or ""
        first, second = row.get("sentence_A") or "", row.get("sentence_B") or ""
        place = f"{path}, line {rows.line_num}"
        pairs.append(_pair(place, first, second, label.strip().lower(), INFERENCES, row["pair_ID"] or ""))
    if not pairs:
        raise BadInput(f"{path} holds no pair, only a heading; use SICK's own file")
    return pairs


def _connected_groups(pairs: Sequence[LabelledPair]) -> tuple[LabelledPair, ...]:
    """The same pairs; those that share a sentence, directly or through other pairs, get one group (union-find)."""
    parents: dict[str, str] = {}

    def root(sentence: str) -> str:
        while (parent := parents.setdefault(sentence, sentence)) != sentence:
            parents[sentence] = sentence = parents[parent]
        return sentence

    for pair in pairs:
        parents[root(pair.first)] = root(pair.second)
    return tuple(pair._replace(group=root(pair.first)) for pair in pairs)
