"""Labelled dialogues: the published forms are read, and WindowDiff is the published measure."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmem.errors import BadInput
from localmem.text.boundaries import read_labelled, window, window_diff
from localmem.text.segment import between


def test_marked_dialogues_are_read_utterance_by_utterance(tmp_path: Path) -> None:
    path = tmp_path / "marked.jsonl"
    said = "user: Rain again.[NEWLINE]agent: Take: an umbrella.[NEWLINE][BOUNDARY][NEWLINE]user: Any bread left?"
    path.write_text(json.dumps({"id": "d1", "dialogue": said}) + "\n\n", encoding="utf-8")
    (one,) = read_labelled(path)
    assert one.segments == (range(2), range(2, 3))
    assert [(turn.speaker, turn.text) for turn in one.session.turns] == [
        ("user", "Rain again."),
        ("agent", "Take: an umbrella."),
        ("user", "Any bread left?"),
    ]
    assert len(one.session.exchanges()) == 3


def test_dialogues_with_segment_lengths_are_read(tmp_path: Path) -> None:
    path = tmp_path / "listed.json"
    listed = {"dial_id": 7, "utterances": ["a", "b", "c", "d", "e"], "segments": [2, 3], "set": "test"}
    path.write_text(json.dumps([listed]), encoding="utf-8")
    (one,) = read_labelled(path)
    assert one.segments == (range(2), range(2, 5))
    assert one.session.id == "7"


@pytest.mark.parametrize("text", ["{", '{"id": "a"}', '[{"dial_id": 1}]', "[1"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match="cannot read labelled dialogues"):
        read_labelled(path)
    with pytest.raises(BadInput, match="cannot read labelled dialogues"):
        read_labelled(tmp_path / "absent")


@settings(deadline=None)  # the first call loads nltk
@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)), st.sets(st.integers(0, n - 1)))
    ),
    st.integers(2, 6),
)
def test_window_diff_is_that_of_nltk(case: tuple[int, set[int], set[int]], size: int) -> None:
    from nltk.metrics.segmentation import windowdiff  # type: ignore[import-untyped]

    count, right, predicted = case
    marks = [
        "".join("1" if number + 1 in starts and number + 1 < count else "0" for number in range(count))
        for starts in (right, predicted)
    ]
    expected = windowdiff(*marks, min(size, count))
    assert window_diff(between(right, count), between(predicted, count), size) == pytest.approx(expected)


def test_the_window_is_half_the_mean_segment() -> None:
    assert window([range(2), range(2, 5)]) == 2
    assert window([range(12), range(12, 24)]) == 6
    assert window_diff([range(12), range(12, 24)], [range(12), range(12, 24)]) == 0.0
    assert window_diff([], []) == 0.0
