"""LocalMem and AsyncLocalMem: one owner of store and models, and methods that do what they say."""

import asyncio
import contextlib
import inspect
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import localmem
from localmem import AsyncLocalMem, Conversation, LocalMem, Message, load_agent
from localmem.chat.forgetting_replies import replies_to
from localmem.errors import BadInput, BadSettings, LLMError, NotFound, OutOfOrder, StoreError
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt
from tests.fakes import START

SISTER = "My sister Clara lives in Lyon."


def _reply(prompt: Prompt) -> str:
    return "Noted."


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[LocalMem]:
    with LocalMem(data=tmp_path, retrieval={"retriever": "bm25"}, backbone=ScriptedLLM(_reply)) as opened:
        yield opened


def test_what_was_added_is_found_recalled_listed_and_explained(memory: LocalMem) -> None:
    session = memory.add(
        [{"role": "user", "content": SISTER}, Message("assistant", "A fine city.")], user="ana", time=START
    )
    (hit,) = memory.search("Clara", user="ana")
    assert SISTER in hit.unit.text
    assert SISTER in memory.recall("Where does Clara live?", user="ana", time=START + timedelta(days=1)).text
    statement, answer = memory.memories(user="ana")
    assert (hit.unit.id, statement.id, answer.id) == (statement.id, f"{session}.0@u0", f"{session}.0@a0")
    for unit, sources in ((statement, [f"{session}.0"]), (answer, [f"{session}.0", f"{session}.1"])):
        assert [turn.id for turn in memory.history(unit.id, user="ana").sources] == sources


@pytest.mark.parametrize(
    ("statement", "other", "to_forget"),
    [
        ("Meine PIN ist 8831.", "Gestern war ich im Kino.", "Lösch bitte meine PIN aus deinem Gedächtnis."),
        ("Ich habe einen Hund.", "Gestern war ich mit einem Freund im Kino.", "Vergiss, dass ich einen Hund habe."),
        ("Mon adresse est 12 rue des Lilas.", "Hier je suis allé au cinéma.", "Supprime mon adresse, s'il te plaît."),
        ("Tengo un perro que se llama Rex.", "Ayer fui al cine con un amigo.", "Olvida que tengo un perro."),
        ("Ho un cane che si chiama Rex.", "Ieri sono andato al cinema con un amico.", "Dimentica che ho un cane."),
        ("我的地址是长安街12号。", "昨天我去看了电影。", "请删除我的地址。"),
        ("私の住所は桜通り12番地です。", "昨日は映画を見ました。", "住所を削除してください。"),
        ("We have a dog called Rex.", "Yesterday I went to the cinema.", "Forget that we have a dog."),
        ("My address is 12 Lilac Road.", "Yesterday I went to the cinema.", "Delete my address."),
    ],
)
def test_what_is_asked_to_be_forgotten_is_gone_and_so_is_the_request(
    memory: LocalMem, statement: str, other: str, to_forget: str
) -> None:
    for day, text in enumerate((statement, other)):
        memory.chat(text, time=START + timedelta(days=day))
        memory.end_session()
    opening = replies_to(to_forget).hidden.partition("{")[0]
    assert memory.chat(to_forget, time=START + timedelta(days=2)).turn.text.startswith(opening)
    memory.end_session()
    stored = [unit.text for unit in memory.memories() if "Noted." not in unit.text]
    assert stored == [f"User: {other}"]


def test_a_clock_set_back_breaks_no_session(memory: LocalMem) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    memory.chat("My sister Clara lives in Lyon.", user="ana", time=later)
    assert memory.chat("She moved to Nice.", user="ana").turn.time == later
    with pytest.raises(OutOfOrder):  # a time that the caller names is not corrected
        memory.chat("She likes it.", user="ana", time=START)


def test_turns_are_dated_in_the_users_zone(tmp_path: Path) -> None:
    chat = {"timezone": "Asia/Tokyo"}
    with LocalMem(data=tmp_path, retrieval={"retriever": "bm25"}, chat=chat, backbone=ScriptedLLM(_reply)) as tokyo:
        assert tokyo.chat("Hello.").turn.time.utcoffset() == timedelta(hours=9)
        tokyo.add("My sister Clara lives in Lyon.")
        assert tokyo.memories()[-1].time.utcoffset() == timedelta(hours=9)


@pytest.mark.parametrize(
    "text",
    [
        "My phone is \u202a+44 20 7946 0000\u202c.",
        "\u2068Omar\u2069 is my brother.",
        "\u202bאני גר בחיפה ויש לי כלב.\u202c",
    ],
)
def test_marks_of_direction_are_remembered_like_any_other(memory: LocalMem, text: str) -> None:
    memory.add(text)
    assert [unit.text for unit in memory.memories()] == [f"User: {text}"]


def test_users_see_only_their_own_memory(memory: LocalMem) -> None:
    memory.add(SISTER, user="ana")
    assert memory.memories(user="ben") == []
    assert memory.search("Clara", user="ben") == []


def test_a_chat_is_remembered_as_it_goes_on_and_its_session_ends_once(memory: LocalMem) -> None:
    reply = memory.chat(SISTER, user="ana", time=START)
    assert reply.turn.text == "Noted."
    during = memory.memories(user="ana")
    assert SISTER in during[0].text
    session_id = memory.end_session(user="ana")
    assert session_id is not None
    assert memory.memories(user="ana") == during
    assert memory.end_session(user="ana") is None


def test_memory_can_be_seen_as_it_was(memory: LocalMem) -> None:
    memory.add(SISTER, user="ana", time=START)
    assert memory.memories(user="ana", as_of=START - timedelta(days=1)) == []
    assert len(memory.memories(user="ana", as_of=START + timedelta(days=1))) == 1


def test_forgetting_erases_from_the_store_and_from_the_agent_in_memory(memory: LocalMem) -> None:
    first = memory.add(SISTER, user="ana")
    memory.add("I play the oboe.", user="ana")
    assert memory.forget(session=first, user="ana").rows["turns"] == 1
    assert memory.search("Clara", user="ana") == []
    assert memory._runtime.store.unlogged.holds("ana", Message("user", SISTER))
    (unit,) = memory.memories(user="ana")
    memory.forget(unit.id, user="ana")
    assert memory.memories(user="ana") == []
    memory.forget(everything=True, user="ana")
    with pytest.raises(NotFound):
        memory.forget(everything=True, user="ana")


@pytest.mark.parametrize("fails", [False, True], ids=["at once", "when the next session ends"])
def test_other_sessions_are_remembered_again(tmp_path: Path, fails: bool) -> None:
    failures: list[LLMError] = []

    def script(prompt: Prompt) -> str:
        if failures and prompt.name == "rsum/update":
            raise failures.pop()
        dialogue = " ".join(message.content for message in prompt.messages)
        return " ".join(fact for fact in ("The PIN is 4417.", "Ana has a cat.") if fact.split()[-1] in dialogue)

    with LocalMem(data=tmp_path, system="rsum", backbone=ScriptedLLM(script)) as memory:
        memory.add("My PIN is 4417.", user="ana", session="a")
        memory.add("I have a cat.", user="ana", session="b")
        failures += [LLMError("the backbone is gone")] * fails
        assert memory.forget(session="a", user="ana").reread == {"rsum": ("b",)}
        if fails:
            assert memory.recall("Hello", user="ana").text == ""
            assert memory.end_session(user="ana") is None
        assert memory.recall("Hello", user="ana").text == "Ana has a cat."


def test_forgetting_with_sources_erases_the_replies_that_quote_them(memory: LocalMem) -> None:
    memory.add(SISTER, user="ana", session="first")
    memory.add([Message("user", "Who is Clara?"), Message("assistant", f'You said: "{SISTER}"')], user="ana")
    memory.forget("first.0@u0", user="ana", with_sources=True)
    assert memory._runtime.store.replies_with("ana", ["Lyon"]) == []


def test_what_another_process_does_is_seen_at_once(memory: LocalMem, tmp_path: Path) -> None:
    with LocalMem(data=tmp_path, retrieval={"retriever": "bm25"}, backbone=ScriptedLLM(_reply)) as other:
        memory.add(SISTER, user="ana", session="s1")
        assert other.search("Clara", user="ana")
        memory.forget(session="s1", user="ana")
        assert other.search("Clara", user="ana") == []
        assert "Clara" not in other.recall("Where is Clara?", user="ana").text
        other.chat("I play the oboe.", user="ana")
        own = memory.end_session(user="ana")
        other.chat("It is an old oboe.", user="ana")
        (current,) = other.agent("ana").sessions
        assert [turn.text for turn in current.turns] == ["It is an old oboe.", "Noted."]
        assert current.id != own


def test_a_chat_goes_on_in_its_session_though_another_process_opens_one(memory: LocalMem, tmp_path: Path) -> None:
    memory.chat("I play the oboe.", user="ana", time=START)
    with LocalMem(data=tmp_path, retrieval={"retriever": "bm25"}, backbone=ScriptedLLM(_reply)) as other:
        other.agent("ana").log_turns("I have a cat.", START + timedelta(hours=1), "theirs")
    memory.chat("It is old.", user="ana", time=START + timedelta(hours=2))
    own = memory.end_session(user="ana")
    assert own != "theirs"
    assert [len(memory._runtime.store.session("ana", str(name)).turns) for name in (own, "theirs")] == [4, 1]


@pytest.mark.parametrize(
    "named", [{}, {"memory_id": "u", "session": "s"}, {"session": "s", "everything": True}, {"everything": True}]
)
def test_forgetting_needs_exactly_one_thing(memory: LocalMem, named: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        memory.forget(**named)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", [LocalMem.agent, LocalMem.memories], ids=["agent", "memories"])
def test_an_empty_user_is_an_error(memory: LocalMem, call: object) -> None:
    with pytest.raises(BadInput, match="user is empty"):
        call(memory, user="")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "no messages"),
        ([{"role": "system", "content": "Be brief."}], "'system'"),
        ([{"content": "Hi."}], "is not a message"),
        ("", "the content ''"),
        ([Message("user", "Hi."), Message("assistant", " ")], "the content ' '"),
        ([{"role": "user", "content": None}], "the content None"),
        (5, "5 is no conversation"),
    ],
)
def test_bad_messages_are_named_and_nothing_is_logged(memory: LocalMem, messages: object, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        memory.add(messages, user="ana")  # type: ignore[arg-type]
    assert memory.memories(user="ana") == []


@pytest.mark.parametrize("text", ["", " ", None])
def test_an_empty_message_is_not_chatted_with(memory: LocalMem, text: str) -> None:
    with pytest.raises(BadInput, match="give a text that is not empty"):
        memory.chat(text, user="ana")
    assert memory.agent("ana").sessions == ()


def test_a_session_is_added_once(memory: LocalMem) -> None:
    memory.add(SISTER, user="ana", session="ticket-1", time=START)
    assert memory.add(SISTER, user="ana", session="ticket-1", time=START) == "ticket-1"
    assert memory.add(SISTER, user="ben", session="ticket-1") == "ticket-1"
    for text, time in (("I moved to Bath.", None), (SISTER, None), ("I moved to Bath.", START)):
        with pytest.raises(BadInput, match="'ticket-1' exists; give the new one another name"):
            memory.add(text, user="ana", session="ticket-1", time=time)
    assert [unit.text for unit in memory.memories(user="ana")] == [f"User: {SISTER}"]


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        *(
            (method, {"text": "Hello.", "time": time})
            for method in ("chat", "recall")
            for time in ("2024-01-01", 5, START.date(), START.replace(tzinfo=None))
        ),
        ("add", {"messages": "Hello.", "time": "2024-01-01"}),
        ("add", {"messages": "Hello.", "time": START.replace(tzinfo=None)}),
        ("add", {"messages": "Hello.", "user": 5}),
        ("add", {"messages": "Hello.", "session": 5}),
        ("memories", {"as_of": "2024-01-01"}),
        ("memories", {"as_of": START.replace(tzinfo=None)}),
        ("recall", {"text": None}),
        ("search", {"query": None}),
        ("search", {"query": "Hello", "limit": "3"}),
        ("end_session", {"session": 5}),
        ("history", {"memory_id": []}),
        ("forget", {"memory_id": []}),
    ],
)
def test_what_is_no_time_name_or_text_is_bad_input(memory: LocalMem, method: str, arguments: dict[str, object]) -> None:
    memory.chat(SISTER)
    before = memory.agent().sessions
    with pytest.raises(BadInput, match=r"give a|has no UTC offset"):
        getattr(memory, method)(**arguments)
    assert memory.agent().sessions == before


def test_settings_come_from_a_file_given_as_text_and_from_keywords(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"system: none\nuser: ana\ndata: {tmp_path / 'data'}\n")
    with LocalMem(str(file), user="ben") as memory:
        assert (memory.settings.system, memory.settings.user) == ("none", "ben")
        assert memory.agent().memory.name == "none"
    with pytest.raises(BadSettings, match="sistem"):
        LocalMem(sistem="none", data=tmp_path)


def test_agents_of_one_localmem_share_one_backbone_and_closing_frees_the_store(tmp_path: Path) -> None:
    memory = LocalMem(data=tmp_path, system="none", backbone=ScriptedLLM(_reply))
    memory.chat("Hello.", user="ana")
    memory.chat("Hello.", user="ben")
    assert memory._runtime.llm.usage()["none/respond"].calls == 2
    memory.close()
    with LocalMem(data=tmp_path, system="none", backbone=ScriptedLLM(_reply)) as again:
        assert len(again.agent("ana").sessions) == 1


def test_a_reply_comes_in_pieces_and_one_that_is_stopped_is_logged_so_far(memory: LocalMem) -> None:
    memory._runtime.llm.inner = ScriptedLLM(lambda prompt: "A fine city.")
    pieces = memory.stream(SISTER, user="ana", time=START)
    assert memory.sessions(user="ana") == []
    first = next(pieces)
    pieces.close()
    (session,) = memory.agent("ana").sessions
    assert [turn.text for turn in session.turns] == [SISTER, first]
    with pytest.raises(BadInput, match="no UTC offset"):
        memory.stream(SISTER, user="ana", time=START.replace(tzinfo=None))


def test_sessions_are_listed_and_all_of_a_user_is_exported(memory: LocalMem, tmp_path: Path) -> None:
    memory.add(SISTER, user="ana", session="s1", time=START)
    memory.chat("I play the oboe.", user="ana", time=START + timedelta(days=1))
    states = [(info.state, info.turns) for info in memory.sessions(user="ana")]
    assert states == [("closed", 1), ("open", 2)]
    exported = memory.export(user="ana")
    with LocalMem(data=tmp_path / "other", retrieval={"retriever": "bm25"}) as other:
        other._runtime.store.restore(exported.splitlines(), "export.jsonl")
        assert other.memories(user="ana") == memory.memories(user="ana")
    with pytest.raises(NotFound):
        memory.export(user="ben")


def test_what_is_closed_stores_and_answers_nothing(tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": tmp_path, "retrieval": {"retriever": "bm25"}, "backbone": ScriptedLLM(_reply)}
    memory = LocalMem(**options)
    agent = memory.agent("ana")
    agent.log_turns(SISTER, START, "s1")
    memory.close()
    for call in (
        lambda: memory.add("I own a piano.", user="ben"),
        lambda: memory.chat("Hello.", user="ana"),
        lambda: memory.memories(user="ana"),
        lambda: agent.chat("Hello.", START),
    ):
        with pytest.raises(StoreError, match="this LocalMem is closed; make a new one"):
            call()
    memory.close()
    with LocalMem(**options) as again:
        assert [len(session.turns) for session in again.agent("ana").sessions] == [1]
        assert again.memories(user="ben") == []


def test_load_agent_takes_settings_and_refuses_an_empty_user(tmp_path: Path) -> None:
    agent = load_agent("ana", data=tmp_path, system="none")
    assert isinstance(agent, Conversation)
    assert agent.sessions == ()
    with pytest.raises(BadInput, match="user is empty"):
        load_agent("", data=tmp_path, system="none")


def test_the_asynchronous_interface_has_the_same_methods_and_does_the_same(tmp_path: Path) -> None:
    async def use() -> list[str]:
        options: dict[str, Any] = {"data": tmp_path, "retrieval": {"retriever": "bm25"}}
        async with AsyncLocalMem(backbone=ScriptedLLM(_reply), **options) as memory:
            await asyncio.gather(*(memory.add(f"{name} likes tea.", user=name) for name in ("ana", "ben", "cid")))
            assert "".join([piece async for piece in memory.stream("Hello.", user="dan")]) == "Noted."
            assert [info.turns for info in await memory.sessions(user="dan")] == [2]
            assert memory.settings is memory.sync.settings
            return [(await memory.memories(user=name))[0].text for name in ("ana", "ben", "cid")]

    texts = asyncio.run(use())
    assert ["ana" in texts[0], "ben" in texts[1], "cid" in texts[2]] == [True] * 3
    public = {name for name in vars(LocalMem) if not name.startswith("_")}
    assert public <= set(vars(AsyncLocalMem))
    assert inspect.signature(AsyncLocalMem.search) == inspect.signature(LocalMem.search)


def test_a_task_that_is_cancelled_stops_the_reply(tmp_path: Path) -> None:
    writing, release = threading.Event(), threading.Event()

    def script(prompt: Prompt) -> str:
        writing.set()
        release.wait(10)
        return "A fine city."

    async def use() -> list[str]:
        options: dict[str, Any] = {"data": tmp_path, "system": "none"}
        async with AsyncLocalMem(backbone=ScriptedLLM(script), **options) as memory:
            task = asyncio.ensure_future(anext(memory.stream(SISTER, user="ana")))
            await asyncio.to_thread(writing.wait, 10)
            task.cancel()
            asyncio.get_running_loop().call_later(0.2, release.set)
            with pytest.raises(asyncio.CancelledError):
                await task
            return [turn.text for session in (await memory.agent("ana")).sessions for turn in session.turns]

    assert asyncio.run(use())[0] == SISTER


def test_looking_at_a_memory_loads_no_backbone(tmp_path: Path) -> None:
    """A model that does not exist, and a server that does not answer: only a reply needs them."""
    for llm in ({}, {"url": "http://127.0.0.1:9"}):
        with LocalMem(data=tmp_path, model="no-such-model", llm=llm, retrieval={"retriever": "bm25"}) as memory:
            session = memory.add(SISTER, user="ana")
            assert memory.recall("Where is Clara?", user="ana").text
            memory.forget(session=session, user="ana")


def test_the_public_names_are_shown_by_dir_and_help() -> None:
    assert set(localmem.__all__) <= set(dir(localmem))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        help(localmem)
    assert "class LocalMem" in output.getvalue()
    assert "class AsyncLocalMem" in output.getvalue()


def test_importing_localmem_changes_nothing_in_the_host_process() -> None:
    program = (
        "import os, sys; before = dict(os.environ); import localmem; "
        "print(dict(os.environ) == before, {'torch', 'numpy', 'pydantic'} & {*sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "True set()\n"


def test_conversation_and_responder_have_few_public_names() -> None:
    from localmem.chat.responder import Responder

    names = [name for part in (Conversation, Responder) for name in vars(part) if not name.startswith("_")]
    assert len(names) <= 10, names


def test_importing_the_package_changes_nothing_in_the_host_process() -> None:
    program = (
        "import os, sys\n"
        "before = dict(os.environ)\n"
        "import localmem\n"
        "assert dict(os.environ) == before\n"
        "print({'torch', 'numpy', 'faiss'} & {*sys.modules})"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout == "set()\n"
