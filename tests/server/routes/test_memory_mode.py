"""What memory does with a request: X-Localmem, `store`, clients' own tasks, trimmed prompts; what is stored of it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml

from localmem.errors import LLMUnavailable
from localmem.types import Message, Prompt
from tests.server.conftest import LiveServer, serving
from tests.server.routes.test_health import read_samples

SECRET = "Zanzibarquelle"  # a word that nothing else writes
CASES = {
    case["client"]: case
    for case in yaml.safe_load((Path(__file__).parents[1] / "client_requests.yaml").read_text(encoding="utf-8"))
}


def messages_of(*texts: str) -> list[dict[str, str]]:
    """User and assistant in turn."""
    return [{"role": "assistant" if index % 2 else "user", "content": text} for index, text in enumerate(texts)]


def chat(live: LiveServer, *texts: str, mode: str | None = None, **more: object) -> dict[str, Any]:
    """The response to a dialogue, its stream put together: text, `localmem`, usage and headers."""
    body = {"model": "localmem", "messages": messages_of(*texts), "stream_options": {"include_usage": True}, **more}
    headers = {"x-localmem": mode} if mode else {}
    answer = live.http().post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    if not more.get("stream"):
        document = answer.json()
        return {**document, "text": document["choices"][0]["message"]["content"], "headers": answer.headers}
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    pieces = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]
    extra = next(chunk["localmem"] for chunk in chunks if "localmem" in chunk)
    return {"text": "".join(pieces), "localmem": extra, "usage": chunks[-1]["usage"], "headers": answer.headers}


def learn(live: LiveServer, text: str) -> None:
    """One session of one exchange, ended and remembered."""
    chat(live, text)
    live.http().post("/v1/sessions/end")
    live.wait_until_remembered()


def stored_bytes(live: LiveServer) -> bytes:
    """All files of the data directory."""
    return b"".join(path.read_bytes() for path in live.runtime.settings.data.rglob("*") if path.is_file())


def prompt_text(live: LiveServer) -> str:
    return "\n".join(message.content for message in live.llm.prompts[-1].messages)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["off", "read"])
def test_nothing_is_left_of_a_request_that_may_not_store(tmp_path: Path, mode: str, stream: bool) -> None:
    with serving(tmp_path / "data") as live:
        learn(live, "My dog Bruno loves the sea.")
        reply = chat(live, f"My password is {SECRET}.", mode=mode, stream=stream)
        assert SECRET in reply["text"]
        assert reply["localmem"]["session"] is None
        assert reply["localmem"]["mode"] == mode
        assert "x-localmem-session" not in reply["headers"]
        assert live.log() == [["My dog Bruno loves the sea.", ">You said: My dog Bruno loves the sea."]]
        assert live.http().post("/v1/sessions/end").json()["ended"] == []
        assert SECRET.encode() not in stored_bytes(live)
    assert SECRET.encode() not in stored_bytes(live)
    with serving(tmp_path / "data") as live:
        chat(live, f"My password is {SECRET}.")
        assert SECRET.encode() in stored_bytes(live)  # the files that were read are those that hold what is stored


@pytest.mark.parametrize("stream", [False, True])
def test_read_recalls_and_off_does_not(live: LiveServer, stream: bool) -> None:
    learn(live, "My dog Bruno loves the sea.")
    question = "What does my dog Bruno love?"
    reply = chat(live, question, mode="read", stream=stream)
    assert "Bruno loves the sea" in reply["localmem"]["recalled"][0]["text"]
    assert "Bruno loves the sea" in prompt_text(live)
    reply = chat(live, question, mode="off", stream=stream)
    assert (reply["localmem"]["recalled"], reply["localmem"]["memory"]) == ([], "")
    assert "sea" not in prompt_text(live)
    assert question not in str(live.log())


def test_off_shows_nothing_of_sessions_that_wait_to_be_remembered(live: LiveServer) -> None:
    chat(live, "My dog Bruno loves the sea.")
    (session,) = live.runtime.store.sessions("me", "open")
    live.runtime.agent("me").close(session.id)
    chat(live, "And what else?", mode="read")
    assert "Bruno" in prompt_text(live)
    chat(live, "And what else?", mode="off")
    assert "Bruno" not in prompt_text(live)


def test_the_operators_and_the_clients_instructions_hold_without_memory(tmp_path: Path) -> None:
    with serving(tmp_path, chat={"instructions": "Be kind."}) as live:
        for mode in ("off", "read", "write"):
            chat(live, "Hello.", mode=mode)
            assert "Be kind." in live.llm.prompts[-1].messages[0].content
            body = {"messages": [{"role": "system", "content": "Be brief."}, *messages_of("Hi.")], "model": "localmem"}
            live.http().post("/v1/chat/completions", json={**body, "max_tokens": 2}, headers={"x-localmem": mode})
            assert "Be kind.\n\nBe brief." in live.llm.prompts[-1].messages[0].content
            assert live.llm.prompts[-1].max_tokens == 2


def test_read_sees_the_log_of_its_session(live: LiveServer) -> None:
    headers = {"x-localmem-session": "work", "x-localmem": "read"}
    body = {"model": "localmem", "messages": messages_of("I play the cello.")}
    live.http().post("/v1/chat/completions", json=body, headers={**headers, "x-localmem": "write"})
    live.http().post("/v1/chat/completions", json={**body, "messages": messages_of("What do I play?")}, headers=headers)
    assert [message.content for message in live.llm.prompts[-1].messages][1:] == [
        "I play the cello.",
        "You said: I play the cello.",
        "What do I play?",
    ]
    assert live.log() == [["I play the cello.", ">You said: I play the cello."]]


def test_store_false_reads_and_the_header_wins(live: LiveServer) -> None:
    assert chat(live, "One.", store=False)["localmem"]["mode"] == "read"
    assert chat(live, "Two.", store=False, mode="off")["localmem"]["mode"] == "off"
    assert live.log() == []
    assert chat(live, "Three.", store=True)["localmem"]["mode"] == "write"
    assert chat(live, "Four.", store=False, mode="Write")["localmem"]["mode"] == "write"
    assert [log[0] for log in live.log()] == ["Three.", "Four."]


@pytest.mark.parametrize("value", ["on", "", "read,write", "no store"])
def test_an_unknown_mode_is_refused(live: LiveServer, value: str) -> None:
    body = {"model": "localmem", "messages": messages_of("Hello.")}
    answer = live.http().post("/v1/chat/completions", json=body, headers={"x-localmem": value})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"] == f"X-Localmem is {value!r}; use off, read or write"
    assert (error["type"], error["param"]) == ("invalid_request_error", "X-Localmem")
    assert live.log() == []
    assert live.llm.prompts == []


@pytest.mark.parametrize("mode", ["off", "read"])
def test_what_was_not_to_be_stored_is_not_stored_when_it_is_sent_again(live: LiveServer, mode: str) -> None:
    texts = [f"I am {SECRET}."]
    texts += [chat(live, *texts, mode=mode)["text"], "Is that a good name?"]
    texts += [chat(live, *texts, mode=mode)["text"], "I was born in Graz."]
    texts += [chat(live, *texts)["text"], "Where was I born?"]
    assert SECRET in prompt_text(live)  # the model sees the dialogue as the client sent it
    texts += [chat(live, *texts)["text"]]
    assert live.log() == [[f"{'>' * (index % 2)}{text}" for index, text in enumerate(texts[4:])]]
    assert SECRET.encode() not in stored_bytes(live)
    assert [message.content for message in live.llm.prompts[-1].messages][1:] == texts[:-1]


def test_a_dialogue_may_stop_storing_and_go_on_storing(live: LiveServer) -> None:
    texts = ["I play the cello."]
    texts += [chat(live, *texts)["text"], f"And I hide {SECRET}."]
    texts += [chat(live, *texts, mode="off")["text"], "Since 1990."]
    texts += [chat(live, *texts)["text"], "Good night."]
    chat(live, *texts)
    assert live.log() == [
        [
            "I play the cello.",
            ">You said: I play the cello.",
            "Since 1990.",
            ">You said: Since 1990.",
            "Good night.",
            ">You said: Good night.",
        ]
    ]
    assert [message.content for message in live.llm.prompts[-1].messages][1:] == texts


@pytest.mark.parametrize("ends", [False, True])
def test_what_was_erased_is_not_stored_when_it_is_sent_again(tmp_path: Path, ends: bool) -> None:
    with serving(tmp_path, system="evidence") as live:
        texts: list[str] = []
        for text in ("I play the cello.", f"I hide {SECRET}.", "I was born in Graz."):
            texts.append(text)
            texts.append(chat(live, *texts)["text"])
        if ends:
            live.http().post("/v1/sessions/end")
            live.wait_until_remembered()
        memories = live.http().get("/v1/memories").json()["data"]
        (unit,) = [each["id"] for each in memories if SECRET in each["text"] and each["kind"] == "statement"]
        live.http().delete(f"/v1/memories/{quote(unit)}?with_sources=true").raise_for_status()
        texts += ["Where was I born?"]
        texts += [chat(live, *texts)["text"], "Thank you."]
        assert SECRET in prompt_text(live)  # the model sees the dialogue as the client sent it
        chat(live, *texts)
        own = [text for log in live.log() for text in log if not text.startswith(">")]
        assert own == ["I play the cello.", "I was born in Graz.", "Where was I born?", "Thank you."]
        assert SECRET.encode() not in stored_bytes(live)


@pytest.mark.parametrize("path", ["/v1/sessions/{session}", "/v1/memories?confirm=all"])
def test_a_dialogue_that_was_erased_is_not_stored_again(live: LiveServer, path: str) -> None:
    texts = [f"I hide {SECRET}."]
    reply = chat(live, *texts)
    live.http().delete(path.format(session=reply["localmem"]["session"])).raise_for_status()
    texts += [reply["text"], "I was born in Graz."]
    texts += [chat(live, *texts)["text"], "Where was I born?"]
    chat(live, *texts)
    assert [log[::2] for log in live.log()] == [["I was born in Graz.", "Where was I born?"]]
    chat(live, texts[0])  # what is typed anew is stored
    assert [log[0] for log in live.log()] == ["I was born in Graz.", f"I hide {SECRET}."]


@pytest.mark.parametrize("mode", ["off", "read", "erased"])
def test_what_was_not_to_be_stored_is_not_stored_after_a_restart(tmp_path: Path, mode: str) -> None:
    texts = [f"I hide {SECRET}."]
    with serving(tmp_path) as live:
        reply = chat(live, *texts, mode=None if mode == "erased" else mode)
        texts += [reply["text"], "I was born in Graz."]
        if mode == "erased":
            live.http().delete(f"/v1/sessions/{reply['localmem']['session']}").raise_for_status()
    with serving(tmp_path) as live:
        chat(live, *texts)
        assert live.log() == [["I was born in Graz.", ">You said: I was born in Graz."]]
        assert SECRET.encode() not in stored_bytes(live)
        live.http().delete("/v1/memories?confirm=all").raise_for_status()
        chat(live, *texts[:2], "I live in Linz.")
        assert [log[0] for log in live.log()] == ["I live in Linz."]


@pytest.mark.parametrize("wish", [{"mode": "off"}, {"mode": "read"}, {"store": False}], ids=str)
def test_what_was_not_to_be_stored_is_known_though_its_client_left_before_its_turn(
    tmp_path: Path, wish: dict[str, Any]
) -> None:
    with serving(tmp_path / "data", server={"threads": 1}) as live:
        is_free = threading.Event()
        live.services.pool.submit(is_free.wait)
        body = {"model": "localmem", "messages": messages_of(f"I hide {SECRET}."), "store": wish.get("store")}
        headers = {"x-localmem": wish["mode"]} if "mode" in wish else {}
        with pytest.raises(httpx.ReadTimeout):
            live.http().post("/v1/chat/completions", json=body, headers=headers, timeout=1)
        live.pause.wait(0.5)  # the server hears that the client has left
        is_free.set()
        live.llm.answer = lambda _prompt: "Fine."
        messages = [{"role": "user", "content": text} for text in (f"I hide {SECRET}.", "I was born in Graz.")]
        live.http().post("/v1/chat/completions", json={"model": "localmem", "messages": messages}).raise_for_status()
        assert live.log() == [["I was born in Graz.", ">Fine."]]
        assert SECRET.encode() not in stored_bytes(live)


def test_a_question_that_was_not_to_be_stored_is_known_before_its_reply(live: LiveServer) -> None:
    live.llm.answer = lambda _prompt: str(live.services.sessions.unlogged.holds("me", Message("user", SECRET)))
    assert chat(live, SECRET, mode="off")["text"] == "True"


@pytest.mark.parametrize("mode", ["off", "read", "erased"])
def test_a_reply_that_repeats_what_was_not_to_be_stored_is_shown_and_not_stored(live: LiveServer, mode: str) -> None:
    texts = [f"My PIN is 4711 and I hide {SECRET}."]
    reply = chat(live, *texts, mode=None if mode == "erased" else mode)
    if mode == "erased":
        live.http().delete(f"/v1/sessions/{reply['localmem']['session']}").raise_for_status()
    texts += [reply["text"], "What is my PIN?"]
    live.llm.answer = lambda _prompt: "Your PIN is 4711."
    texts += [chat(live, *texts)["text"], "And what do I hide?"]
    assert texts[3] == "Your PIN is 4711."
    live.llm.answer = lambda _prompt: f"You hide {SECRET}, in the cellar."
    reply = chat(live, *texts, stream=True)["text"]
    assert reply == f"You hide {SECRET}, in the cellar."
    live.llm.answer = lambda _prompt: "It is raining."
    chat(live, *texts, reply, "How is the weather?")
    chat(live, *texts, reply[:25], "Is it cold?")  # a client that left early has the beginning
    chat(live, texts[-1], reply, "And tomorrow?")  # another cuts old messages
    own = ["How is the weather?", "Is it cold?", "And tomorrow?"]
    answered = [text for question in own for text in (question, ">It is raining.")]
    assert live.log() == [["What is my PIN?", "And what do I hide?", *answered]]
    assert SECRET.encode() not in stored_bytes(live)
    assert b"4711" not in "\n".join(live.runtime.store.export("me")).encode()


def test_a_broken_reply_that_repeats_what_was_not_to_be_stored_is_not_stored(live: LiveServer) -> None:
    texts = [f"I hide {SECRET}."]
    texts += [chat(live, *texts, mode="off")["text"], "What do I hide?"]
    live.llm.slow(0.05)
    live.llm.answer = lambda _prompt: " ".join([SECRET] * 200)
    body = {"model": "localmem", "messages": messages_of(*texts), "stream": True, "max_tokens": 200}
    with live.http().stream("POST", "/v1/chat/completions", json=body) as answer:
        next(line for line in answer.iter_lines() if SECRET in line)
    assert live.llm.finished.wait(10)
    live.llm.answer = lambda _prompt: "Fine."
    chat(live, *texts, SECRET, "Thank you.")
    assert live.log() == [["What do I hide?", "Thank you.", ">Fine."]]


def test_a_reply_that_the_backbone_breaks_off_is_known_without_the_message_it_repeats(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(_prompt: Prompt) -> Iterator[str]:
        yield f"You hide {SECRET}"
        raise LLMUnavailable("the backbone is gone; start it again")

    texts = [f"I hide {SECRET}."]
    texts += [chat(live, *texts, mode="off")["text"], "What do I hide?"]
    with monkeypatch.context() as patch:
        patch.setattr(live.llm, "stream", break_off)
        body = {"model": "localmem", "messages": messages_of(*texts)}
        assert live.http().post("/v1/chat/completions", json=body).status_code == 503
    chat(live, "What do I hide?", f"You hide {SECRET}", "Thank you.")
    assert SECRET not in str(live.log())


def test_words_that_are_stored_anyway_are_matched_as_ever(live: LiveServer) -> None:
    chat(live, "Hello.", mode="off")
    texts = ["Hello."]
    texts += [chat(live, *texts)["text"], "I am Pia."]
    texts += [chat(live, *texts)["text"], "Bye."]
    chat(live, *texts)
    (log,) = live.log()
    assert log[::2] == ["Hello.", "I am Pia.", "Bye."]


def test_a_reply_that_is_broken_off_is_not_stored_later(live: LiveServer) -> None:
    live.llm.slow(0.05)
    live.llm.answer = lambda _prompt: " ".join([SECRET] * 200)
    body = {"model": "localmem", "messages": messages_of("Talk."), "stream": True, "max_tokens": 200}
    words = ""
    with live.http().stream("POST", "/v1/chat/completions", json=body, headers={"x-localmem": "off"}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                words += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
            if len(words) > 40:
                break
    assert live.llm.finished.wait(10)
    assert live.llm.pieces_sent < 200
    assert live.log() == []
    assert SECRET.encode() not in stored_bytes(live)


def test_no_part_of_a_reply_that_was_not_to_be_stored_is_stored_later(live: LiveServer) -> None:
    live.llm.answer = lambda prompt: f"You hide {SECRET}, at the {'left' if prompt.seed == 0 else 'right'}."
    question = "What do I hide?"
    replies = chat(live, question, store=False, n=2, seed=0)["choices"]
    texts = [choice["message"]["content"] for choice in replies]
    assert len(set(texts)) == 2
    live.llm.answer = lambda _prompt: "Fine."
    towns = ["Graz", "Linz", "Steyr"]
    for town, reply in zip(towns, (*texts, texts[0][:20]), strict=True):  # a client that left early has the beginning
        chat(live, question, reply, f"I was born in {town}.")
    assert live.log() == [[f"I was born in {town}.", ">Fine."] for town in towns]


@pytest.mark.parametrize("mode", ["off", "read"])
def test_what_a_client_put_around_words_that_were_not_to_be_stored_changes_nothing(live: LiveServer, mode: str) -> None:
    question = f"<context>A page.</context>\n<user_query>I hide {SECRET}.</user_query>"
    reply = chat(live, question, mode=mode)["text"]
    chat(live, question, reply, "I was born in Graz.")
    assert [log[0] for log in live.log()] == ["I was born in Graz."]


def test_a_task_of_a_client_is_answered_without_memory(live: LiveServer) -> None:
    learn(live, "My bicycle is red.")
    task = CASES["big-AGI, title"]["body"]
    answer = live.http().post("/v1/chat/completions", json={"model": "localmem", **task}).json()
    assert answer["localmem"]["mode"] == "off"
    assert "red" not in prompt_text(live)
    answer = (
        live.http()
        .post("/v1/chat/completions", json={"model": "localmem", **task}, headers={"x-localmem": "write"})
        .json()
    )
    assert answer["localmem"]["mode"] == "write"
    assert len(live.log()) == 2


def test_a_task_about_a_dialogue_does_not_keep_that_dialogue_from_being_stored(live: LiveServer) -> None:
    texts = ["I teach sewing."]
    texts.append(chat(live, *texts)["text"])
    question = CASES["NextChat, topic"]["body"]["messages"][-1]["content"]
    assert chat(live, *texts, question)["localmem"]["mode"] == "off"
    chat(live, *texts, "On Thursdays.")
    (log,) = live.log()
    assert log[::2] == ["I teach sewing.", "On Thursdays."]


def test_examples_and_files_are_shown_to_the_model_and_the_dialogue_goes_on_in_one_session(live: LiveServer) -> None:
    body = {"model": "localmem", **CASES["aider, edit with examples, repo map and files"]["body"], "stream": False}
    first = live.http().post("/v1/chat/completions", json=body).json()
    sent = [message["content"] for message in body["messages"]]
    assert [message.content for message in live.llm.prompts[-1].messages][1:] == sent[1:]
    setup, files = body["messages"][:9], body["messages"][9:11]
    reply = first["choices"][0]["message"]
    dialogue = [{"role": "user", "content": "make the port configurable"}, reply]
    messages = [*setup, *dialogue, *files, {"role": "user", "content": "and the host"}]
    second = live.http().post("/v1/chat/completions", json={**body, "messages": messages}).json()
    assert second["localmem"]["session"] == first["localmem"]["session"]
    (log,) = live.log()
    assert log[::2] == ["make the port configurable", "and the host"]
    assert [message.content for message in live.llm.prompts[-1].messages][1:] == [
        message["content"] for message in messages[1:]
    ]


def test_memory_is_searched_by_the_words_and_not_by_what_a_client_puts_around_them(live: LiveServer) -> None:
    learn(live, "My lease is with Mrs Oduya.")
    learn(live, "The context of citations is a query.")
    plain = chat(live, "When does my lease end?", mode="read")["localmem"]["recalled"]
    body = {"model": "localmem", **CASES["Open WebUI, question to documents"]["body"], "stream": False}
    for mode in ("read", "write"):
        answer = live.http().post("/v1/chat/completions", json=body, headers={"x-localmem": mode}).json()
        assert answer["localmem"]["recalled"] == plain
        assert "The lease of flat 4 ends" in live.llm.prompts[-1].messages[-1].content
    assert live.log()[-1][0] == "When does my lease end?"


def test_requests_are_counted_by_mode_and_tasks_by_kind(live: LiveServer) -> None:
    chat(live, "One.")
    chat(live, "Two.", mode="read")
    chat(live, "Three.", mode="off", stream=True)
    live.http().post("/v1/chat/completions", json={"model": "localmem", **CASES["LobeChat, title of a topic"]["body"]})
    samples = read_samples(live)
    counts = {mode: samples["localmem_chat_requests_total", frozenset({mode})] for mode in ("write", "read", "off")}
    assert counts == {"write": 1, "read": 1, "off": 2}
    assert samples["localmem_client_tasks_total", frozenset({"conversation"})] == 1
    assert samples["localmem_replies_in_progress", frozenset()] == 0


@pytest.mark.parametrize("mode", ["write", "read", "off"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_client_is_told_how_much_of_the_prompt_was_cut(
    live: LiveServer, mode: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.llm, "context_length", 700)
    reply = chat(live, "word " * 900, "Fine.", "And now?", mode=mode, stream=stream, max_tokens=20)
    trimmed = reply["localmem"]["trimmed_tokens"]
    assert trimmed > 100
    assert reply["usage"]["prompt_tokens_details"]["trimmed_tokens"] == trimmed
    assert reply["headers"].get("x-localmem-trimmed") == (None if stream else str(trimmed))
    reply = chat(live, "Short.", mode=mode, stream=stream)
    assert reply["usage"]["prompt_tokens_details"]["trimmed_tokens"] == 0
    assert "x-localmem-trimmed" not in reply["headers"]
