"""The reader of scenarios: people as episodes, and one line for every mistake in a file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.datasets.scenarios import read_people
from localmem.evaluation.episodes import half_of
from tests.evaluation.fixtures import SCENARIO, write_scenarios


def test_a_person_is_an_episode_whose_questions_are_probes(tmp_path: Path) -> None:
    data = read_dataset("scenarios", write_scenarios(tmp_path, a_1={}, b_1={}))
    assert [(episode.id, episode.half) for episode in data.episodes] == [("a-1", half_of("a")), ("b-1", half_of("b"))]
    assert data.notes == ("paraphrases, not used as probes: 2",)
    first = data.episodes[0]
    turn = first.sessions[1].turns[0]
    assert (turn.id, turn.role, turn.speaker, turn.time) == (
        "a-1/1.0", "user", "User", datetime(2026, 3, 8, 9, tzinfo=UTC),
    )  # fmt: skip
    update, fact, abstention, forgotten = first.probes
    assert (update.answer, update.others, update.evidence, update.sessions) == (
        "red", ("It is red.",), ("a-1/1.0",), ("a-1/1",),
    )  # fmt: skip
    assert fact.sessions == ("a-1/0",)
    assert abstention.evidence == forgotten.evidence == ()


def test_the_checksum_is_that_of_all_files(tmp_path: Path) -> None:
    pair = write_scenarios(tmp_path / "pair", a_1={}, a_2={})
    other = write_scenarios(tmp_path / "other", a_1={}, a_2={"ordinary": []})
    assert read_dataset("scenarios", pair).sha256 != read_dataset("scenarios", other).sha256
    assert read_dataset("scenarios", pair / "a-1.json").sha256 == read_dataset("scenarios", other / "a-1.json").sha256


def test_people_are_selected_by_author(tmp_path: Path) -> None:
    folder = write_scenarios(tmp_path, a_1={}, a_2={}, b_1={})
    assert [person.id for person in read_people(folder, ["a"])] == ["a-1", "a-2"]
    with pytest.raises(BadInput, match="no person of the author 'c'; it has a, b"):
        read_people(folder, ["a", "c"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probes": [SCENARIO["probes"][0] | {"evidence": [[1, 9]]}]}, r"probe 0: evidence \[1, 9\] is no turn"),
        ({"probes": [SCENARIO["probes"][0] | {"evidence": []}]}, "probe 0: a knowledge-update probe has no evidence"),
        ({"probes": [{"type": "temporal"}]}, "probes.0.question: Field required"),
        ({"sessions": SCENARIO["sessions"][::-1]}, "session 1 starts at 2026-03-01T09:00:00"),
        ({"sessions": []}, "sessions: "),
        ({"sessions": [{"started_at": "March", "turns": []}]}, "sessions.0.started_at"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = write_scenarios(tmp_path, a_1=changes)
    with pytest.raises(BadInput, match=message) as failure:
        read_people(folder)
    assert str(failure.value).startswith(str(folder / "a-1.json"))
    assert "\n" not in str(failure.value)


def test_a_folder_without_people_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="contains no"):
        read_people(tmp_path)
    with pytest.raises(BadInput, match=r"cannot read .*; give a folder with one .json file a person, or one such file"):
        read_people(tmp_path / "absent")
    (tmp_path / "a-1.json").write_text("{oops", encoding="utf-8")
    with pytest.raises(BadInput, match="is not JSON"):
        read_people(tmp_path)
