"""The commands from outside: what they print, how they end, and what a mistake is told."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def _log(tmp_path: Path) -> Path:
    def line(name: str, day: str, *texts: str) -> str:
        turns = [
            {"role": "assistant" if n % 2 else "user", "text": text, "time": f"{day}T18:0{n}:00Z"}
            for n, text in enumerate(texts)
        ]
        return json.dumps({"id": name, "turns": turns})

    path = tmp_path / "log.jsonl"
    lines = [
        line("first", "2026-03-02", "My dog is called Bruno.", "A fine name.", "I live in Paris.", "Lovely."),
        line("second", "2026-03-09", "I moved: now I live in Lyon.", "How is it?"),
    ]
    path.write_text("\n".join(lines))
    return path


def test_help_lists_every_command_and_each_has_help_of_its_own(localmem: Run) -> None:
    from localmem.cli import _COMMANDS

    top = localmem("--help")
    assert top.returncode == 0
    for name in _COMMANDS:
        assert name in top.stdout
        own = localmem(name, "--help")
        assert own.returncode == 0, own.stderr
        assert own.stdout.startswith(f"Usage: python -m localmem {name}")


def test_read_recall_show_and_history(localmem: Run, tmp_path: Path) -> None:
    first = localmem("remember", _log(tmp_path), "--user", "ana", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == {
        "user": "ana",
        "system": "exchange_retrieval",
        "read": 2,
        "known": 0,
        "units": 3,
    }
    again = json.loads(localmem("remember", _log(tmp_path), "--user", "ana", "--json").stdout)
    assert (again["read"], again["known"], again["units"]) == (0, 2, 3)
    found = json.loads(localmem("recall", "what is my dog called?", "--user", "ana", "--json").stdout)
    assert "Bruno" in found["hits"][0]["text"] + found["text"]
    assert "nothing is recalled" in localmem("recall", "what is my dog called?", "--user", "ben").stdout

    early = ("recall", "what is my dog called?", "--user", "ana", "--json", "--until", "2026-03-05")
    assert {hit["session"] for hit in json.loads(localmem(*early).stdout)["hits"]} == {"first"}
    then = ("recall", "what is my dog called?", "--user", "ana", "--json", "--as-of", "2026-03-05")
    assert {hit["session"] for hit in json.loads(localmem(*then).stdout)["hits"]} == {"first"}
    assert localmem("recall", "dog", "--user", "ana", "--since", "2030-01-01").stdout == "nothing is recalled\n"

    now = json.loads(localmem("show", "--user", "ana", "--json").stdout)
    then = json.loads(localmem("show", "--user", "ana", "--as-of", "2026-03-05", "--json").stdout)
    assert [unit["session"] for unit in now["units"]] == ["first", "first", "second"]
    assert [unit["session"] for unit in then["units"]] == ["first", "first"]
    life = localmem("show", "--user", "ana", "--history", now["units"][0]["id"]).stdout
    assert "My dog is called Bruno." in life
    assert "add_unit by first" in life


def test_export_and_import_are_a_round_trip(localmem: Run, tmp_path: Path) -> None:
    localmem("remember", _log(tmp_path), "--user", "ana")
    out = tmp_path / "ana.jsonl"
    assert localmem("export", "--user", "ana", "--out", out).returncode == 0
    other = tmp_path / "other"
    assert localmem("import", out, "--data", other).returncode == 0
    assert localmem("export", "--user", "ana", "--data", other).stdout == out.read_text()
    assert localmem("show", "--user", "ana", "--data", other).stdout == localmem("show", "--user", "ana").stdout


def test_rebuild_reads_the_raw_log_with_another_system(localmem: Run, tmp_path: Path) -> None:
    localmem("remember", _log(tmp_path), "--user", "ana")
    before = localmem("show", "--user", "ana").stdout
    assert localmem("show", "--user", "ana", "--system", "none").stderr.count("localmem rebuild") == 1
    assert localmem("rebuild", "--user", "ana", "--system", "none").returncode == 0
    rebuilt = localmem("rebuild", "--user", "ana")
    assert "2 sessions read again" in rebuilt.stdout, rebuilt.stderr
    assert localmem("show", "--user", "ana").stdout == before


def test_undo_takes_back_one_session(localmem: Run, tmp_path: Path) -> None:
    localmem("remember", _log(tmp_path), "--user", "ana")
    assert localmem("undo", "--session", "first", "--user", "ana").returncode == 0
    left = json.loads(localmem("show", "--user", "ana", "--json").stdout)
    assert {unit["session"] for unit in left["units"]} == {"second"}


def test_forget_erases_with_a_receipt_and_never_by_default(localmem: Run, tmp_path: Path) -> None:
    localmem("remember", _log(tmp_path), "--user", "ana")
    assert localmem("forget", "--all", "--yes").returncode == 2
    assert localmem("forget", "--user", "ana").returncode == 2
    refused = localmem("forget", "--session", "first", "--user", "ana", stdin="n\n")
    assert refused.returncode != 0
    receipt = json.loads(localmem("forget", "--session", "first", "--user", "ana", "--yes", "--json").stdout)
    assert receipt["left"] == 0
    assert receipt["checked"] > 0
    database = b"".join(path.read_bytes() for path in (tmp_path / "xdg" / "localmem").glob("memory.db*"))
    assert b"Bruno" not in database
    assert b"Lyon" in database


def test_systems_and_doctor(localmem: Run) -> None:
    names = [row["name"] for row in json.loads(localmem("systems", "--json").stdout)]
    assert {"none", "rsum", "memory_retrieval", "exchange_retrieval"} <= set(names)
    report = localmem("doctor", "--json", env={"HTTPS_PROXY": "http://proxy.example:3128"})
    findings = {(row["area"], row["what"]): row for row in json.loads(report.stdout)}
    assert findings["store", "data directory"]["state"] == "ok"
    assert findings["network", "HTTPS_PROXY"]["state"] == "note"
    assert findings["models", "encoder"]["state"] in ("ok", "bad")


def test_doctor_says_what_is_missing(localmem: Run, tmp_path: Path) -> None:
    report = localmem("doctor", env={"LOCALMEM_MODELS": str(tmp_path / "nothing")})
    assert report.returncode == 1
    assert "localmem models pull smollm2-135m-instruct" in report.stdout


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (["chatt"], 2, "No such command"),
        (["recall", "x", "--system", "rsumm"], 2, "did you mean 'rsum'"),
        (["remember", "absent.jsonl"], 2, "cannot read absent.jsonl"),
        (["show", "--as-of", "soon"], 2, "'soon' is no time"),
        (["recall", "x", "--since", "soon"], 2, "'soon' is no time"),
        (["recall", "x", "--speaker", "Ana", "--system", "full_history"], 2, "keeps no single units to search"),
        (["show", "--config", "absent.yaml"], 2, "cannot read absent.yaml"),
        (["show", "--history", "nobody"], 1, "nobody"),
        (["undo", "--session", "nobody"], 1, "nobody"),
        (["import", "absent.jsonl"], 2, "absent.jsonl"),
    ],
)
def test_a_mistake_is_one_line(localmem: Run, arguments: list[str], code: int, says: str) -> None:
    ended = localmem(*arguments)
    assert ended.returncode == code, ended.stderr
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
