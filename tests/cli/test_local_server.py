"""recall and show ask a server that runs on the same data directory; everything else falls back to this process."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localmem.cli.local_server import ServerAccess, ask_server
from localmem.cli.options import SettingsFlags
from localmem.config import decisive_settings, default_settings, load_settings
from localmem.errors import BadInput, LLMError, LocalmemError, NotFound
from localmem.server.local_access import (
    USER_HEADER,
    LocalServer,
    read_local_server,
    remove_local_server,
    write_local_server,
)
from localmem.types import Prompt
from tests.cli.conftest import Run
from tests.server.conftest import LiveServer, serving

QUESTION = "what is my dog called?"


def chat_and_remember(live: LiveServer, user_header: str, *texts: str) -> None:
    """One session of the user with these words, remembered."""
    headers = {"authorization": f"Bearer {live.services.local_token}", USER_HEADER: user_header}
    messages: list[dict[str, str]] = []
    for text in texts:
        messages.append({"role": "user", "content": text})
        body = {"model": "localmem", "messages": messages}
        answer = live.http().post("/v1/chat/completions", json=body, headers=headers).json()
        messages.append(answer["choices"][0]["message"])
    live.http().post("/v1/sessions/end", headers=headers)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    """A server with keys on the data directory that the command uses by default."""
    data_dir, keys = tmp_path / "xdg" / "localmem", {"key-of-ann-1": "ann"}
    with serving(data_dir, server={"keys": keys}, retrieval={"retriever": "bm25"}) as server:
        yield server


CHAT = {"LOCALMEM_LLM__BACKEND": "transformers"}  # as `serving` has it
TURNS = (("user", "My dog is called Bruno."), ("assistant", "A fine name."), ("user", "He is a greyhound."))


@pytest.fixture
def dialogue(tmp_path: Path) -> Path:
    """JSONL of one session."""
    turns = [{"role": role, "text": text, "time": "2026-03-02T18:00:00Z"} for role, text in TURNS]
    path = tmp_path / "dialogue.jsonl"
    path.write_text(json.dumps({"id": "first", "turns": turns}))
    return path


def results(runs: Sequence["subprocess.CompletedProcess[str]"]) -> list[tuple[int, str, str]]:
    """What was printed; times, keys and signatures of receipts differ each time."""
    signed = re.compile(r'\n +"(?:time|key|signature)": "[^"]*",?')
    return [(run.returncode, signed.sub("", run.stdout), run.stderr) for run in runs]


def count_requests(live: LiveServer, route: str) -> int:
    """How many requests the server has counted under a route."""
    text = live.http().get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("localmem_requests_total") and f'"{route}"' in line]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)


def test_recall_and_show_are_answered_by_the_server_as_by_the_process_itself(localmem: Run, live: LiveServer) -> None:
    chat_and_remember(live, "M%C3%BCller", "My dog is called Bruno.")
    live.wait_until_remembered("Müller")
    commands: list[tuple[str, ...]] = [
        ("recall", QUESTION, "--user", "Müller", "--json"),
        ("recall", QUESTION, "--user", "Müller", "--told", "2020..2030", "--json"),
        ("show", "--user", "Müller", "--json"),
        ("show", "--user", "Müller"),
        ("show", "--user", "ben"),
    ]
    by_server = [localmem(*command) for command in commands]
    assert "Bruno" in by_server[0].stdout
    assert count_requests(live, "/v1/memories/recall") == 2
    assert count_requests(live, "/v1/memories/bank") == 3
    live.services.settings.data.joinpath("server.json").unlink()
    by_process = [localmem(*command) for command in commands]
    assert [(run.returncode, run.stdout) for run in by_server] == [(run.returncode, run.stdout) for run in by_process]
    assert count_requests(live, "/v1/memories/recall") == 2


def test_the_server_remembers_and_erases_as_the_process_itself(
    localmem: Run, live: LiveServer, dialogue: Path, tmp_path: Path
) -> None:
    def run_all(*more: object) -> list["subprocess.CompletedProcess[str]"]:
        commands: list[tuple[object, ...]] = [
            ("remember", dialogue, "--json"),
            ("remember", dialogue),
            ("show", "--history", "first.0@u0", "--json"),
            ("forget", "--unit", "nothing", "--yes"),
            ("forget", "--unit", "first.0@u0", "--yes"),
            ("forget", "--session", "first", "--yes", "--json"),
            ("remember", dialogue, "--json"),
            ("remember", dialogue, "--with-erased", "--json"),
        ]
        return [localmem(*command, *more, env=CHAT) for command in commands]

    by_server = results(run_all())
    assert json.loads(by_server[0][1])["read"] == 1
    assert [code for code, _, _ in by_server] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert [json.loads(says)["read"] for _, says, _ in by_server[6:]] == [0, 1]
    assert count_requests(live, "/v1/sessions/{session_id:path}") == 1
    assert count_requests(live, "/v1/memories/{memory_id:path}") == 2
    by_process = results(run_all("--data-dir", tmp_path / "other"))
    refusals = by_server.pop(3), by_process.pop(3)  # the server speaks to its other clients too
    assert all(code == 1 and "'nothing'" in says and "`localmem show`" in says for code, _, says in refusals)
    assert by_server == by_process


def test_a_server_remembers_what_another_system_logged_and_all_but_what_it_refuses(
    localmem: Run, dialogue: Path, tmp_path: Path
) -> None:
    """Of a session of which turns were erased it remembers the others."""
    data_dir, bm25 = tmp_path / "xdg" / "localmem", {"retriever": "bm25"}
    with serving(data_dir, retrieval=bm25):
        localmem("remember", dialogue, env=CHAT)
        localmem("forget", "--unit", "first.0@u0", "--with-sources", "--yes")
    refused, last = (
        {"id": name, "turns": [{"role": "user", "text": text}]} for name, text in (("b", "\0"), ("c", "x"))
    )
    lines = [json.dumps({**session, "time": "2026-03-03T18:00:00Z"}) for session in (refused, last)]
    dialogue.write_text("\n".join([dialogue.read_text(), *lines]))
    with serving(data_dir, system="rsum", retrieval=bm25) as live:
        result = localmem("remember", dialogue, "--system", "rsum", env=CHAT)
        assert result.returncode == 1
        assert result.stdout.startswith("2 sessions imported, 0 skipped")
        assert "session 'b' is not remembered: a text contains the character NUL" in result.stderr
        assert live.log("me") == [["He is a greyhound."], ["x"]]
        assert live.runtime.waiting_jobs() == []


def test_what_a_server_refuses_is_the_error_of_the_command(localmem: Run, live: LiveServer, dialogue: Path) -> None:
    localmem("remember", dialogue, env=CHAT)
    dialogue.write_text(dialogue.read_text().replace("Bruno", "Rex").replace("first", "second"))
    live.services.settings.data.joinpath("server.json").unlink()
    server = LocalServer("127.0.0.1", 9, os.getpid(), "token", {"system": "evidence"}, {"user": "me"}, {})
    gone = ServerAccess(server, "me", live.services.settings.data)
    with pytest.raises(LocalmemError, match=r"the server at 127.0.0.1:9 did not answer .*; see its log"):
        gone.request("POST", "/v1/sessions", {})
    port = int(live.url.rpartition(":")[2])
    access = ServerAccess(server._replace(port=port, token=live.services.local_token), "me", gone.data)
    with pytest.raises(BadInput, match="sessions is missing; add it"):
        access.request("POST", "/v1/sessions", {})
    with pytest.raises(NotFound, match="no session 'x'"):
        access.request("GET", "/v1/sessions/x", {})


def test_a_chat_takes_place_in_the_server(localmem: Run, live: LiveServer) -> None:
    first = localmem("chat", env=CHAT, stdin="My dog is called Bruno.\n/why\n/memory\n/sessions\n")
    assert first.returncode == 0, first.stderr
    assert "You said: My dog is called Bruno." in first.stdout
    assert "prompt agent/respond, as it was sent:\n[system]" in first.stdout
    assert "  User: My dog is called Bruno." in first.stdout
    words = (
        "/set max_tokens 7\n/set max_tokens -3\nHe is a greyhound.\n"
        "/incognito\nI am in debt.\nHow much?\n/why\n/incognito\n/end\n/end\n"
    )
    second = localmem("chat", env=CHAT, stdin=words)
    assert second.returncode == 0, second.stderr
    assert "continuing the session of" in second.stderr
    assert "setting 'max_tokens' cannot be -3: Input should be greater than or equal to 1\nmax" in second.stderr
    assert "the last reply was incognito: nothing was recalled, and its prompt is not kept" in second.stderr
    assert "prompt agent/respond" not in second.stdout
    assert "session closed; it is being remembered\nno session is open; say something first" in second.stderr
    texts = [[message.content for message in prompt.messages] for prompt in live.llm.prompts]
    assert [len(prompt) for prompt in texts] == [2, 4, 2, 4]
    assert texts[3][1] == "I am in debt."
    assert live.llm.prompts[1].max_tokens == 7
    assert [len(session) for session in live.log("me")] == [4]
    forgotten = localmem("chat", env=CHAT, stdin="/forget my dog Bruno\n/why\n/memory\n")
    assert "there is no reply yet" in forgotten.stderr
    assert "Bruno" not in forgotten.stdout.split("erases it for good.")[1]
    ready = localmem("chat", env=CHAT, stdin="Please forget that he is a greyhound.\n/why\n")
    assert ready.stdout.endswith("no model was asked: the reply was made from memory\n")


def test_a_failed_reply_does_not_end_the_chat(localmem: Run, live: LiveServer) -> None:
    def fail(prompt: Prompt) -> str:
        if prompt.messages[-1].content == "Hi.":
            raise LLMError("the backbone is away; try later")
        return "Fine."

    live.llm.answer = fail
    result = localmem("chat", env=CHAT, stdin="Hi.\nHow are you?\n")
    assert "localmem: the backbone is away; try later\n" in result.stderr
    assert "Fine." in result.stdout
    assert result.returncode == 1


def test_a_chat_with_another_backbone_or_clock_is_not_the_servers(localmem: Run, live: LiveServer) -> None:
    assert localmem("chat", "--model", "nope", env=CHAT).returncode == 2
    localmem("chat", "--now", "2026-03-02", env=CHAT, stdin="/sessions\n")
    localmem("chat", env=CHAT | {"LOCALMEM_CHAT__ASSISTANT_NAME": "Ada"}, stdin="/sessions\n")
    assert count_requests(live, "/v1/sessions") == 0


def test_the_server_is_not_asked_with_other_settings(localmem: Run, live: LiveServer, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("retrieval: {half_life_days: 30}")
    for arguments, env in (
        (["--system", "none"], {}),
        (["--config", config], {}),
        ([], {"LOCALMEM_RETRIEVAL__RETRIEVER": "bm25", "LOCALMEM_RETRIEVAL__LANGUAGE": "none"}),
        (["--data-dir", tmp_path / "other"], {}),
        (["--speaker", "Ana", "--system", "full_history"], {}),
    ):
        localmem("recall", QUESTION, *arguments, env=env)
    assert count_requests(live, "/v1/memories/recall") == 0
    assert localmem("recall", QUESTION, env={"LOCALMEM_SISTEM": "rsum"}).returncode == 2
    assert localmem("recall", QUESTION, "--user", "").returncode == 2
    assert count_requests(live, "/v1/memories/recall") == 0


def test_keys_keep_their_users_apart_and_only_the_local_token_names_any(live: LiveServer) -> None:
    chat_and_remember(live, "ben", "My secret number is 7391.")
    live.wait_until_remembered("ben")
    body = {"text": "secret number"}
    owner = {"authorization": f"Bearer {live.services.local_token}"}
    for headers, code, is_recalled in (
        ({}, 401, False),
        ({USER_HEADER: "ben"}, 401, False),
        ({"authorization": "Bearer wrong", USER_HEADER: "ben"}, 401, False),
        ({"authorization": "Bearer key-of-ann-1"}, 200, False),
        ({"authorization": "Bearer key-of-ann-1", USER_HEADER: "ben"}, 403, False),
        (owner, 200, False),
        (owner | {USER_HEADER: "ben"}, 200, True),
    ):
        answer = live.http().post("/v1/memories/recall", json=body, headers=headers)
        assert answer.status_code == code
        assert ("7391" in answer.text) is is_recalled


def test_only_the_owner_can_read_the_file_and_it_is_removed_with_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as live:
        file = tmp_path / "server.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        server = read_local_server(tmp_path)
        assert server is not None
        assert server.token == live.services.local_token
    assert not file.exists()


def test_a_later_servers_file_is_not_removed(tmp_path: Path) -> None:
    server = LocalServer("127.0.0.1", 1, os.getpid(), "first", {}, {}, {})
    write_local_server(tmp_path, server)
    write_local_server(tmp_path, server._replace(token="second"))
    remove_local_server(tmp_path, "first")
    assert read_local_server(tmp_path) is not None
    remove_local_server(tmp_path, "second")
    assert read_local_server(tmp_path) is None


def test_a_stale_file_is_ignored(localmem: Run, session_log: Path, tmp_path: Path) -> None:
    localmem("remember", session_log)
    data_dir = tmp_path / "xdg" / "localmem"
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    settings = load_settings(None, {"retrieval": {"retriever": "bm25"}})
    for pid in (child.pid, os.getpid()):  # a process that has died; one that lives but does not listen there
        server = LocalServer("127.0.0.1", 9, pid, "token", decisive_settings(settings), default_settings(), {})
        write_local_server(data_dir, server)
        assert "Bruno" in localmem("recall", QUESTION).stdout
    (data_dir / "server.json").write_text("{cut")
    assert "Bruno" in localmem("recall", QUESTION).stdout


def test_asking_a_server_imports_no_heavy_library(live: LiveServer, tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from localmem.cli.memory import recall\n"
        "recall(['hello', '--json'], standalone_mode=False)\n"
        "heavy = {'pydantic', 'sqlalchemy', 'torch', 'numpy', 'yaml', 'httpx'}\n"
        "print(json.dumps(sorted(heavy & {*sys.modules})))"
    )
    env = os.environ | {"XDG_DATA_HOME": str(tmp_path / "xdg"), "LOCALMEM_RETRIEVAL__RETRIEVER": "bm25"}
    finished = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines()[-1] == "[]"
    assert count_requests(live, "/v1/memories/recall") == 1


def test_the_answer_is_none_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    flags = SettingsFlags(None, {"user": "ana"})
    assert ask_server("GET", "/v1/memories/bank", {}, flags) is None
    assert ask_server("GET", "/v1/memories/bank", {}, flags._replace(config=tmp_path / "absent.yaml")) is None
