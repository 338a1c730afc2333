"""Readers of the data sets of 2025 and 2026: what they make of the published forms, and of a bad record.

All records are our own, a few lines each in the published shape.
"""

import copy
import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.episodes import BEFORE_ALL, Dataset
from tests.evaluation.fixtures import LOCOMO, write_records

Record = dict[str, Any]

REMARK: Record = {
    "relation_type": "causal",
    "cue_dialogue": "A: Since I fell off the ladder I let others hang my lamps.\nB: Wise of you.",
    "trigger_query": "A: The new lamp has been in its box for weeks.",
    "time_gap": "about two months later",
}
BEAM: Record = {
    "conversation_id": "1",
    "chat": [
        [
            {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "My sprint ends on May 29. ->-> 1,1"},
            {"role": "assistant", "id": 1, "time_anchor": None, "content": "Noted."},
        ],
        [{"role": "user", "id": 2, "time_anchor": None, "content": "It ends on June 3 now."}],
    ],
    "probing_questions": str(
        {
            "knowledge_update": [
                {
                    "question": "When does my sprint end?",
                    "answer": "June 3",
                    "source_chat_ids": {"original_info": [0], "updated_info": [2]},
                    "rubric": ["June 3"],
                }
            ],
            "abstention": [{"question": "Who is my boss?", "ideal_response": "You have not said.", "rubric": []}],
        }
    ),
}
HALUMEM: Record = {
    "uuid": "u1",
    "sessions": [
        {
            "dialogue": [
                {"role": "user", "content": "I run each morning.", "timestamp": "Dec 15, 2025, 06:11:23"},
                {"role": "assistant", "content": "You also swim, I think.", "timestamp": "Dec 15, 2025, 06:11:24"},
            ],
            "memory_points": [
                {"memory_content": "She runs.", "memory_source": "primary", "is_update": "False"},
                {"memory_content": "She swims.", "memory_source": "interference", "is_update": "False"},
            ],
            "questions": [],
        },
        {
            "dialogue": [{"role": "user", "content": "I cycle now.", "timestamp": "Jan 02, 2026, 07:00:00"}],
            "memory_points": [
                {
                    "memory_content": "She cycles.",
                    "memory_source": "primary",
                    "is_update": "True",
                    "original_memories": ["She runs."],
                }
            ],
            "questions": [
                {
                    "question": "What does she do?",
                    "answer": "She cycles.",
                    "question_type": "Memory Conflict",
                    "evidence": [{"memory_content": "She cycles."}, {"memory_content": "She runs."}],
                }
            ],
        },
    ],
}
EXPLICIT: Record = {"preference": "I never eat fish.", "question": "What shall I order in Porto?", "explanation": ""}
TEXT: Record = {
    "context": "Kiko is a parrot. " * 150 + "Bruno is a dog.",
    "questions": ["Who is Kiko?", "Who is Bruno?"],
    "answers": [["a parrot", "parrot"], ["a dog"]],
    "metadata": {"source": "eventqa_65536", "qa_pair_ids": ["qa-0", "qa-1"], "question_types": None},
}


def write_plus(folder: Path, *items: Record) -> Path:
    write_records(folder, LOCOMO).rename(folder / "locomo10.json")
    path = folder / "locomo_plus.json"
    path.write_text(json.dumps(items or [REMARK, REMARK]))
    return path


def write_v2(folder: Path, **haystacks: list[str]) -> Path:
    states = [{"url": "http://shop/1", "accessibility_tree": "button Buy", "thought": "Buy it.", "action": "click(1)"}]
    trajectories = [
        {"id": name, "goal": f"Buy {name}", "states": states, "outcome": "success"} for name in ("t1", "t2")
    ]
    question = {"question": "Which button buys?", "question_type": "procedure", "answer": ["Buy", "one"], "image": None}
    for name, rows in (("questions", [{"id": "q1", **question}]), ("trajectories", trajectories)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "haystacks").mkdir()
    path = folder / "haystacks" / "lme_v2_small.json"
    path.write_text(json.dumps(haystacks or {"q1": ["t2", "t1"], "of another domain": ["t1"]}))
    return path


def write_personamem(folder: Path, **changes: str) -> Path:
    persona = {"role": "system", "content": "Current user persona: a baker."}
    messages = [
        persona,
        {"role": "user", "content": "User: I love rye."},
        {"role": "assistant", "content": "Assistant: Lovely."},
        {"role": "user", "content": "User: What shall I bake?"},
        persona,
        {"role": "user", "content": "User: I went off rye."},
    ]
    (folder / "shared_contexts_32k.jsonl").write_text(json.dumps({"c1": messages}) + "\n")
    row = {
        "question_id": "p1",
        "question_type": "track_full_preference_evolution",
        "user_question_or_message": "What shall I bake?",
        "correct_answer": "(b)",
        "all_options": "['(a) Try wheat.', '(b) Try rye.']",
        "shared_context_id": "c1",
        "end_index_in_shared_context": "3",
    }
    path = folder / "questions_32k.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerows([row, {**row, "question_id": "p2", "end_index_in_shared_context": "6", **changes}])
    return path


def write_prefeval(folder: Path, *items: Record) -> Path:
    topic = folder / "explicit_preference"
    topic.mkdir()
    other = {"conversation": [{"role": "user", "content": "Sum 2 and 2."}, {"role": "assistant", "content": "4"}]}
    (folder / "filtered_inter_turns.json").write_text(json.dumps([other] * 7))
    path = topic / "travel_restaurant.json"
    path.write_text(json.dumps(items or [EXPLICIT]))
    return path


def texts(data: Dataset) -> list[list[str]]:
    return [[turn.text for turn in session.turns] for session in data.episodes[0].sessions]


def test_a_remark_goes_into_a_conversation_of_locomo(tmp_path: Path) -> None:
    first, second = read_dataset("locomo_plus", write_plus(tmp_path)).episodes
    assert [session.id for session in first.sessions] == ["conv-1/1", "plus-1/cue", "conv-1/2"]
    (probe,) = first.probes
    last, cue = first.sessions[2].turns[0].time, first.sessions[1]
    assert probe.time == last + timedelta(days=7) == cue.turns[0].time + timedelta(days=60)
    assert [(turn.speaker, turn.role) for turn in cue.turns] == [("Ana", "user"), ("Ben", "assistant")]
    assert (probe.speaker, probe.kind, probe.question) == ("Ben", "next", REMARK["trigger_query"][3:])
    assert probe.evidence == ("plus-1/cue.0", "plus-1/cue.1")
    assert second.sessions[1].id == "plus-2/cue"


def test_a_trajectory_is_a_session(tmp_path: Path) -> None:
    data = read_dataset("longmemeval_v2", write_v2(tmp_path))
    (episode,) = data.episodes
    assert [session.id for session in episode.sessions] == ["t2", "t1"]
    assert episode.sessions[0].turns[0].time < episode.sessions[1].turns[0].time
    assert texts(data)[0] == ["Goal: Buy t2", "http://shop/1\nbutton Buy", "Buy it.\nclick(1)", "Outcome: success"]
    assert [turn.role for turn in episode.sessions[0].turns] == ["user", "user", "assistant", "user"]
    assert (episode.probes[0].answer, episode.probes[0].type) == ("Buy, one", "procedure")


def test_a_haystack_without_its_trajectory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no trajectory 't9'"):
        read_dataset("longmemeval_v2", write_v2(tmp_path, q1=["t9"]))


def test_beam_has_dated_batches_and_evidence(tmp_path: Path) -> None:
    data = read_dataset("beam", write_records(tmp_path, [BEAM], lines=True))
    (episode,) = data.episodes
    assert texts(data) == [["My sprint ends on May 29.", "Noted."], ["It ends on June 3 now."]]
    assert episode.sessions[0].turns[0].time == datetime(2024, 3, 15, tzinfo=UTC)
    assert episode.sessions[1].turns[0].time == datetime(2024, 3, 16, tzinfo=UTC)
    update, abstention = episode.probes
    assert (update.type, update.answer, update.evidence) == ("knowledge update", "June 3", ("1/0", "1/2"))
    assert (abstention.answer, abstention.evidence) == ("You have not said.", ())


def test_personamem_asks_before_what_is_said_later(tmp_path: Path) -> None:
    data = read_dataset("personamem", write_personamem(tmp_path))
    (episode,) = data.episodes
    assert texts(data) == [
        ["Current user persona: a baker.", "I love rye.", "Lovely."],
        ["What shall I bake?"],
        ["I went off rye."],
    ]
    early, late = episode.probes
    assert (early.after, late.after) == (episode.sessions[0].id, episode.sessions[2].id)
    assert early.answer == "(b) Try rye."
    assert early.question.endswith("(a) Try wheat.\n(b) Try rye.")


def test_a_question_before_every_message_comes_before_all(tmp_path: Path) -> None:
    data = read_dataset("personamem", write_personamem(tmp_path, end_index_in_shared_context="0"))
    assert data.episodes[0].probes[1].after == BEFORE_ALL


def test_halumem_memory_follows_updates_and_leaves_interference_out(tmp_path: Path) -> None:
    data = read_dataset("halumem", write_records(tmp_path, [HALUMEM], lines=True))
    (episode,) = data.episodes
    assert {name: [unit.text for unit in units] for name, units in episode.golds.items()} == {
        "u1/1": ["She runs."],
        "u1/2": ["She cycles."],
    }
    (probe,) = episode.probes
    assert (probe.after, probe.sessions) == ("u1/2", ("u1/2", "u1/1"))
    assert episode.sessions[0].turns[0].time == datetime(2025, 12, 15, 6, 11, 23, tzinfo=UTC)
    assert "memory points that only the assistant said, left out: 1" in data.notes


def test_prefeval_states_or_implies_a_preference(tmp_path: Path) -> None:
    choice = {
        "query": "Where to eat?",
        "assistant_options": "1. Fish 2. Beans",
        "user_selection": "Beans.",
        "assistant_acknowledgment": "Fine.",
    }
    persona = {"0": {"user": "I bake.", "assistant": "Nice."}, "1": {"user": "No fish, please."}}
    items = [EXPLICIT, {**EXPLICIT, "conversation": choice}, {**EXPLICIT, "conversation": persona}]
    data = read_dataset("prefeval", write_prefeval(tmp_path, *items))
    first = [[turn.text for turn in episode.sessions[0].turns] for episode in data.episodes]
    assert first == [["I never eat fish."], [*choice.values()], ["I bake.", "Nice.", "No fish, please."]]
    assert [session.id for session in data.episodes[0].sessions[1:]] == [f"other-{day}" for day in range(1, 6)]
    assert data.episodes[1].probes[0].evidence == (
        "travel_restaurant-2/preference.0",
        "travel_restaurant-2/preference.2",
    )
    assert data.episodes[0].probes[0].type == "explicit preference"


def test_a_long_text_is_read_in_pieces_of_whole_sentences(tmp_path: Path) -> None:
    data = read_dataset("memoryagentbench", write_records(tmp_path, [TEXT], lines=True))
    pieces = [text for (text,) in texts(data)]
    assert len(pieces) == 2
    assert all(len(piece) < 2000 and piece.endswith(".") for piece in pieces)
    assert " ".join(pieces) == TEXT["context"]
    first, second = data.episodes[0].probes
    assert (first.id, first.answer, first.others, first.type) == ("qa-0", "a parrot", ("parrot",), "eventqa_65536")
    assert (second.answer, second.others) == ("a dog", ())


@pytest.mark.parametrize(
    "name, record, change, message",
    [
        ("beam", BEAM, {"probing_questions": "{oh"}, "not a Python literal"),
        ("halumem", HALUMEM, {"sessions": []}, "sessions"),
        ("memoryagentbench", TEXT, {"answers": []}, "2 questions have 0 answers"),
    ],
)
def test_a_bad_record_among_good_ones_is_left_out_and_counted(
    name: str, record: Record, change: Record, message: str, tmp_path: Path
) -> None:
    records = [copy.deepcopy(record) for _ in range(20)] + [{**record, **change}]
    data = read_dataset(name, write_records(tmp_path, records, lines=True))
    assert len(data.episodes) == 20
    assert any("bad records, left out" in note and message in note for note in data.notes)
    with pytest.raises(BadInput, match=message):
        read_dataset(name, write_records(tmp_path, [{**record, **change}], lines=True))


def test_a_bad_remark_or_preference_is_left_out_and_counted(tmp_path: Path) -> None:
    remarks = [REMARK] * 20 + [{**REMARK, "time_gap": "later"}]
    assert any(
        "'later' names no weeks" in note for note in read_dataset("locomo_plus", write_plus(tmp_path, *remarks)).notes
    )
    preferences = [EXPLICIT] * 20 + [{**EXPLICIT, "conversation": {"a": "b"}}]
    data = read_dataset("prefeval", write_prefeval(tmp_path, *preferences))
    assert len(data.episodes) == 20
    assert any("neither a choice nor turns" in note for note in data.notes)
