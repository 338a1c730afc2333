"""sessions, export in each form, imports that have grown, and character cards, as a user runs them."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_sessions_are_listed_the_latest_first(localmem: Run, session_log: Path) -> None:
    assert localmem("sessions", "--user", "ana").stdout == "no sessions\n"
    localmem("remember", session_log, "--user", "ana")
    rows = json.loads(localmem("sessions", "--user", "ana", "--json").stdout)
    assert [(row["id"], row["turns"], row["first_words"]) for row in rows] == [
        ("second", 2, "I moved: now I live in Lyon."),
        ("first", 4, "My dog is called Bruno."),
    ]
    text = localmem("sessions", "--user", "ana", "--limit", "1").stdout
    assert "2026-03-09 18:00" in text
    assert "Bruno" not in text


def test_sessions_are_dated_by_the_users_clock(localmem: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"id": "s", "turns": [{"role": "user", "text": "I keep bees.", "time": "2026-01-02T00:30"}]}')
    berlin = {"LOCALMEM_CHAT__TIMEZONE": "Europe/Berlin"}
    localmem("remember", log, "--user", "ana", env=berlin)
    assert "2026-01-02 00:30" in localmem("sessions", "--user", "ana", env=berlin).stdout


def test_what_is_moved_out_can_be_moved_in(localmem: Run, session_log: Path, tmp_path: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    out = tmp_path / "out.jsonl"
    localmem("export", "--user", "ana", "--format", "sessions", "--out", out)
    assert json.loads(localmem("remember", out, "--user", "ben", "--json").stdout)["read"] == 2
    copy = localmem("export", "--user", "ben", "--format", "sessions").stdout
    assert copy == out.read_text(encoding="utf-8")
    page = localmem("export", "--user", "ana", "--format", "markdown").stdout
    assert "## 02 March 2026, 18:00 (first)\n\n**User**, 18:00:\n\nMy dog is called Bruno.\n" in page
    assert "# Memory of the system evidence\n\n- 02 March 2026: " in page
    assert "there is no user 'zoe'" in localmem("export", "--user", "zoe", "--format", "markdown").stderr


def test_an_export_with_separators_of_lines_in_a_text_is_imported(localmem: Run, tmp_path: Path) -> None:
    """JSON leaves U+2028, U+2029 and U+0085 as they are, and str.splitlines cuts a line at each."""
    log, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    turns = [{"role": "user", "text": "I keep\u2028bees,\u2029hens\x85and a dog.", "time": "2026-03-02T18:00Z"}]
    log.write_text(json.dumps({"id": "farm", "turns": turns}))
    localmem("remember", log, "--user", "ana")
    localmem("export", "--user", "ana", "--out", out)
    assert "\u2028" in out.read_text(encoding="utf-8")
    result = localmem("import", out, "--user", "ben")
    assert result.stdout == "imported 1 session with 1 turn for ben\n", result.stderr


def test_a_conversation_that_has_grown_is_continued(localmem: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    turns = [
        {"role": "user", "text": f"I visited town number {n}.", "time": f"2026-03-02T18:0{n}:00Z"} for n in range(6)
    ]
    for count, read in ((2, 1), (4, 1), (6, 1), (6, 0)):
        path.write_text(json.dumps({"id": "c", "turns": turns[:count]}))
        assert json.loads(localmem("remember", path, "--json").stdout)["read"] == read
    rows = json.loads(localmem("sessions", "--json").stdout)
    assert [(row["id"], row["turns"]) for row in rows] == [("c+4", 2), ("c+2", 2), ("c", 2)]


def test_a_session_that_cannot_be_remembered_is_named_and_the_others_are_remembered(
    localmem: Run, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    texts = {"first": "I keep bees.", "broken": "\0", "last": "I moved to Lyon."}
    turns = {name: [{"role": "user", "text": text, "time": "2026-03-02T18:00Z"}] for name, text in texts.items()}
    path.write_text("\n".join(json.dumps({"id": name, "turns": turns[name]}) for name in texts))
    result = localmem("remember", path)
    assert result.returncode == 1
    assert result.stdout.startswith("2 sessions imported, 0 skipped")
    assert "session 'broken' is not remembered: a text contains the character NUL" in result.stderr
    assert {row["id"] for row in json.loads(localmem("sessions", "--json").stdout)} == {"first", "last"}


def test_another_conversation_with_a_known_id_is_imported(localmem: Run, session_log: Path, tmp_path: Path) -> None:
    localmem("remember", session_log)
    path = tmp_path / "other.jsonl"
    turns = [{"role": "user", "text": "I have a dog called Rex.", "time": "2026-03-02T18:00Z"}]
    path.write_text(json.dumps({"id": "first", "turns": turns}))
    for line in ("1 session imported, 0 skipped", "0 sessions imported, 1 skipped"):
        assert localmem("remember", path).stdout == f"{line} (already imported); 5 units in total\n"


def test_a_card_is_printed_as_settings_and_its_book_is_remembered(localmem: Run, tmp_path: Path) -> None:
    record = {"spec": "chara_card_v2", "data": {"name": "Mira", "description": "{{char}} knows {{user}}."}}
    path = tmp_path / "mira.json"
    path.write_text(json.dumps(record))
    printed = localmem("card", path, "--name", "Ana").stdout
    assert printed == "chat:\n  assistant_name: Mira\n  instructions: Mira knows Ana.\n"
    settings = tmp_path / "mira.yaml"
    settings.write_text(printed)
    assert localmem("settings", "--config", settings).returncode == 0
    assert "has no book with facts" in localmem("remember", path).stderr
    record["data"]["character_book"] = {"entries": [{"content": "{{char}} fears gulls."}]}  # type: ignore[index]
    path.write_text(json.dumps(record))
    result = localmem("remember", path, "--time", "2026-03-02", "--json")
    assert json.loads(result.stdout)["read"] == 1
    assert "prints it as settings" in result.stderr
