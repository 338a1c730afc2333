"""Chat completions through the official client: responses, storage, recall, and what the backbone receives."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest
from numpy.typing import NDArray
from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionMessageParam

from localmem.errors import BadInput, LLMUnavailable
from localmem.retrieval.base import Side
from localmem.types import JsonSchema, Prompt
from tests.server.conftest import STARTER_PENALTIES, LiveServer
from tests.waiting import wait_until

MODEL = "smollm2-135m-instruct"


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def always(words: str) -> Callable[[Prompt], str]:
    return lambda _prompt: words


def assistant(text: str) -> ChatCompletionMessageParam:
    return {"role": "assistant", "content": text}


def test_a_reply_comes_with_usage_session_and_reason(live: LiveServer) -> None:
    raw = live.openai().chat.completions.with_raw_response.create(model=MODEL, messages=[user("Good morning")])
    reply = raw.parse()
    assert reply.choices[0].message.content == "You said: Good morning"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == MODEL
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 4
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 4
    (session,) = live.runtime.store.sessions("me")
    assert raw.headers["x-localmem-session"] == session.id
    assert reply.model_extra is not None
    expected = {
        "session": session.id,
        "mode": "write",
        "recalled": [],
        "memory": "",
        "workings": [],
        "trimmed_tokens": 0,
    }
    assert reply.model_extra["localmem"] == expected
    assert live.log() == [["Good morning", ">You said: Good morning"]]


def test_a_stream_is_the_same_reply_in_pieces(live: LiveServer) -> None:
    live.llm.slow(0.01)
    stream = live.openai().chat.completions.create(
        model="localmem",
        messages=[user("one two three")],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(pieces) == "You said: one two three"
    assert len(pieces) > 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5
    assert chunks[-2].model_extra is not None
    assert chunks[-2].model_extra["localmem"]["recalled"] == []
    assert live.log() == [["one two three", ">You said: one two three"]]


def test_a_stream_without_the_option_has_no_usage(live: LiveServer) -> None:
    stream = live.openai().chat.completions.create(model=MODEL, messages=[user("hello")], stream=True)
    assert [chunk.usage for chunk in stream if not chunk.choices] == []


def test_only_new_messages_of_a_resent_dialogue_are_stored(live: LiveServer) -> None:
    client = live.openai()
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": "Be brief."}]
    for text in ("My cat is called Minka.", "She is three.", "Bye."):
        live.clock.advance(seconds=30)
        messages.append(user(text))
        reply = client.chat.completions.create(model=MODEL, messages=messages)
        messages.append(assistant(reply.choices[0].message.content or ""))
    (log,) = live.log()
    assert log[::2] == ["My cat is called Minka.", "She is three.", "Bye."]
    assert len(log) == 6
    sent = live.llm.prompts[-1].messages
    assert [message.role for message in sent] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "Be brief." in sent[0].content


def test_an_ended_session_is_recalled_in_the_next(live: LiveServer) -> None:
    client = live.openai()
    client.chat.completions.create(model=MODEL, messages=[user("My dog Bruno loves the sea.")])
    response = client.post("/sessions/end", cast_to=httpx.Response, body={}).json()
    (first,) = live.runtime.store.sessions("me")
    assert response["ended"] == [first.id]
    live.wait_until_remembered()
    live.clock.advance(days=1)
    reply = client.chat.completions.create(model=MODEL, messages=[user("What does my dog Bruno love?")])
    assert reply.model_extra is not None
    extra = reply.model_extra["localmem"]
    assert extra["session"] != first.id
    assert "Bruno loves the sea" in extra["recalled"][0]["text"]
    assert extra["recalled"][0]["score"] > 0
    assert any("Bruno loves the sea" in message.content for message in live.llm.prompts[-1].messages)
    assert live.log()[1][0] == "What does my dog Bruno love?"  # recalled memory is not logged as a turn


def test_a_retried_reply_is_stored_after_the_first_and_not_shown_to_the_model(live: LiveServer) -> None:
    client, messages = live.openai(), [user("Tell me a word.")]
    for word in ("apple", "pear", "pear"):
        live.llm.answer = always(word)
        client.chat.completions.create(model=MODEL, messages=messages)
        assert "apple" not in "".join(message.content for message in live.llm.prompts[-1].messages)
    assert live.log() == [["Tell me a word.", ">apple", ">pear"]]
    messages += [assistant("pear"), user("Another one.")]
    client.chat.completions.create(model=MODEL, messages=messages)
    assert live.log()[0][3:] == ["Another one.", ">pear"]
    assert "apple" not in "".join(message.content for message in live.llm.prompts[-1].messages)


def test_a_dialogue_from_elsewhere_is_stored_in_full(live: LiveServer) -> None:
    messages = [user("I moved to Porto."), assistant("How nice!"), user("What now?")]
    live.openai().chat.completions.create(model=MODEL, messages=messages)
    assert live.log() == [["I moved to Porto.", ">How nice!", "What now?", ">You said: What now?"]]


def test_a_dialogue_continues_in_a_new_session_after_its_own_ended(live: LiveServer) -> None:
    client, messages = live.openai(), [user("I play the cello.")]
    reply = client.chat.completions.create(model=MODEL, messages=messages)
    client.post("/sessions/end", cast_to=httpx.Response, body={})
    live.wait_until_remembered()
    for text in ("Since 1990.", "And you?"):
        messages += [assistant(reply.choices[0].message.content or ""), user(text)]
        reply = client.chat.completions.create(model=MODEL, messages=messages)
    first, second = live.log()
    assert first == ["I play the cello.", ">You said: I play the cello."]
    assert second[::2] == ["Since 1990.", "And you?"]
    assert live.llm.prompts[-1].messages[1].content == "I play the cello."


def test_a_client_may_name_its_session(live: LiveServer) -> None:
    client = live.openai(default_headers={"x-localmem-session": "work"})
    for text in ("One.", "Two."):
        client.chat.completions.create(model=MODEL, messages=[user(text)])
    other = client.chat.completions.create(
        model=MODEL,
        messages=[user("Elsewhere.")],
        extra_headers={"x-localmem-session": ""},
        metadata={"session": "home"},
    )
    assert other.model_extra is not None
    assert other.model_extra["localmem"]["session"] == "home"
    assert [info.id for info in live.runtime.store.sessions("me")] == ["work", "home"]
    assert live.log()[0][::2] == ["One.", "Two."]
    assert client.post("/sessions/end", cast_to=httpx.Response, body={"session": "work"}).json()["ended"] == ["work"]
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=[user("Three.")])
    assert raw.headers["x-localmem-session"] == "work~2"
    assert client.post("/sessions/end", cast_to=httpx.Response, body={"session": "work"}).json()["ended"] == ["work~2"]


def test_the_backbone_gets_the_sampling_and_every_unknown_field(live: LiveServer) -> None:
    live.llm.answer = lambda _prompt: '{"name": "Ann"}'
    schema: dict[str, object] = {"type": "object", "properties": {"name": {"type": "string"}}}
    live.openai().chat.completions.create(
        model=MODEL,
        messages=[user("Who?")],
        temperature=0.7,
        max_completion_tokens=17,
        stop=["\n\n"],
        seed=5,
        top_p=0.9,
        user="someone else",
        response_format={"type": "json_schema", "json_schema": {"name": "who", "schema": schema}},
        extra_body={"top_k": 40, "repetition_penalty": 1.2, "chat_template_kwargs": {"enable_thinking": False}},
    )
    prompt = live.llm.prompts[-1]
    assert (prompt.temperature, prompt.max_tokens, prompt.seed) == (0.7, 17, 5)
    assert prompt.stop[-1] == "\n\n"
    assert prompt.format == JsonSchema(schema, may_be_cut=True)
    assert prompt.extra == {
        "top_p": 0.9,
        "top_k": 40,
        "repetition_penalty": 1.2,
        "frequency_penalty": STARTER_PENALTIES["frequency_penalty"],
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_max_tokens_cuts_the_reply_and_says_so(live: LiveServer) -> None:
    reply = live.openai().chat.completions.create(model=MODEL, messages=[user("a b c d e")], max_tokens=3)
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].message.content == "You said: a"


def test_json_that_is_cut_is_a_cut_reply(live: LiveServer) -> None:
    live.llm.answer = lambda _prompt: '{"a": 1, "b": 2}'
    body = {"messages": [user("Numbers, please.")], "max_tokens": 3, "response_format": {"type": "json_object"}}
    reply = live.openai().chat.completions.create(model=MODEL, **body)  # type: ignore[call-overload]
    assert (reply.choices[0].finish_reason, reply.choices[0].message.content) == ("length", '{"a": 1, "b":')
    *_, last = live.openai().chat.completions.create(model=MODEL, stream=True, **body)  # type: ignore[call-overload]
    assert last.choices[0].finish_reason == "length"


def test_a_reply_that_is_no_json_is_an_error_that_clients_do_not_repeat(live: LiveServer) -> None:
    live.llm.answer = lambda _prompt: "Sure!"
    body = {"model": MODEL, "messages": [user("Numbers, please.")], "response_format": {"type": "json_object"}}
    answer = live.http().post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_reply")
    assert "agent/" not in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 9000),
        ("max_completion_tokens", 8192),
        ("top_p", 1.5),
        ("top_p", "much"),
        ("top_k", -2),
        ("min_p", -0.1),
        ("repetition_penalty", 0),
        ("frequency_penalty", 3),
    ],
)
def test_what_no_model_can_sample_is_refused_before_anything_is_stored(
    live: LiveServer, name: str, value: object
) -> None:
    body = {"model": MODEL, "messages": [user("Hello.")], name: value}
    answer = live.http().post("/v1/chat/completions", json=body)
    assert (answer.status_code, live.log()) == (400, [])
    error = answer.json()["error"]
    assert error["param"] == name
    assert str(value) in error["message"]
    assert "prompt '" not in error["message"]


def test_a_schema_that_the_backbone_cannot_enforce_is_refused_before_anything_is_stored(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(prompt: Prompt) -> None:
        assert prompt.format == JsonSchema({"uniqueItems": True}, may_be_cut=True)
        raise BadInput("the decoder does not enforce uniqueItems; change the schema")

    monkeypatch.setattr(live.llm, "check", refuse)
    form = {"type": "json_schema", "json_schema": {"name": "list", "schema": {"uniqueItems": True}}}
    body = {"model": MODEL, "messages": [user("Hello.")], "response_format": form}
    answer = live.http().post("/v1/chat/completions", json=body)
    assert (answer.status_code, live.log()) == (400, [])
    assert answer.json()["error"]["param"] == "response_format"


def test_what_was_said_is_stored_where_no_backbone_answers(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_prompt: Prompt) -> Iterator[str]:
        raise LLMUnavailable("the backbone is gone; start it again")

    monkeypatch.setattr(live.llm, "check", fail)
    monkeypatch.setattr(live.llm, "stream", fail)
    body = {"model": MODEL, "messages": [user("Hello.")], "max_tokens": 9}
    assert live.http().post("/v1/chat/completions", json=body).status_code == 503
    assert live.log() == [["Hello."]]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_may_come_after_the_last_turn(live: LiveServer, role: str) -> None:
    """Clients for role play send them there."""
    sent = [{"role": "user", "content": "My dog is Rex."}, {"role": role, "content": "Be brief."}]
    answer = live.http().post("/v1/chat/completions", json={"model": "localmem", "messages": sent})
    assert answer.status_code == 200
    assert live.log() == [["My dog is Rex.", ">You said: My dog is Rex."]]
    assert "Be brief." in live.llm.prompts[-1].messages[0].content
    sent.insert(1, {"role": "assistant", "content": "Good."})
    assert live.http().post("/v1/chat/completions", json={"model": "localmem", "messages": sent}).status_code == 400


def test_text_parts_are_joined(live: LiveServer) -> None:
    parts: list[ChatCompletionContentPartParam] = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    live.openai().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}])
    assert live.log()[0][0] == "one\ntwo"


def test_a_disconnect_stops_the_backbone_and_the_words_so_far_are_logged(live: LiveServer) -> None:
    live.llm.slow(0.05)
    live.llm.answer = lambda _prompt: " ".join(f"word{number}" for number in range(1000))
    stream = live.openai().chat.completions.create(
        model=MODEL,
        messages=[user("Talk.")],
        stream=True,
        max_tokens=1000,
    )
    words = [chunk.choices[0].delta.content or "" for chunk, _ in zip(stream, range(4), strict=False)]
    stream.close()
    assert live.llm.finished.wait(10)
    assert live.llm.pieces_sent < 200
    (log,) = wait_until(lambda: [log for log in live.log() if len(log) == 2])
    assert log[1].startswith(">" + "".join(words).strip())
    assert len(log[1].split()) <= live.llm.pieces_sent
    assert _cuts(live) == [False, True]
    assert "localmem_replies_broken_off_total 1.0" in live.http().get("/metrics").text


def _cuts(live: LiveServer) -> list[bool]:
    (session,) = live.http().get("/v1/sessions").json()["data"]
    return [turn["is_cut"] for turn in live.http().get(f"/v1/sessions/{session['id']}").json()["data"]]


@pytest.mark.parametrize("pieces", [0, 3])
def test_a_backbone_that_dies_leaves_no_half_turn_without_a_mark(
    pieces: int, live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first word it is an error and no reply; in the middle the words so far are kept and marked."""

    def dying(_prompt: Prompt) -> Iterator[str]:
        yield from ["one ", "two ", "three "][:pieces]
        raise LLMUnavailable("the backbone is gone; start it again")

    with monkeypatch.context() as patch:
        patch.setattr(live.llm, "stream", dying)
        body = {"model": MODEL, "messages": [user("Count.")], "stream": True}
        response = live.http().post("/v1/chat/completions", json=body)
    assert response.status_code == (200 if pieces else 503)
    assert "the backbone is gone; start it again" in response.text
    assert "[DONE]" not in response.text
    assert live.log() == [["Count.", ">one two three "]] if pieces else [["Count."]]
    assert _cuts(live) == ([False, True] if pieces else [False])
    assert "localmem_replies_broken_off_total 1.0" in live.http().get("/metrics").text
    assert live.openai().chat.completions.create(model=MODEL, messages=[user("Again.")]).choices


def test_a_client_timeout_stops_the_reply(live: LiveServer) -> None:
    live.llm.slow(0.05)
    live.llm.answer = lambda _prompt: " ".join(["word"] * 1000)
    with pytest.raises(openai.APITimeoutError):
        live.openai(timeout=0.5).chat.completions.create(model=MODEL, messages=[user("Talk.")], max_tokens=1000)
    assert live.llm.finished.wait(10)
    assert live.llm.pieces_sent < 200


def test_continuing_after_a_disconnect_waits_for_the_words_so_far(live: LiveServer) -> None:
    live.llm.slow(0.3)
    live.llm.answer = lambda _prompt: "one two three four five six seven eight"
    client = live.openai()
    stream = client.chat.completions.create(model=MODEL, messages=[user("Count.")], stream=True)
    first = next(chunk.choices[0].delta.content for chunk in stream if chunk.choices[0].delta.content)
    stream.close()
    live.llm.answer = lambda _prompt: "fine"
    client.chat.completions.create(model=MODEL, messages=[user("Count."), assistant(first or ""), user("Stop.")])
    (log,) = live.log()
    assert (log[0], log[2:]) == ("Count.", ["Stop.", ">fine"])
    assert log[1].startswith(f">{first}")


def test_ending_a_session_stops_its_reply(live: LiveServer) -> None:
    live.llm.slow(0.05)
    live.llm.answer = lambda _prompt: " ".join(["word"] * 1000)
    client = live.openai()
    stream = client.chat.completions.create(model=MODEL, messages=[user("Talk.")], stream=True, max_tokens=1000)
    next(iter(stream))
    assert len(client.post("/sessions/end", cast_to=httpx.Response, body={}).json()["ended"]) == 1
    with pytest.raises(openai.APIError, match="was stopped"):
        list(stream)
    (log,) = live.log()
    assert log[1].startswith(">word")


@pytest.mark.parametrize("path", ["/v1/memories?confirm=all", "/v1/sessions/end"])
def test_a_client_does_not_repeat_what_was_erased_or_ended_meanwhile(live: LiveServer, path: str) -> None:
    live.llm.slow(0.05)
    live.llm.answer = always(" ".join(["Minka"] * 500))
    client, is_erasure = live.openai().with_options(max_retries=2), "confirm" in path
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(client.chat.completions.create, model=MODEL, messages=[user("My cat is Minka.")])
        assert wait_until(lambda: live.llm.pieces_sent)
        live.llm.answer = always("Again.")
        live.http().request("DELETE" if is_erasure else "POST", path).raise_for_status()
        with pytest.raises(openai.APIStatusError, match="was stopped"):
            reply.result(30)
    assert [log[0] for log in live.log()] == ([] if is_erasure else ["My cat is Minka."])


def test_a_reply_that_is_stopped_while_it_is_prepared_asks_no_backbone(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, entered, go = live.encoder.encode, threading.Event(), threading.Event()

    def encode_slowly(texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        entered.set()
        go.wait(10)
        return encode(texts, side)

    monkeypatch.setattr(live.encoder, "encode", encode_slowly)
    with ThreadPoolExecutor() as pool:
        body = {"model": MODEL, "messages": [user("Talk.")]}
        answer = pool.submit(live.http().post, "/v1/chat/completions", json=body)
        assert entered.wait(10)
        live.services.sessions.stop_all()
        assert answer.result(5).status_code == 503
        assert not go.is_set()
        go.set()
    assert wait_until(lambda: "localmem_replies_broken_off_total 1.0" in live.http().get("/metrics").text)
    assert live.llm.prompts == []


@pytest.mark.slow
def test_many_users_talk_at_once(live: LiveServer) -> None:
    live.llm.slow(0.005)
    client, failed = live.openai(), []

    def talk(number: int) -> None:
        messages = [user(f"I am {number}.")]
        reply = client.chat.completions.create(model=MODEL, messages=messages)
        if reply.choices[0].message.content != f"You said: I am {number}.":
            failed.append(number)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(log[0] for log in live.log()) == sorted(f"I am {number}." for number in range(60))
    assert all(log[1] == f">You said: {log[0]}" for log in live.log())
