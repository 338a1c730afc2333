"""Readers of data sets: what they make of the published forms, of odd records and of bad files."""

import copy
from datetime import UTC, datetime
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.evaluation.datasets import READERS, longmemeval, read_dataset
from localmem.evaluation.episodes import half_of
from tests.evaluation.fixtures import EVIDENCE, HAYSTACK, LOCOMO, MTBENCHPLUS, write_records


def test_locomo_sessions_have_ids_speakers_times_and_images_in_words(tmp_path: Path) -> None:
    (episode,) = read_dataset("locomo", write_records(tmp_path, LOCOMO)).episodes
    assert [session.id for session in episode.sessions] == ["conv-1/1", "conv-1/2"]  # session 3 has a date only
    first = episode.sessions[0].turns
    assert [(turn.id, turn.role, turn.speaker) for turn in first[:2]] == [
        ("conv-1/D1:1", "user", "Ana"),
        ("conv-1/D1:2", "assistant", "Ben"),
    ]
    assert first[2].text == "Look at this. (shares an image: a bowl of soup)"
    assert first[0].time == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert first[1].time > first[0].time


def test_locomo_probes_name_their_type_and_evidence(tmp_path: Path) -> None:
    data = read_dataset("locomo", write_records(tmp_path, LOCOMO))
    probes = data.episodes[0].probes
    assert [probe.type for probe in probes] == ["single-hop", "multi-hop", "adversarial", "open-domain", "open-domain"]
    assert [probe.evidence for probe in probes] == [
        ("conv-1/D1:1",),
        ("conv-1/D1:3", "conv-1/D2:1"),  # two ids in one field, one with a leading zero
        ("conv-1/D2:1",),  # a colon too many
        (),
        (),
    ]
    assert probes[1].sessions == ("conv-1/1", "conv-1/2")
    assert (probes[0].answer, probes[1].answer, probes[2].answer) == ("a parrot", "2022", "")
    assert data.notes == (
        "evidence fields that were corrected (several ids in one, or oddly written): 2",
        "evidence ids without a turn, dropped: 1",
        "questions without evidence: 2",
        "1 conversations; the published files hold 10",
        "5 questions; the published files hold 1986",
    )


def test_longmemeval_evidence_is_pooled_by_half(tmp_path: Path) -> None:
    data = read_dataset("longmemeval", write_records(tmp_path, EVIDENCE, lines=True))
    assert {episode.id: [probe.id for probe in episode.probes] for episode in data.episodes} == {
        half: [item for item in ("q1", "q2", "q3_abs") if half_of(item.removesuffix("_abs")) == half]
        for half in ("choose", "report")
    }
    for episode in data.episodes:
        turns = {turn.id: turn for session in episode.sessions for turn in session.turns}
        for probe in episode.probes:
            if probe.type == "abstention":
                assert (probe.evidence, probe.sessions) == ((), ())
            else:
                (turn,) = probe.evidence
                assert probe.answer in turns[turn].text
                assert probe.sessions == (turn.rpartition(".")[0],)
    assert any("pool" in note for note in data.notes)
    assert "questions without evidence: 1" in data.notes


def test_both_halves_can_be_searched_as_one_pool(tmp_path: Path) -> None:
    data = read_dataset("longmemeval", write_records(tmp_path, EVIDENCE, lines=True))
    (merged,) = longmemeval.merge_pools(data).episodes
    assert {probe.id for probe in merged.probes} == {"q1", "q2", "q3_abs"}
    assert set(merged.sessions) == {session for pool in data.episodes for session in pool.sessions}
    haystacks = read_dataset("longmemeval", write_records(tmp_path, HAYSTACK))
    assert longmemeval.merge_pools(haystacks) == haystacks


def test_the_same_words_are_one_session_of_the_pool_and_evidence_of_both(tmp_path: Path) -> None:
    twice = [copy.deepcopy(EVIDENCE[0]), copy.deepcopy(EVIDENCE[0])]
    twice[1]["evidence_sessions"][0]["date"] = "2023/05/22 (Mon) 02:21"
    twice[1]["question_date"] = None
    data = read_dataset("longmemeval", write_records(tmp_path, twice, lines=True))
    (episode,) = (item for item in data.episodes if item.probes)
    assert len(episode.sessions) == 1
    assert episode.probes[0].sessions == episode.probes[1].sessions == (episode.sessions[0].id,)
    assert "sessions that are evidence of several questions, pooled once: 1" in data.notes


def test_a_question_can_be_given_a_haystack_of_some_sessions(tmp_path: Path) -> None:
    many = [{**copy.deepcopy(EVIDENCE[0]), "question_id": f"q{number}"} for number in range(12)]
    for number, item in enumerate(many):
        item["evidence_sessions"][0]["turns"][0]["content"] = f"fact {number}"
    data = read_dataset("longmemeval", write_records(tmp_path, many, lines=True))
    drawn = longmemeval.draw_haystacks(data, 3)
    assert len(drawn.episodes) == 12
    for episode in drawn.episodes:
        (probe,) = episode.probes
        ids = [session.id for session in episode.sessions]
        assert len(ids) == 3
        assert set(probe.sessions) <= set(ids)
        assert episode.half == half_of(probe.id)
    assert drawn == longmemeval.draw_haystacks(data, 3)
    with pytest.raises(BadInput, match="omit pool"):
        longmemeval.draw_haystacks(read_dataset("longmemeval", write_records(tmp_path, HAYSTACK)), 3)


def test_longmemeval_haystack_is_an_episode_of_its_own(tmp_path: Path) -> None:
    (episode,) = read_dataset("longmemeval", write_records(tmp_path, HAYSTACK)).episodes
    assert [session.id for session in episode.sessions] == ["h1/a1", "h1/other"]  # in time order
    (probe,) = episode.probes
    assert (probe.evidence, probe.sessions, probe.answer) == (("h1/a1.0",), ("h1/a1",), "3")
    assert episode.half == half_of("h1")


def test_mtbenchplus_merges_sessions_and_finds_source_topics(tmp_path: Path) -> None:
    data = read_dataset("mtbenchplus", write_records(tmp_path, MTBENCHPLUS))
    (episode,) = data.episodes
    ids = [turn.id for session in episode.sessions for turn in session.turns]
    assert ids == ["m0/stem-1-0", "m0/stem-1-1", "m0/writing-2-0", "m0/math-3-0"]  # the poem comes again, read once
    first, second = episode.probes
    assert first.evidence == ("m0/stem-1-0", "m0/stem-1-1")
    assert second.evidence == ("m0/writing-2-0", "m0/math-3-0")
    assert second.sessions == ("m0/m0", "m0/m1")
    assert [turn.text for turn in first.dialogue] == ["What about a cactus?", "Write a poem."]
    assert data.notes == (
        "requests of a topic that returns within a history, read once: 1",
        "2 sessions; the published files hold 54",
    )


def test_more_than_five_sessions_make_another_history(tmp_path: Path) -> None:
    six = [{**MTBENCHPLUS[0], "id": f"m{number}"} for number in range(6)]
    data = read_dataset("mtbenchplus", write_records(tmp_path, six))
    assert [(item.id, len(item.probes)) for item in data.episodes] == [("m0", 5), ("m5", 1)]


def test_halves_and_limits(tmp_path: Path) -> None:
    ids = [f"q{number}" for number in range(200)]
    share = sum(half_of(item) == "report" for item in ids) / len(ids)
    assert 0.4 < share < 0.6
    data = read_dataset("longmemeval", write_records(tmp_path, EVIDENCE, lines=True))
    for half in ("choose", "report"):
        assert {episode.half for episode in data.select(half).episodes} == {half}
    assert sum(len(episode.probes) for episode in data.select(None, limit=2).episodes) == 2


@pytest.mark.parametrize(
    "name",
    sorted({*READERS} - {"coqa", "persona_chat", "jsonl", "scenarios", "personamem", "longmemeval_v2", "locomo_plus"}),
)  # these have other forms
@pytest.mark.parametrize(
    "text, message",
    [("[{", "not JSON"), ("[]", "contains no record"), ('{"a": 1}\n{oh', "line 1"), ('[{"id": 7}]', "record 1")],
)
def test_a_file_in_another_form_is_one_line_with_file_and_place(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_dataset(name, path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value) or "line 2 is not JSON" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_records_inside_a_good_file_are_named(tmp_path: Path) -> None:
    late = copy.deepcopy(LOCOMO)
    late[0]["conversation"]["session_2_date_time"] = "Monday"
    with pytest.raises(BadInput, match=r"record 1, session_2: the time 'Monday'"):
        read_dataset("locomo", write_records(tmp_path, late))
    mute = copy.deepcopy(LOCOMO)
    mute[0]["conversation"]["session_1"][1].pop("dia_id")
    with pytest.raises(BadInput, match=r"record 1, session_1: turns\.1\.dia_id"):
        read_dataset("locomo", write_records(tmp_path, mute))
    short = [{**HAYSTACK[0], "haystack_dates": []}]
    with pytest.raises(BadInput, match="different numbers"):
        read_dataset("longmemeval", write_records(tmp_path, short))
    with pytest.raises(BadInput, match="names no topic"):
        read_dataset("mtbenchplus", write_records(tmp_path, [{**MTBENCHPLUS[0], "conversations": []}]))
    with pytest.raises(BadInput, match=r"cannot read .*nowhere\.json"):
        read_dataset("locomo", tmp_path / "nowhere.json")
    with pytest.raises(BadInput, match="no reader for the data set 'squad'"):
        read_dataset("squad", tmp_path / "nowhere.json")


def test_one_bad_record_in_many_is_left_out_and_counted(tmp_path: Path) -> None:
    many = [{**copy.deepcopy(HAYSTACK[0]), "question_id": f"q{number}"} for number in range(20)]
    path = write_records(tmp_path, [*many, {"question_id": "bad"}], lines=True)
    data = read_dataset("longmemeval", path)
    assert len(data.episodes) == 20
    (note,) = [note for note in data.notes if "bad records, left out" in note]
    assert note.endswith(": 1")
    assert "line 21" in note


def test_a_file_with_many_bad_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="line 2"):
        read_dataset("longmemeval", write_records(tmp_path, [HAYSTACK[0], {"question_id": "bad"}], lines=True))
