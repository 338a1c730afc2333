"""A conversation of `localmem chat` in its own process, on a scripted backbone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from localmem.cli.chat import _TerminalChat
from localmem.cli.process_chat import ProcessConversation
from localmem.config import load_settings
from localmem.llm.base import drain
from localmem.llm.scripted import ScriptedLLM
from localmem.runtime import Runtime
from tests.cli.conftest import Run

NOW = datetime(2026, 3, 2, 18, tzinfo=UTC)
FLAGS = {"retrieval": {"retriever": "bm25"}, "chat": {"reader": "none", "stages": "none"}}


def test_why_shows_a_prompt_only_where_one_was_sent(tmp_path: Path) -> None:
    settings = load_settings(None, {"data": tmp_path, **FLAGS})
    with Runtime(settings, llm=ScriptedLLM(lambda _: "Nice.")) as runtime:
        conversation = ProcessConversation(runtime, lambda: NOW)
        drain(conversation.say("My dog is called Bruno."))
        assert "prompt agent/respond, as it was sent:" in list(conversation.explain())
        drain(conversation.say("Please forget that my dog is called Bruno."))
        assert list(conversation.explain())[-1] == "no model was asked: the reply was made from memory"


def test_a_session_that_a_server_closed_is_left_for_a_new_one(tmp_path: Path) -> None:
    settings = load_settings(None, {"data": tmp_path, **FLAGS})
    llm = ScriptedLLM(lambda _: "Nice.")
    with Runtime(settings, llm=llm) as runtime, Runtime(settings, llm=llm) as server:
        conversation = ProcessConversation(runtime, lambda: NOW)
        drain(conversation.say("My dog is called Bruno."))
        server.agent(settings.user).close()
        drain(conversation.say("He is five."))
        assert [info.turns for info in runtime.store.sessions(settings.user)] == [2, 2]


def test_what_is_said_while_another_process_logs_is_logged_after_it(tmp_path: Path) -> None:
    settings = load_settings(None, {"data": tmp_path, **FLAGS})
    llm = ScriptedLLM(lambda _: "Nice.")
    with Runtime(settings, llm=llm) as runtime, Runtime(settings, llm=llm) as server:
        others = iter(["I have a cat, too."])

        def read_clock() -> datetime:
            """After the memory was read and before the turn is written."""
            if runtime.store.sessions(settings.user) and (text := next(others, "")):
                server.agent(settings.user).log_turns(text, NOW)
            return NOW

        conversation = ProcessConversation(runtime, read_clock)
        drain(conversation.say("My dog is called Bruno."))
        drain(conversation.say("He is five."))
        (info,) = runtime.store.sessions(settings.user)
        turns = [turn.text for turn in runtime.store.session(settings.user, info.id).turns]
    assert turns == ["My dog is called Bruno.", "Nice.", "I have a cat, too.", "He is five.", "Nice."]


def test_why_says_that_the_last_reply_was_incognito(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(("My dog is called Bruno.", "/incognito", "I am in debt.", "/why", "/quit"))
    monkeypatch.setattr("builtins.input", lambda: next(lines))
    settings = load_settings(None, {"data": tmp_path, **FLAGS})
    with Runtime(settings, llm=ScriptedLLM(lambda _: "Nice.")) as runtime:
        _TerminalChat(ProcessConversation(runtime, lambda: NOW), tmp_path).run()
    output = capsys.readouterr()
    assert "the last reply was incognito: nothing was recalled, and its prompt is not kept" in output.err
    assert output.out == "Nice.\nNice.\n"


def test_a_model_without_weights_is_said_before_anything_is_stored(localmem: Run, tmp_path: Path) -> None:
    for text in ("My dog is called Bruno.\n", ""):
        result = localmem("chat", "--model", "mistral-7b-instruct-v0.3", "--data-dir", tmp_path, stdin=text)
        assert result.returncode == 1
        assert "model mistral-7b-instruct-v0.3 is not on this machine" in result.stderr
    assert localmem("sessions", "--data-dir", tmp_path).stdout == "no sessions\n"
