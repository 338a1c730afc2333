"""Labelled dialogues: the published forms are read."""

import json
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues


def test_marked_dialogues_are_read_utterance_by_utterance(tmp_path: Path) -> None:
    path = tmp_path / "marked.jsonl"
    dialogue = "user: Rain again.[NEWLINE]agent: Take: an umbrella.[NEWLINE][BOUNDARY][NEWLINE]user: Any bread left?"
    path.write_text(json.dumps({"id": "d1", "dialogue": dialogue}) + "\n\n", encoding="utf-8")
    (item,) = read_segmented_dialogues(path)
    assert item.segments == (range(2), range(2, 3))
    assert [(turn.speaker, turn.text) for turn in item.session.turns] == [
        ("user", "Rain again."),
        ("agent", "Take: an umbrella."),
        ("user", "Any bread left?"),
    ]
    assert len(item.session.exchanges()) == 3


def test_dialogues_with_segment_lengths_are_read(tmp_path: Path) -> None:
    path = tmp_path / "listed.json"
    listed = {"dial_id": 7, "utterances": ["a", "b", "c", "d", "e"], "segments": [2, 3], "set": "test"}
    path.write_text(json.dumps([listed]), encoding="utf-8")
    (item,) = read_segmented_dialogues(path)
    assert item.segments == (range(2), range(2, 5))
    assert item.session.id == "7"


@pytest.mark.parametrize("text", ["{", '{"id": "a"}', '[{"dial_id": 1}]', "[1"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=f"(cannot read|{path.name}).*give JSONL with id and dialogue"):
        read_segmented_dialogues(path)
    with pytest.raises(BadInput, match=f"(cannot read|{path.name}).*give JSONL with id and dialogue"):
        read_segmented_dialogues(tmp_path / "absent")


@pytest.mark.parametrize("lengths", [[2, 2], [2, 9], [-2, 7], [0, 5], []])
def test_segment_lengths_that_do_not_add_up_are_refused(tmp_path: Path, lengths: list[int]) -> None:
    path = tmp_path / "listed.json"
    path.write_text(json.dumps([{"dial_id": 7, "utterances": [*"abcde"], "segments": lengths}]), encoding="utf-8")
    with pytest.raises(BadInput, match=r"dialogue 7 of .*listed.json has 5 utterances and the segments \["):
        read_segmented_dialogues(path)


@pytest.mark.parametrize(("text", "what"), [("", "other is empty"), ('{"id": "d3", "dialogue": ""}', "dialogue d3 of")])
def test_a_file_or_a_dialogue_without_utterances_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "other").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=f"{what}.*give JSONL with id and dialogue"):
        read_segmented_dialogues(tmp_path / "other")
