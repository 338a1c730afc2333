"""Readers for labelled pairs: published formats, undecided pairs and malformed files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localmem.classification.pair_classifier import INFERENCES
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import (
    LabelledPair,
    PairSet,
    count_labels,
    read_inference,
    read_operations,
)

SICK = """pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment
1\tA boy is running\tA "child" runs\t4.5\tENTAILMENT
2\tA dog sleeps\tNo dog sleeps\t3.2\tCONTRADICTION
3\tA cat sleeps\tA boy is running\t1.2\tNEUTRAL
"""
SNLI = [
    {"sentence1": "A man plays.", "sentence2": "Someone plays.", "gold_label": "entailment", "captionID": "7.jpg#1"},
    {"sentence1": "A man plays.", "sentence2": "He is sad.", "gold_label": "-", "captionID": "7.jpg#1"},
    {"sentence1": "A man plays.", "sentence2": "He is old.", "gold_label": "neutral", "captionID": "7.jpg#1"},
]
KLUE = [
    {
        "guid": "klue-nli-v1_train_00000",
        "genre": "NSMC",
        "premise": "강아지가 잔다.",
        "hypothesis": "강아지가 달린다.",
        "gold_label": "contradiction",
        "author": "contradiction",
    }
]
OPERATIONS = [
    {"memory": "Has a cold.", "summary": "The cold is gone.", "label": "DELETE", "group": "cold"},
    {"memory": "Has a dog.", "summary": "The dog likes carrots.", "label": "APPEND"},
]


def _event(number: int, direction: str, before: tuple[str, str, str], after: tuple[str, str, str]) -> dict[str, Any]:
    points = [dict(zip(("type", "specific_item", "reason"), point, strict=True)) for point in (before, after)]
    return {
        "event_id": number,
        "preference_type": "Pet Preference",
        "update_direction": direction,
        "update_reason": "An aquarium was too much work.",
        "before_preference": {"memory_points": points[:1]},
        "after_preference": {"memory_points": points[1:]},
    }


FISH = ("like", "Fish", "They are calm.")
PERSONA = {
    "uuid": "u1",
    "event_list": [
        _event(1, "Modify", ("dislike", "Dogs", "They bark."), ("like", "Dogs", "They are loyal.")),
        _event(2, "Delete", FISH, FISH),
    ],
}


def _lines(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _text(folder: Path, text: str) -> Path:
    path = folder / "pairs.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_sick_pairs_that_hang_together_are_a_group(tmp_path: Path) -> None:
    first, second, third = read_inference(_text(tmp_path, SICK)).pairs
    assert first[:3] == ("A boy is running", 'A "child" runs', "entailment")
    assert (second.label, third.label) == ("contradiction", "neutral")
    assert first.group == third.group != second.group  # they share a sentence, on different sides


def test_the_other_edition_of_sick_names_its_labels_otherwise(tmp_path: Path) -> None:
    text = SICK.replace("entailment_judgment", "entailment_label")
    assert [pair.label for pair in read_inference(_text(tmp_path, text)).pairs] == [
        "entailment",
        "contradiction",
        "neutral",
    ]


def test_undecided_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    assert read_inference(_lines(tmp_path, SNLI)) == PairSet(
        (
            LabelledPair("A man plays.", "Someone plays.", "entailment", "A man plays."),
            LabelledPair("A man plays.", "He is old.", "neutral", "A man plays."),
        ),
        undecided=1,
    )


def test_klue_is_a_list_in_korean(tmp_path: Path) -> None:
    path = _text(tmp_path, json.dumps(KLUE, ensure_ascii=False))
    (pair,) = read_inference(path).pairs
    assert pair == LabelledPair("강아지가 잔다.", "강아지가 달린다.", "contradiction", "강아지가 잔다.")


def test_operations_without_a_group_are_grouped_by_memory(tmp_path: Path) -> None:
    cold, dog = read_operations(_lines(tmp_path, OPERATIONS)).pairs
    assert cold == LabelledPair("Has a cold.", "The cold is gone.", "DELETE", "cold")
    assert dog.group == "Has a dog."


def test_a_changed_preference_replaces_and_a_dropped_one_deletes(tmp_path: Path) -> None:
    modified, deleted = read_operations(_lines(tmp_path, [PERSONA])).pairs
    assert modified[:3] == ("Dislikes Dogs. They bark.", "Likes Dogs. They are loyal.", "REPLACE")
    assert deleted[:3] == (
        "Likes Fish. They are calm.",
        "No longer likes Fish. An aquarium was too much work.",
        "DELETE",
    )
    assert modified.group == deleted.group == "u1/Pet Preference"


def test_an_unknown_direction_names_its_event(tmp_path: Path) -> None:
    persona = {"uuid": "u1", "event_list": [_event(9, "Swap", FISH, FISH)]}
    with pytest.raises(BadInput, match=r"line 1, event 9: the label 'Swap' is not one of REPLACE, DELETE"):
        read_operations(_lines(tmp_path, [persona]))


@pytest.mark.parametrize(
    "read, row, message",
    [
        (read_operations, {**OPERATIONS[0], "label": "MERGE"}, "line 2: the label 'MERGE' is not one of PASS, APPEND"),
        (read_operations, {**OPERATIONS[0], "summary": " "}, "line 2: a sentence is empty"),
        (read_operations, {"memory": "Has a cold."}, "line 2: summary: Field required"),
        (read_inference, {**SNLI[0], "gold_label": "maybe"}, "line 2: the label 'maybe' is not one of entailment"),
        (read_inference, {"sentence1": "A man plays.", "gold_label": "neutral"}, "line 2: sentence2: Field required"),
    ],
)
def test_a_bad_line_is_named(
    tmp_path: Path, read: Callable[[Path], PairSet], row: dict[str, Any], message: str
) -> None:
    good = OPERATIONS[0] if read is read_operations else SNLI[0]
    with pytest.raises(BadInput, match=message) as caught:
        read(_lines(tmp_path, [good, row]))
    assert "\n" not in str(caught.value)


def test_a_bad_label_in_sick_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"line 3: the label 'unsure' is not one of entailment"):
        read_inference(_text(tmp_path, SICK.replace("CONTRADICTION", "UNSURE")))


@pytest.mark.parametrize("text", ["", "[]", SICK.splitlines()[0], "{not json", json.dumps(SNLI[1])])
def test_a_file_without_pairs_is_refused(tmp_path: Path, text: str) -> None:
    path = _text(tmp_path, text)
    with pytest.raises(BadInput, match=r"(holds|contains) no|is not JSON") as caught:
        read_inference(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("read", [read_inference, read_operations])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, read: Callable[[Path], PairSet]) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*nowhere\.jsonl"):
        read(tmp_path / "nowhere.jsonl")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BadInput, match=r"cannot read .*binary\.jsonl.*not UTF-8"):
        read(binary)


def test_counting_refuses_a_label_without_examples(tmp_path: Path) -> None:
    pairs = read_inference(_lines(tmp_path, SNLI)).pairs
    with pytest.raises(BadInput, match=r"no example of contradiction among 2 pairs"):
        count_labels(pairs, INFERENCES)
    assert count_labels(pairs, INFERENCES[:2]) == {"entailment": 1, "neutral": 1}
