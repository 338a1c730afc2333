"""Human labels as traces: with the product's prompts and people's answers, and no source in two parts."""

import json
from collections import Counter
from pathlib import Path

import pytest

from finetune.traces.filtering import is_valid
from finetune.traces.human_labels import (
    EventPair,
    convert_labels,
    divide,
    link_traces,
    read_event_pairs,
    segment_traces,
)
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
        f"PersonX {verb}s the {thing} @@ {relation}\t{tail}"
        for verb in ("move", "wash", "paint")
        for thing in ("fence", "boat", "shed")
        for relation, tail in tails.items()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_relation_has_the_same_number_of_pairs_about_named_people(atomic: Path) -> None:
    pairs = read_event_pairs(atomic, 4)
    assert Counter(pair.relation for pair in pairs) == dict.fromkeys((*RELATIONS, OTHER), 4)
    assert not any("Person" in pair.first + pair.second for pair in pairs)
    assert read_event_pairs(atomic, 4) == pairs
    changes = [(pair.first, pair.second) for pair in pairs if pair.relation == "Changed"]
    assert all(first.split()[0] == second.split()[0] and first != second for first, second in changes)
    assert not any("{" in event for change in changes for event in change)


def test_a_link_trace_has_theanine_s_prompt_and_the_relation() -> None:
    (trace,) = link_traces([EventPair("h", "Vera moves the fence.", "Vera feels tired.", "React")], "atomic")
    assert trace.metadata.prompt == "theanine/link"
    assert trace.metadata.options == (*RELATIONS, OTHER)
    assert trace.answer == "React"
    assert "Event A, 3 March 2025: Vera moves the fence." in trace.context[-1].content
    (other,) = link_traces([EventPair("h", "Vera moves the fence.", "Vera feels tired.", OTHER)], "atomic")
    assert other.answer == OTHER


def test_a_segment_trace_has_secom_s_prompt_and_the_human_segments(tmp_path: Path) -> None:
    path = tmp_path / "dialogues.jsonl"
    dialogue = "user: hi[NEWLINE]agent: hello[NEWLINE][BOUNDARY][NEWLINE]user: rain again[NEWLINE]agent: yes"
    path.write_text(json.dumps({"id": "one", "dialogue": dialogue}) + "\n", encoding="utf-8")
    (trace,) = segment_traces(read_segmented_dialogues(path), "some")
    assert trace.metadata.prompt == "secom/segment"
    assert json.loads(trace.answer) == {"ends": "1 3"}
    assert is_valid(trace.answer, trace)
    with pytest.raises(BadInput, match=r"leaves nothing to learn, test and valid take all \(1\)"):
        convert_labels("segment", path, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    lines = [{"id": str(number), "dialogue": dialogue} for number in range(78)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    assert convert_labels("segment", path, tmp_path / "parts") == {"test": 60, "valid": 16, "train": 2}
    first = read_traces(tmp_path / "parts" / "test" / "segment.jsonl")[0]
    assert first.messages == trace.messages


def test_no_head_is_in_two_parts(atomic: Path) -> None:
    parts = divide(link_traces(read_event_pairs(atomic, 6), "atomic"), {"train": 12, "test": 12})
    heads = {part: {trace.metadata.work.episode for trace in traces} for part, traces in parts.items()}
    assert len(parts["train"]) == 12
    assert heads["train"].isdisjoint(heads["test"])


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("nothing\n", encoding="utf-8")
    with pytest.raises(BadInput, match="no line of ATOMIC"):
        read_event_pairs(path, 3)
