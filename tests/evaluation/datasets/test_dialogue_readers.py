"""Readers of dialogues: fixtures of a few lines in each published form, and what each makes of odd and bad records."""

import json
from dataclasses import replace
from datetime import timedelta
from math import nan
from pathlib import Path
from typing import Any

import pytest

from localmem.errors import BadInput
from localmem.evaluation.datasets import msc_cc, read_dataset, teabag
from localmem.evaluation.datasets.readers import UNDATED, nearest_sessions
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Probe
from localmem.types import Session
from tests.evaluation.fixtures import write_records

MSC: dict[str, Any] = {
    "metadata": {"initial_data_id": "valid_7", "session_id": 3},
    "init_personas": [["I bake."], ["I sail."]],
    "personas": [["I bake bread.", "I am 40."], ["I sail a dinghy."]],
    "previous_dialogs": [
        {"dialog": [{"text": "Hi, I bake."}, {"text": "I sail."}], "time_num": 6, "time_unit": "hours"},
        {"dialog": [{"text": "Bread again."}, {"text": "Wind again."}], "time_num": 2, "time_unit": "weeks"},
    ],
    "dialog": [
        {"text": "Still sailing?", "id": "Speaker 1"},
        {"text": "Yes, every day.", "id": "Speaker 2"},
        {"text": "And I bake.", "id": "Speaker 1"},
    ],
}


def _cc(name: str = "episode-1") -> dict[str, Any]:
    ordinals = ("first", "second", "third", "fourth", "fifth")
    record: dict[str, Any] = {
        "dataID": name,
        "relationship": "Neighbors",
        "time_interval": ["Start", "A few days after", "A couple of years after", "Once more", "A few hours after"],
        "summary": [f"Summary {number}. It went well." for number in range(1, 6)],
    }
    for number, ordinal in enumerate(ordinals):
        record[f"{ordinal}_session_dialogue"] = [f"Hello {number}.", f"Well {number}.", f"Bye {number}."]
        record[f"{ordinal}_session_speakers"] = ["Neighbor A", "Neighbor B", "Neighbor A"]
    return record


MSC_CC: dict[str, Any] = {
    "episode": "e0",
    "source_id": "msc-episode-1",
    "memories": {
        "s1-m1": "Speaker A keeps bees.",
        "s4-m1": "Speaker B and Speaker A met.",
        "s5-m1": "Speaker B fell off a ladder.",
    },
    "session5_context": [
        "Speaker A: How is the ladder?",
        "Speaker B: I fell: it broke.",
        "Speaker B: Twice.",
        "Speaker A: Oh no.",
    ],
    "generated_turns": [
        {"utter_id": "t1", "n_context": 1, "retrieved_memory": ["Speaker A keeps bees."], "response": "It is fine."},
        {"utter_id": "t4", "n_context": 4, "retrieved_memory": [], "response": "Nothing to compare."},
    ],
}

CARECALL: list[dict[str, Any]] = [
    {
        "guid": "interactive-35-S1",
        "dialogue": [
            {"role": "system", "text": "안녕하세요."},
            {"role": "user", "text": "예"},
            {"role": "system", "text": "요즘 어떠세요?"},
            {"role": "user", "text": "이가 아파요."},
        ],
        "memory": [],
        "summary": ["이가 아픔"],
    },
    {
        "guid": "interactive-35-S2",
        "dialogue": [
            {"role": "system", "text": "안녕하세요."},
            {"role": "user", "text": "이제 괜찮아요."},
            {"role": "system", "text": "다행이네요."},
        ],
        "memory": ["이가 아픔"],
        "summary": ["이가 나음"],
    },
]

DULEMON: dict[str, Any] = {
    "bot_persona": ["B1: 我 喜欢 做饭"],
    "user_said_persona": ["U1: 我 喜欢 雪"],
    "user_no_said_persona": ["U2: 我 在 上 大学"],
    "conversation": ["Usr: 下雪 了", "Bot:你 最 喜欢 雪 了\tU1", "Usr: 是 的\tU2", "Bot: 我 去 做饭\tB1,U9"],
}

SECOM: dict[str, Any] = {
    "conversation_id": "0",
    "sessions": [["[human]: Write a poem.\n[bot]: Roses: red.\nViolets too.", "Add two and two."], []],
    "questions": ["What was red?"],
    "answers": ["Roses."],
}

COQA_PASSAGE: dict[str, Any] = {
    "source": "wikipedia",
    "story": "Ada had a cat. It was grey!\nThe cat was called Kiko.",
    "questions": [{"input_text": "What did she have?", "turn_id": 1}, {"input_text": "Its name?", "turn_id": 2}],
    "answers": [
        {"input_text": "a cat", "turn_id": 1, "span_start": 4, "span_end": 13, "span_text": "had a cat"},
        {"input_text": "Kiko", "turn_id": 2, "span_start": -1, "span_end": -1, "span_text": "unknown"},
    ],
    "additional_answers": {"0": [{"input_text": "cat", "turn_id": 1}, {"input_text": "it was Kiko", "turn_id": 2}]},
}


def _read_record(name: str, tmp_path: Path, record: object) -> Dataset:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    return read_dataset(name, path)


def _prompt_of(probe: Probe) -> tuple[list[tuple[str, str]], str, str]:
    """The dialogue as (role, text), with the question as the user's last turn; the answer; who gives it."""
    turns = [(turn.role, turn.text) for turn in probe.dialogue]
    return [*turns, ("user", probe.question)], probe.answer, probe.speaker


def test_msc_asks_for_the_last_session_of_both_speakers(tmp_path: Path) -> None:
    (episode,) = _read_record("msc", tmp_path, MSC).episodes
    first, second = episode.sessions
    assert [session.id for session in episode.sessions] == ["valid_7/1", "valid_7/2"]
    assert [(turn.role, turn.speaker) for turn in first.turns] == [("user", "Speaker 1"), ("assistant", "Speaker 2")]
    assert second.turns[0].time - first.turns[0].time == timedelta(hours=6)
    assert [_prompt_of(probe) for probe in episode.probes] == [
        ([("user", "Still sailing?")], "Yes, every day.", "Speaker 2"),
        ([("assistant", "Still sailing?"), ("user", "Yes, every day.")], "And I bake.", "Speaker 1"),
    ]
    assert {(probe.kind, probe.type, probe.after) for probe in episode.probes} == {("next", "session 3", "valid_7/2")}
    asked_at = episode.probes[0].time
    assert asked_at is not None
    assert asked_at - second.turns[0].time == timedelta(weeks=2, seconds=1)
    assert [(gold.speaker, gold.text) for gold in episode.golds["valid_7/2"]] == [
        ("Speaker 1", "I bake bread."),
        ("Speaker 1", "I am 40."),
        ("Speaker 2", "I sail a dinghy."),
    ]


def test_msc_says_what_is_odd_and_what_is_wrong(tmp_path: Path) -> None:
    odd = json.loads(json.dumps(MSC))
    odd["previous_dialogs"][0]["time_unit"] = "fortnights"
    odd["dialog"].append({"text": "Twice a day.", "id": "Speaker 1"})
    data = _read_record("msc", tmp_path, odd)
    assert data.notes == (
        "gaps in an unknown unit, taken as days: 1",
        "turns that follow a turn of the same speaker, not used as probes: 1",
        "1 episodes; the published files hold 500 or 501 or 1001 or 4000",
    )
    odd["dialog"][0]["id"] = "Speaker 9"
    with pytest.raises(BadInput, match=r"line 1: the speaker 'Speaker 9'"):
        _read_record("msc", tmp_path, odd)
    with pytest.raises(BadInput, match=r"line 1: previous_dialogs"):
        _read_record("msc", tmp_path, {**MSC, "previous_dialogs": []})


def test_conversation_chronicles_asks_in_every_session_but_the_first(tmp_path: Path) -> None:
    data = _read_record("conversation_chronicles", tmp_path, _cc())
    (episode,) = data.episodes
    starts = [session.turns[0].time - UNDATED for session in episode.sessions]
    assert [start.days for start in starts] == [0, 3, 733, 734, 734]
    assert "unknown spans between sessions, taken as a day: 1" in data.notes
    assert [(probe.type, probe.after) for probe in episode.probes] == [
        (f"session {number}", f"episode-1/{number - 1}") for number in range(2, 6) for _ in range(2)
    ]
    assert _prompt_of(episode.probes[1]) == ([("assistant", "Hello 1."), ("user", "Well 1.")], "Bye 1.", "Neighbor A")
    assert [gold.text for gold in episode.golds["episode-1/2"]] == [
        "Summary 1.",
        "It went well.",
        "Summary 2.",
        "It went well.",
    ]
    steps = [(session.id if session else None, len(probes)) for session, probes in episode.in_order()]
    assert steps == [(None, 0), *((f"episode-1/{number}", 2) for number in range(1, 5)), ("episode-1/5", 0)]


def test_two_records_of_one_id_are_told_apart(tmp_path: Path) -> None:
    path = write_records(tmp_path, [_cc(), _cc(), _cc("episode-2")], lines=True)
    names = [episode.id for episode in read_dataset("conversation_chronicles", path).episodes]
    assert names == ["episode-1", "episode-1#2", "episode-2"]


def test_a_session_with_too_few_speakers_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"line 1, session 3: 3 utterances have 1 speakers"):
        _read_record("conversation_chronicles", tmp_path, {**_cc(), "third_session_speakers": ["Neighbor A"]})


def test_msc_cc_begins_with_memories_and_asks_before_its_session(tmp_path: Path) -> None:
    path = write_records(tmp_path, [MSC_CC])
    data = read_dataset("msc_cc", path)
    (episode,) = data.episodes
    assert [(unit.id, unit.speaker, unit.session) for unit in episode.memories] == [
        ("e0/s1-m1", "Speaker A", "e0/1"),
        ("e0/s4-m1", "", "e0/4"),
    ]
    assert [unit.time.day for unit in episode.memories] == [1, 4]
    assert [unit.text for unit in episode.golds["e0/5"]] == ["Speaker B fell off a ladder."]
    assert {probe.after for probe in episode.probes} == {BEFORE_ALL}
    assert [_prompt_of(probe) for probe in episode.probes] == [
        ([("user", "How is the ladder?")], "I fell: it broke.", "Speaker B"),
        (
            [("assistant", "How is the ladder?"), ("user", "I fell: it broke."), ("user", "Twice.")],
            "Oh no.",
            "Speaker A",
        ),
    ]
    (before, probes), (session, later) = episode.in_order()
    assert (before, len(probes)) == (None, 2)
    assert (session, later) == (episode.sessions[0], ())
    assert data.notes[:2] == (
        "memories that do not name exactly one speaker, taken for both: 1",
        "turns that follow a turn of the same speaker, not used as probes: 1",
    )


def test_probes_before_all_stay_and_none_is_lost(tmp_path: Path) -> None:
    data = read_dataset("msc_cc", write_records(tmp_path, [MSC_CC]))
    assert data.last_sessions(1) == data
    (episode,) = data.episodes
    stray = replace(episode, probes=(replace(episode.probes[0], after="e0/9"),))
    with pytest.raises(BadInput, match="e0 has probes after the session 'e0/9'"):
        list(stray.in_order())


def test_msc_cc_gives_the_shipped_replies_with_what_was_said(tmp_path: Path) -> None:
    (baseline,) = msc_cc.baseline(write_records(tmp_path, [MSC_CC]))
    assert baseline == ("t1", "It is fine.", "I fell: it broke.", ("Speaker A keeps bees.",))


def test_msc_cc_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"record 1: memories: the id 'm1'"):
        read_dataset("msc_cc", write_records(tmp_path, [{**MSC_CC, "memories": {"m1": "x"}}]))
    with pytest.raises(BadInput, match=r"record 1: session5_context: 'no speaker'"):
        read_dataset("msc_cc", write_records(tmp_path, [{**MSC_CC, "session5_context": ["no speaker", "B: x"]}]))


def test_carecall_asks_for_the_service_and_holds_revised_memories(tmp_path: Path) -> None:
    path = tmp_path / "carecall.json"
    path.write_text(json.dumps([CARECALL]), encoding="utf-8")
    (episode,) = read_dataset("carecall", path).episodes
    assert [session.id for session in episode.sessions] == ["interactive-35/1", "interactive-35/2"]
    assert episode.sessions[1].turns[0].time == UNDATED + timedelta(days=10)
    assert [(probe.answer, probe.after) for probe in episode.probes] == [
        ("요즘 어떠세요?", BEFORE_ALL),
        ("다행이네요.", "interactive-35/1"),
    ]
    assert {key: [gold.text for gold in golds] for key, golds in episode.golds.items()} == {
        "interactive-35/1": ["이가 아픔"]
    }
    assert episode.memories == ()


def test_carecall_names_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "carecall.json"
    path.write_text(json.dumps([CARECALL, [{**CARECALL[0], "guid": "35"}]]), encoding="utf-8")
    with pytest.raises(BadInput, match=r"record 2: sessions\.0\.guid"):
        read_dataset("carecall", path)


def test_dulemon_knows_personas_and_what_a_reply_rests_on(tmp_path: Path) -> None:
    data = _read_record("dulemon", tmp_path, DULEMON)
    (episode,) = data.episodes
    assert [(unit.id, unit.speaker, unit.text) for unit in episode.memories] == [
        ("c1/B1", "Bot", "我 喜欢 做饭"),
        ("c1/U1", "Usr", "我 喜欢 雪"),
    ]
    assert [unit.id for unit in episode.golds["c1/1"]] == ["c1/B1", "c1/U1", "c1/U2"]
    assert [(probe.answer, probe.evidence) for probe in episode.probes] == [
        ("你 最 喜欢 雪 了", ("c1/U1",)),
        ("我 去 做饭", ("c1/B1",)),
    ]
    assert [turn.role for turn in episode.sessions[0].turns] == ["user", "assistant", "user", "assistant"]
    # a mark of what the user has not told (U2), and one of nothing (U9)
    assert data.notes == ("marks of personas that are not given, dropped: 2",)
    with pytest.raises(BadInput, match=r"line 1: conversation: 'Someone: x'"):
        _read_record("dulemon", tmp_path, {**DULEMON, "conversation": ["Someone: x"]})
    with pytest.raises(BadInput, match=r"line 1: the persona 'x'"):
        _read_record("dulemon", tmp_path, {**DULEMON, "bot_persona": ["x"]})


def test_longmtbenchplus_parts_exchanges_into_turns(tmp_path: Path) -> None:
    data = _read_record("longmtbenchplus", tmp_path, SECOM)
    (episode,) = data.episodes
    (session,) = episode.sessions  # the second one is empty
    assert [(turn.role, turn.text) for turn in session.turns] == [
        ("user", "Write a poem."),
        ("assistant", "Roses: red.\nViolets too."),
        ("user", "Add two and two."),
    ]
    assert [(probe.question, probe.answer, probe.kind) for probe in episode.probes] == [
        ("What was red?", "Roses.", "question")
    ]
    assert "exchanges without marks, taken as the user's words: 1" in data.notes
    with pytest.raises(BadInput, match="1 questions have 0 answers"):
        _read_record("longmtbenchplus", tmp_path, {**SECOM, "answers": []})


def _coqa(tmp_path: Path, passages: int) -> Path:
    path = tmp_path / "coqa.json"
    data = [{**COQA_PASSAGE, "id": f"p{number}"} for number in range(passages)]
    path.write_text(json.dumps({"version": "1.0", "data": data}, indent=1), encoding="utf-8")
    return path


def test_coqa_asks_about_a_passage_among_ten_others(tmp_path: Path) -> None:
    data = read_dataset("coqa", _coqa(tmp_path, 14))
    episode = data.episodes[7]
    assert [session.id for session in episode.sessions] == [f"p{number}" for number in range(2, 13)]
    assert [session.id for session in data.episodes[0].sessions] == [f"p{number}" for number in range(11)]
    assert [turn.text for turn in episode.sessions[5].turns] == [
        "Ada had a cat.",
        "It was grey!",
        "The cat was called Kiko.",
    ]
    first, second = episode.probes
    assert (first.evidence, first.sessions) == (("p7.0",), ("p7",))
    assert (first.answer, first.others) == ("a cat", ("cat",))
    assert (second.evidence, second.others) == ((), ("it was Kiko",))
    assert [(turn.role, turn.text) for turn in second.dialogue] == [
        ("user", "What did she have?"),
        ("assistant", "a cat"),
    ]
    assert data.notes == (
        "questions without evidence: 14",
        "14 passages; the published files hold 500 or 7199",
    )


def test_coqa_names_what_is_wrong(tmp_path: Path) -> None:
    path = _coqa(tmp_path, 2)
    document = json.loads(path.read_text())
    document["data"][1]["answers"].pop()
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match="record 2: questions and answers have different turn ids"):
        read_dataset("coqa", path)
    path.write_text('{"data": [{"id": "p0"}]}')
    with pytest.raises(BadInput, match="record 1: story: Field required"):
        read_dataset("coqa", path)
    path.write_text("[]")
    with pytest.raises(BadInput, match=r"coqa\.json: Input should be"):
        read_dataset("coqa", path)


CSV = "user 1 personas,user 2 personas,Best Generated Conversation\n"
ROW = '"I bake.\nI am 40.",I sail.,"User 1: Hi!\n\n*User 2:* Hello.\n[later]\nAhoy.\nUser 1: Bread?"\n'


def test_persona_chat_asks_for_utterances_beside_five_conversations(tmp_path: Path) -> None:
    path = tmp_path / "chat.csv"
    path.write_text(CSV + ROW * 8, encoding="utf-8")
    data = read_dataset("persona_chat", path)
    episode = data.episodes[3]
    assert [session.id for session in episode.sessions] == ["c2", "c3", "c5", "c6", "c7"]
    assert [(unit.speaker, unit.text) for unit in episode.memories] == [
        ("User 1", "I bake."),
        ("User 1", "I am 40."),
        ("User 2", "I sail."),
    ]
    assert [_prompt_of(probe) for probe in episode.probes] == [
        ([("user", "Hi!")], "Hello. Ahoy.", "User 2"),
        ([("assistant", "Hi!"), ("user", "Hello. Ahoy.")], "Bread?", "User 1"),
    ]
    assert data.notes == (
        "lines that continue the previous utterance: 8",
        "8 conversations; the published files hold 968 or 1000 or 8938",
    )


@pytest.mark.parametrize(
    "text, message",
    [
        (CSV, "contains no record"),
        (CSV + ROW, "contains one conversation"),
        (CSV + "a,b\n", "line 2: Best Generated Conversation"),
        (CSV + ROW + "a,b,nothing\n", "line 9: the conversation has no line 'User 1: ...'"),
        (CSV + ROW + 'a,b,"User 1: x\n', "line 9 is not CSV"),
        ("x,y\n1,2\n", "line 2: user 1 personas: Field required"),
    ],
)
def test_persona_chat_names_the_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read_dataset("persona_chat", path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


TEABAG: dict[str, Any] = {
    "id": "t1",
    "source": "msc",
    "sessions": [
        {
            "id": str(number),
            "turns": [
                {"speaker": "A", "text": f"I fear the sea {number}."},
                {"speaker": "B", "text": "I sail."},
            ],
        }
        for number in range(1, 6)
    ],
    "probes": [
        {
            "question": "Did you never like boats?",
            "answer": "No, I sail.",
            "asker": "A",
            "session": [{"speaker": "A", "text": "Nice day."}, {"speaker": "B", "text": "Windy."}],
        },
        {"question": "Do you love the sea?", "answer": "No, I fear it.", "asker": "B"},
    ],
}


def test_teabag_leads_up_to_counterfactual_questions(tmp_path: Path) -> None:
    data = _read_record("teabag", tmp_path, TEABAG)
    (episode,) = data.episodes
    first, second = episode.probes
    assert (first.type, first.speaker, second.speaker) == ("counterfactual", "B", "A")
    assert [(turn.role, turn.text) for turn in first.dialogue] == [("user", "Nice day."), ("assistant", "Windy.")]
    assert [session.turns[0].time.day for session in episode.sessions] == [1, 2, 3, 4, 5]
    assert first.time is not None
    assert first.time > episode.sessions[-1].turns[-1].time
    assert data.notes == ("1 episodes; the published files hold 100",)


def test_what_teabag_writes_it_reads(tmp_path: Path) -> None:
    data = _read_record("teabag", tmp_path, TEABAG)
    again = tmp_path / "again.jsonl"
    teabag.write(again, data.episodes, "msc")
    assert read_dataset("teabag", again).episodes == data.episodes
    with pytest.raises(BadInput, match="cannot write"):
        teabag.write(again / "inside.jsonl", data.episodes)


def test_teabag_names_what_is_wrong(tmp_path: Path) -> None:
    stranger = {**TEABAG, "probes": [{**TEABAG["probes"][0], "asker": "C"}]}
    with pytest.raises(BadInput, match=r"line 1: the asker 'C' is not A or B"):
        _read_record("teabag", tmp_path, stranger)
    with pytest.raises(BadInput, match=r"line 1: the sessions have the speakers \['A'\]"):
        _read_record(
            "teabag", tmp_path, {**TEABAG, "sessions": [{"id": "1", "turns": [{"speaker": "A", "text": "x"}]}]}
        )


def _session(name: str, time: str, *texts: str, **more: str) -> dict[str, Any]:
    return {"id": name, "time": time, "turns": [{"role": "user", "text": text} for text in texts], **more}


OWN: list[dict[str, Any]] = [
    _session("s2", "2026-03-04T10:00Z", "The meeting moved to Friday."),
    _session("s1", "2026-03-02T10:00Z", "My dog is called Ada.", "The meeting is on Monday."),
    {"question": "What is the dog called?", "answer": "Ada", "answers": ["ada"], "evidence": ["s1.0"]},
    {"question": "When is the meeting?", "answer": "Monday", "after": "s1", "type": "update", "id": "early"},
    {
        "question": "And now?",
        "answer": "Friday",
        "time": "2026-03-05T09:00Z",
        "dialogue": [{"role": "user", "text": "Monday it was."}, {"role": "assistant", "text": "Yes."}],
    },
    _session("s1", "2026-03-02T10:00Z", "I am Bo.", user="bo"),
]


def test_a_users_own_logs_make_an_episode_a_user(tmp_path: Path) -> None:
    ana, bo = read_dataset("jsonl", write_records(tmp_path, OWN, lines=True)).episodes
    assert (ana.id, bo.id, bo.probes) == ("user", "bo", ())
    assert [session.id for session in ana.sessions] == ["s1", "s2"]
    dog, early, now = ana.probes
    assert (dog.id, dog.sessions, dog.evidence, dog.others) == ("q1", ("s1",), ("s1.0",), ("ada",))
    assert (early.id, early.after, early.type) == ("early", "s1", "update")
    assert [turn.role for turn in now.dialogue] == ["user", "assistant"]
    assert [(session.id if session else "", [p.id for p in probes]) for session, probes in ana.in_order()] == [
        ("", []),
        ("s1", ["early"]),
        ("s2", ["q1", "q3"]),
    ]


@pytest.mark.parametrize(
    "records, message",
    [
        ([OWN[0], {"question": "x", "evidence": ["s9.0"]}], "line 2: there is no turn 's9.0'"),
        ([OWN[0], {"question": "x", "evidence": [OWN[0]["id"]]}], f"line 2: there is no turn '{OWN[0]['id']}'"),
        ([OWN[0], {"question": "x", "sessions": [f"{OWN[0]['id']}.0"]}], "line 2: there is no session '"),
        ([OWN[0], {"question": ""}], "line 2: question"),
        ([OWN[0], {"question": "x", "answer": nan}], "line 2: answer: NaN and infinity are no values"),
        ([OWN[0], {"question": "x", "answers": ["y", nan]}], "line 2: answers: NaN and infinity are no values"),
        ([OWN[0], OWN[0]], "line 2: there is already a session 's2'"),
        ([OWN[0], {"id": "x"}], "line 2: turns: Field required"),
        ([{"question": "x"}], "'user' has probes and no session"),
        ([OWN[0], {"question": "x", "id": "a"}, {"question": "y", "id": "a"}], "have the same id"),
        ([OWN[0], {"question": "x", "dialogue": [{"role": "user"}]}], "line 2, dialogue: turns.0.text"),
    ],
)
def test_a_bad_line_of_ones_own_is_named(records: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read_dataset("jsonl", write_records(tmp_path, records, lines=True))
    assert message in str(caught.value)


def test_an_empty_file_holds_no_record(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(BadInput, match="contains no record"):
        read_dataset("jsonl", tmp_path / "empty.jsonl")


def test_the_nearest_sessions_are_on_both_sides_but_at_the_ends() -> None:
    sessions = [Session(str(number)) for number in range(6)]
    assert ["".join(item.id for item in nearest_sessions(sessions, place, 2)) for place in range(6)] == [
        "012",
        "012",
        "123",
        "234",
        "345",
        "345",
    ]
    assert nearest_sessions(sessions, 4, 9) == tuple(sessions)


def test_a_long_list_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localmem.evaluation.datasets.readers._CHUNK", 7)
    path = write_records(tmp_path, [_cc(f"é{number}") for number in range(3)])
    assert [item.id for item in read_dataset("conversation_chronicles", path).episodes] == ["é0", "é1", "é2"]
    path.write_text(path.read_text() + " []")
    with pytest.raises(BadInput, match="has text after its list of 3 records"):
        read_dataset("conversation_chronicles", path)
    path.write_text(json.dumps([_cc()])[:-1])
    with pytest.raises(BadInput, match="record 2 is not JSON"):
        read_dataset("conversation_chronicles", path)
