"""People's labels as traces: asked as the product asks, answered as people answered, and no source in two parts."""

import json
from collections import Counter
from pathlib import Path

import pytest

from finetune.traces.filtering import valid
from finetune.traces.human_labels import Linked, divided, link_traces, main, read_links, segment_traces
from finetune.traces.trace import read_traces
from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues
from localmem.systems.theanine.link import OTHER, RELATIONS


@pytest.fixture
def atomic(tmp_path: Path) -> Path:
    path = tmp_path / "atomic.tsv"
    tails = {
        "xEffect": "gets wet all over| none",
        "xIntent": "to be kind",
        "HinderedBy": "PersonX has no time for PersonY.",
        "xReact": "tired",
        "xWant": "to sit down",
    }
    lines = [
        f"PersonX {verb}s the {thing}  {relation}\t{tail}"
        for verb in ("move", "wash", "paint")
        for thing in ("fence", "boat", "shed")
        for relation, tail in tails.items()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_links_are_as_many_of_each_relation_and_name_people(atomic: Path) -> None:
    found = read_links(atomic, 4)
    assert Counter(one.relation for one in found) == dict.fromkeys((*RELATIONS, OTHER), 4)
    assert not any("Person" in one.first + one.second for one in found)
    assert read_links(atomic, 4) == found


def test_a_link_is_asked_for_as_theanine_asks_and_answered_with_its_relation() -> None:
    (trace,) = link_traces([Linked("h", "Vera moves the fence.", "Vera feels tired.", "React")], "atomic")
    assert trace.metadata.prompt == "theanine/link"
    assert trace.metadata.options == (*RELATIONS, OTHER)
    assert trace.answer == "React"
    assert "Event A, 3 March 2025: Vera moves the fence." in trace.asked[-1].content
    (other,) = link_traces([Linked("h", "Vera moves the fence.", "Vera feels tired.", OTHER)], "atomic")
    assert other.answer == OTHER


def test_segments_are_asked_for_as_secom_asks_and_answered_with_the_right_ones(tmp_path: Path) -> None:
    path = tmp_path / "dialogues.jsonl"
    said = "user: hi[NEWLINE]agent: hello[NEWLINE][BOUNDARY][NEWLINE]user: rain again[NEWLINE]agent: yes"
    path.write_text(json.dumps({"id": "one", "dialogue": said}) + "\n", encoding="utf-8")
    (trace,) = segment_traces(read_segmented_dialogues(path), "some")
    assert trace.metadata.prompt == "secom/segment"
    assert json.loads(trace.answer) == {"segments": [{"first": 0, "last": 1}, {"first": 2, "last": 3}]}
    assert valid(trace.answer, trace)
    main("segment", path, tmp_path / "parts")
    assert [one.id for one in read_traces(tmp_path / "parts" / "test" / "segment.jsonl")] == [trace.id]


def test_no_head_is_in_two_parts(atomic: Path) -> None:
    parts = divided(link_traces(read_links(atomic, 6), "atomic"), {"train": 12, "test": 12})
    heads = {part: {one.metadata.work.episode for one in held} for part, held in parts.items()}
    assert len(parts["train"]) == 12
    assert heads["train"].isdisjoint(heads["test"])


def test_a_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("nothing\n", encoding="utf-8")
    with pytest.raises(BadInput, match="no line of ATOMIC"):
        read_links(path, 3)
