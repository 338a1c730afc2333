"""remember, recall, show and forget as a user runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.server.conftest import LiveServer, serving

TURN = {"role": "user", "time": "2026-03-02T18:00:00Z"}


def test_remember_imports_each_session_once(localmem: Run, session_log: Path) -> None:
    first = localmem("remember", session_log, "--user", "ana", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == {
        "user": "ana",
        "system": "evidence",
        "read": 2,
        "skipped": 0,
        "erased": 0,
        "units": 4,
        "not_read": [],
    }
    again = json.loads(localmem("remember", session_log, "--user", "ana", "--json").stdout)
    assert (again["read"], again["skipped"], again["units"]) == (0, 2, 4)
    text = localmem("remember", session_log, "--user", "ana").stdout
    assert text == "0 sessions imported, 2 skipped (already imported); 4 units in total\n"


def test_recall_shows_the_memory_of_one_user_within_filters(localmem: Run, session_log: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    question = ("recall", "what is my dog called?", "--user", "ana", "--json")
    document = json.loads(localmem(*question).stdout)
    assert "Bruno" in document["hits"][0]["text"] + document["text"]
    assert localmem("recall", "what is my dog called?", "--user", "ben").stdout == "nothing is recalled\n"
    for bound in (("--told", "..2026-03-05"), ("--happened", "2026-03-01..2026-03-05"), ("--as-of", "2026-03-05")):
        hits = json.loads(localmem(*question, *bound).stdout)["hits"]
        assert {hit["session"] for hit in hits} == {"first"}
    assert localmem("recall", "dog", "--user", "ana", "--told", "2030").stdout == "nothing is recalled\n"


@pytest.mark.parametrize("command", [("recall", "dog"), ("show",)])
def test_a_bad_period_is_one_line_with_the_forms(localmem: Run, command: tuple[str, ...]) -> None:
    result = localmem(*command, "--user", "ana", "--told", "last week")
    assert result.returncode == 2
    assert "'last week' is not a period; write 2025, 2025-03, 2025-03-01 or a range" in result.stderr


@pytest.mark.parametrize("command", [("show",), ("show", "--history", "x"), ("audit",), ("recall", "dog")])
def test_an_unknown_system_is_not_an_empty_memory(localmem: Run, command: tuple[str, ...]) -> None:
    result = localmem(*command, "--system", "evidense")
    assert result.returncode == 2
    assert "unknown system 'evidense' (did you mean 'evidence'?); `localmem systems` lists them" in result.stderr


def test_show_is_limited_to_periods(localmem: Run, session_log: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    show = ("show", "--user", "ana", "--json")
    sessions = [
        {unit["session"] for unit in json.loads(localmem(*show, *period).stdout)["units"]}
        for period in ((), ("--told", "..2026-03-05"), ("--happened", "2030"))
    ]
    assert sessions == [{"first", "second"}, {"first"}, set()]


def test_show_prints_the_memory_now_and_at_a_date_and_the_history_of_a_unit(localmem: Run, session_log: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    now = json.loads(localmem("show", "--user", "ana", "--json").stdout)
    earlier = json.loads(localmem("show", "--user", "ana", "--as-of", "2026-03-05", "--json").stdout)
    assert [unit["session"] for unit in now["units"]] == [*["first"] * 3, "second"]
    assert [unit["session"] for unit in earlier["units"]] == ["first"] * 3
    text = localmem("show", "--user", "ana").stdout
    assert f"{now['units'][0]['id']}  2026-03-02  " in text
    history = localmem("show", "--user", "ana", "--history", now["units"][0]["id"]).stdout
    assert "User said: My dog is called Bruno." in history
    assert "add_unit by first" in history


def test_the_times_of_a_memory_are_shown_and_written_as_json(localmem: Run, tmp_path: Path) -> None:
    turn = {"role": "user", "text": "My cast comes off on the 12th of March.", "time": "2026-03-02T18:05:00"}
    log = tmp_path / "cast.jsonl"
    log.write_text(json.dumps({"id": "cast", "turns": [turn]}))
    localmem("remember", log, "--user", "ana", env={"LOCALMEM_CHAT__TIMEZONE": "Europe/Berlin"})
    question = ("recall", "When does my cast come off?", "--user", "ana")
    assert localmem(*question, "--as-of", "2026-03-05").stdout == (
        "2 March 2026: User: My cast comes off on the 12th of March (12 March 2026).\n"
    )
    recalled = json.loads(localmem(*question, "--json").stdout)
    bank = json.loads(localmem("show", "--user", "ana", "--json").stdout)
    for unit in (recalled["hits"][0], bank["units"][0]):
        assert unit["over_since"] == "2026-03-12"
        assert unit["spans"][0]["readings"] == [["2026-03-12", "2026-03-12"]]
        assert unit["time"] == "2026-03-02T18:05:00+01:00"
    assert "(12 March 2026, already past)" in recalled["text"]
    history = json.loads(localmem("show", "--user", "ana", "--history", bank["units"][0]["id"], "--json").stdout)
    assert history["unit"]["spans"][0]["readings"] == [["2026-03-12", "2026-03-12"]]


def test_a_log_without_dates_or_out_of_order_is_refused_in_one_line(localmem: Run, tmp_path: Path) -> None:
    undated = [{"role": "user", "text": "I leave tomorrow."}]
    out_of_order = [{**undated[0], "time": f"2026-03-0{day}T18:00"} for day in (5, 2)]
    for turns, says in ((undated, "has no time; add `time`"), (out_of_order, "give turns in the order they were said")):
        log = tmp_path / "log.jsonl"
        log.write_text(json.dumps({"id": "s", "turns": turns}))
        refused = localmem("remember", log, "--user", "ana")
        assert refused.returncode == 2
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr
        assert json.loads(localmem("show", "--user", "ana", "--json").stdout)["units"] == []


def test_a_user_without_memories_is_named(localmem: Run) -> None:
    assert localmem("show", "--user", "nobody").stdout == "No memories for user nobody (system evidence).\n"


def test_forget_erases_with_a_receipt_and_never_by_default(localmem: Run, session_log: Path, tmp_path: Path) -> None:
    localmem("remember", session_log, "--user", "ana")
    assert localmem("forget", "--all", "--yes").returncode == 2
    assert localmem("forget", "--user", "ana").returncode == 2
    refused = localmem("forget", "--session", "first", "--user", "ana", stdin="n\n")
    assert refused.returncode != 0
    ignored = localmem("forget", "--session", "first", "--user", "ana", "--with-sources", "--yes")
    assert ignored.returncode == 2
    assert "--with-sources needs --unit" in ignored.stderr
    unanswered = localmem("forget", "--session", "first", "--user", "ana")
    assert unanswered.returncode == 2
    assert "there is no answer, so nothing is erased; add --yes" in unanswered.stderr
    receipt = json.loads(localmem("forget", "--session", "first", "--user", "ana", "--yes", "--json").stdout)
    assert receipt["remaining"] == 0
    assert receipt["checked"] > 0
    database = b"".join(path.read_bytes() for path in (tmp_path / "xdg" / "localmem").glob("memory.db*"))
    assert b"Bruno" not in database
    assert b"Lyon" in database


def test_an_erased_session_is_imported_again_only_on_request(localmem: Run, session_log: Path) -> None:
    localmem("remember", session_log)
    erased = localmem("forget", "--session", "first", "--yes").stdout
    assert erased.endswith(
        "\na later import of a file with this session leaves it out, unless --with-erased is added\n"
    )
    skipped = "1 skipped (already imported), 1 skipped (erased; add --with-erased to import them too)"
    assert localmem("remember", session_log).stdout.startswith(f"0 sessions imported, {skipped}; ")
    assert json.loads(localmem("remember", session_log, "--json").stdout)["erased"] == 1
    again = localmem("remember", session_log, "--with-erased").stdout
    assert again.startswith("1 session imported, 1 skipped (already imported); ")
    assert "later import" not in localmem("forget", "--unit", "first.0@u0", "--with-sources", "--yes").stdout
    assert "brings them back" in localmem("forget", "--all", "--user", "me", "--yes").stdout
    skipped = "0 skipped (already imported), 1 skipped (erased; add --with-erased to import them too)"
    assert localmem("remember", session_log, "--user", "me").stdout.startswith(f"1 session imported, {skipped}; ")
    assert localmem("remember", session_log, "--user", "me", "--with-erased").stdout.startswith("1 session imported")


@pytest.mark.parametrize("mode", ["off", "write"])
@pytest.mark.parametrize("what", ["--session", "--all"])
def test_what_was_erased_or_incognito_is_not_stored_when_a_client_sends_it_again(
    localmem: Run, tmp_path: Path, what: str, mode: str
) -> None:
    """Whether or not a server runs while it is erased."""
    texts = ["The code is 4711.", "You said: The code is 4711.", "I keep bees."]

    def send(live: LiveServer, count: int, **headers: str) -> None:
        messages = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
        body = {"model": "localmem", "messages": messages[:count]}
        live.http().post("/v1/chat/completions", json=body, headers=headers).raise_for_status()

    data = tmp_path / "xdg" / "localmem"
    with serving(data, retrieval={"retriever": "bm25"}) as live:
        live.http().post("/v1/sessions", json={"sessions": [{"id": "s", "turns": [{**TURN, "text": "Hello."}]}]})
        send(live, 1, **{"x-localmem": mode})
        written = [info.id for info in live.runtime.store.sessions("me")]
    erased = ("--all",) if what == "--all" else ("--session", written[-1])
    assert localmem("forget", *erased, "--user", "me", "--yes").returncode == 0
    with serving(data, retrieval={"retriever": "bm25"}) as live:
        send(live, 3)
        assert live.log()[-1] == ["I keep bees.", ">You said: I keep bees."]
        assert "4711" not in str(live.log())


def test_an_erased_session_stays_out_of_an_imported_export(localmem: Run, session_log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    localmem("remember", session_log, "--user", "ana")
    localmem("export", "--user", "ana", "--out", out)
    for session in ("first", "second"):
        localmem("forget", "--session", session, "--user", "ana", "--yes")
    says = localmem("import", out).stdout
    cure = "run `localmem forget --all --user ana`, then this with --with-erased"
    assert says == f"imported 0 sessions with 0 turns for ana\n2 skipped (erased; to import them too, {cure})\n"
    assert localmem("import", out, "--with-erased").stdout == "imported 2 sessions with 6 turns for ana\n"


@pytest.mark.parametrize(
    "backbone",
    [
        {"LOCALMEM_MODEL": "mistral-7b-instruct-v0.3"},
        {"LOCALMEM_LLM__BACKEND": "vllm", "LOCALMEM_LLM__URL": "http://127.0.0.1:9/v1"},
    ],
    ids=["absent from the disk", "server down"],
)
def test_no_command_that_looks_at_a_memory_needs_the_backbone(
    localmem: Run, session_log: Path, tmp_path: Path, backbone: dict[str, str]
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    env = backbone | {"LOCALMEM_MODELS": str(models)}
    commands: list[tuple[object, ...]] = [
        ("remember", session_log),
        ("recall", "what is my dog called?"),
        ("recall", "what is my dog called?", "--as-of", "2026-03-05"),
        ("show",),
        ("undo", "--session", "first"),
        ("rebuild",),
        ("export",),
        ("forget", "--session", "second", "--yes"),
    ]
    for command in commands:
        finished = localmem(*command, env=env)
        assert finished.returncode == 0, (command, finished.stderr)


@pytest.mark.usefixtures("starter_encoder_dir")
def test_recall_with_the_default_settings_imports_no_library_of_large_models(session_log: Path, tmp_path: Path) -> None:
    program = (
        "import contextlib, sys\n"
        "from localmem.cli import main\n"
        "for arguments in (['remember', sys.argv[1]], ['recall', 'what is my dog called?']):\n"
        "    sys.argv[1:] = arguments\n"
        "    main()\n"
        "heavy = {'transformers', 'sentence_transformers', 'sklearn', 'peft', 'xgrammar', 'vllm'}\n"
        "print(sorted(heavy & {*sys.modules}))"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOCALMEM_")}
    env["XDG_DATA_HOME"] = str(tmp_path / "xdg")
    command = [sys.executable, "-c", program, str(session_log)]
    finished = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "Bruno" in finished.stdout
    assert finished.stdout.splitlines()[-1] == "[]"
