"""localmem's own lines of sessions, and what a bad record is told."""

import json
from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.times.zones import read_zone
from localmem.transfer import FileDefaults, read_sessions

NAMES = FileDefaults("Ana", "Bot")
BERLIN = FileDefaults(zone=read_zone("Europe/Berlin"))


def _file(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def _turn(role: str, text: str, time: str | int | None = None) -> dict[str, str | int]:
    return {"role": role, "text": text} | ({"time": time} if time else {})


def test_sessions_come_in_the_order_of_time_with_names_and_zones(tmp_path: Path) -> None:
    late = {"id": "b", "time": "2026-03-03T09:00:00", "messages": [{"role": "user", "content": "hi again"}]}
    early = {"id": "a", "turns": [_turn("user", "안녕 🎈", "2026-03-02T20:00:00+02:00"), _turn("assistant", "hey")]}
    early["time"] = "2026-03-02T19:00:00Z"
    first, second = read_sessions(_file(tmp_path, late, "", early), NAMES)
    assert [session.id for session in (first, second)] == ["a", "b"]
    assert [(turn.id, turn.speaker, turn.text) for turn in first.turns] == [
        ("a.0", "Ana", "안녕 🎈"),
        ("a.1", "Bot", "hey"),
    ]
    assert first.turns[0].time.isoformat() == "2026-03-02T20:00:00+02:00"
    assert second.turns[0].time.isoformat() == "2026-03-03T09:00:00+00:00"


def test_times_are_those_of_the_users_clock_and_two_zones_stay_two(tmp_path: Path) -> None:
    texts = ("2026-03-02T23:30:00", "2026-03-02T22:45:00Z", "2026-03-03T08:00:00+09:00")
    record = {"turns": [_turn("user", f"number {number}", time) for number, time in enumerate(texts)]}
    path = _file(tmp_path, record)
    (read,) = read_sessions(path, BERLIN)
    assert [turn.time.isoformat() for turn in read.turns] == [
        "2026-03-02T23:30:00+01:00",
        "2026-03-02T23:45:00+01:00",
        "2026-03-03T08:00:00+09:00",
    ]
    moscow = FileDefaults(zone=read_zone("Europe/Moscow"))
    assert read.id == read_sessions(path, moscow)[0].id  # so an import in another zone adds nothing


def test_a_log_goes_through_the_hour_that_occurs_twice(tmp_path: Path) -> None:
    clock = ("2026-10-25T02:30:00", "2026-10-25T02:50:00", "2026-10-25T02:30:00", "2026-10-25T03:10:00")
    record = {"turns": [_turn("user", f"number {number}", time) for number, time in enumerate(clock)]}
    (read,) = read_sessions(_file(tmp_path, record), BERLIN)
    times = [turn.time for turn in read.turns]
    assert times == sorted(times)
    assert [time.isoformat()[11:] for time in times[1:3]] == ["02:50:00+02:00", "02:30:00+01:00"]


def test_an_id_comes_from_the_content_when_there_is_none(tmp_path: Path) -> None:
    record = {"turns": [_turn("user", "hi", "2026-03-02T18:00:00Z")]}
    (first,) = read_sessions(_file(tmp_path, record), NAMES)
    (again,) = read_sessions(_file(tmp_path, record), NAMES)
    assert first == again
    other = {"turns": [_turn("user", "ho", "2026-03-02T18:00:00Z")]}
    assert read_sessions(_file(tmp_path, other), NAMES)[0].id != first.id


@pytest.mark.parametrize(
    "line, says",
    [
        ('{"turns": [', "line 2"),
        ({"turns": []}, "line 2: turns"),
        ({"turns": [_turn("user", "when?")]}, "line 2: turn 1 ('when?') has no time"),
        ({"turns": [_turn("robot", "x", "2026-03-02")]}, "line 2: turns.0.role"),
        ({"turns": [_turn("user", "x", "soon")]}, "line 2: turns.0.time"),
        ({"turns": [_turn("system", "x", "2026-03-02")]}, "line 2: the session has no turn"),
        ({"turns": [_turn("user", "x", "0001-01-01T00:00:00")]}, "line 2: turns.0.time: the year 1 is none"),
        ({"turns": [_turn("user", "x", 253402300799000)]}, "line 2: turns.0.time: the year 9999 is none"),
        ({"turns": [_turn("user", "x", "2026-03-02"), _turn("user", "y", "2026-03-01")]}, "line 2: turn "),
        ({"id": "s", "turns": [_turn("user", "ho", "2026-03-02")]}, "line 2: another session has the id 's'"),
    ],
)
def test_a_bad_record_names_file_and_line(tmp_path: Path, line: object, says: str) -> None:
    good = {"id": "s", "turns": [_turn("user", "hi", "2026-03-02T18:00:00Z")]}
    with pytest.raises(BadInput) as error:
        read_sessions(_file(tmp_path, good, line), NAMES)
    assert "log.jsonl" in str(error.value)
    assert says in str(error.value)


def test_an_empty_or_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not contain sessions"):
        read_sessions(_file(tmp_path), NAMES)
    with pytest.raises(BadInput, match="cannot read"):
        read_sessions(tmp_path / "absent.jsonl", NAMES)
