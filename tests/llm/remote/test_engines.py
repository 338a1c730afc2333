"""Every engine does the same for a prompt: what it lacks is done otherwise, or refused by name.

Against a loopback server with each engine's wire; a real llama.cpp server is in test_llama_cpp_server.py.
"""

import json
import logging
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localmem.errors import BadInput, BadReply, BadSettings, LLMError
from localmem.llm.remote.openai_protocol import OpenAIProtocol
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.types import JsonSchema, Message, Prompt
from tests.llm.prompts import ask, collect
from tests.llm.remote.conftest import CHAT, Json, Peer, Reply, answer, logprob
from tests.llm.remote.engines import MODEL, WIRES, Wire, ollama, plain, tgi

SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string", "maxLength": 20}}, "sure": {"const": True}},
    "required": ["facts", "sure"],
    "additionalProperties": False,
}


@pytest.fixture(params=WIRES)
def engine(request: pytest.FixtureRequest, peer: Peer) -> str:
    peer.reply = WIRES[request.param]
    return str(request.param)


@pytest.fixture
def remote(peer: Peer) -> Iterator[RemoteLLM]:
    remote = RemoteLLM(peer.url, name=MODEL)
    yield remote
    remote.close()


def test_the_engine_is_recognised(engine: str, remote: RemoteLLM) -> None:
    (endpoint,) = remote.endpoints
    assert endpoint.capabilities.engine == engine
    lines = dict(endpoint.describe())
    assert engine in lines[endpoint.client.url]
    assert len(lines) == 8


def test_an_answer_and_its_stream(engine: str, remote: RemoteLLM) -> None:
    completion = remote.generate([ask()])[0]
    pieces, streamed = collect(remote.stream(ask()))
    assert completion.text == "".join(pieces) == streamed.text == "fine"
    assert (completion.finish, streamed.finish) == ("stop", "stop")
    assert completion.usage.input > 0


def test_what_is_no_character_is_replaced(engine: str, peer: Peer, remote: RemoteLLM) -> None:
    wire, broken = peer.reply, json.dumps("a\0\ud800b \U0001f600 \\u0000")

    def reply(path: str, body: Json) -> Reply:
        answered = wire(path, body)
        if path not in (CHAT, "/api/chat") or answered is None:
            return answered
        status, content = answered
        if isinstance(content, list):
            return status, [event.replace('"fine"', broken) for event in content]
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return status, data.replace(b'"fine"', broken.encode()).replace(b'"f"', broken.encode())

    peer.reply = reply
    for completion in (remote.generate([ask()])[0], collect(remote.stream(ask()))[1]):
        assert completion.text.startswith("a\ufffd\ufffdb \U0001f600 \\u0000")


def test_a_schema_is_followed(engine: str, remote: RemoteLLM) -> None:
    for completion in (remote.generate([ask(schema=SCHEMA)])[0], collect(remote.stream(ask(schema=SCHEMA)))[1]):
        assert json.loads(completion.text) == {"facts": ["text"], "sure": True}


def test_one_option_is_chosen(engine: str, remote: RemoteLLM) -> None:
    completion = remote.generate([ask(choice=["yes", "no"])])[0]
    assert completion.text == "yes"
    able = next(iter(remote.endpoints)).capabilities
    assert able.logprobs == (engine not in ("LM Studio", "OpenAI-compatible server"))
    assert (completion.choices is not None) == able.logprobs
    if completion.choices is not None:
        assert max(completion.choices, key=completion.choices.__getitem__) == "yes"
        assert sum(map(math.exp, completion.choices.values())) == pytest.approx(1)


@pytest.mark.parametrize(
    "tokens",
    [
        [{'{"': 1.0}, {"answer": 1.0}, {'":"': 0.6, '": "': 0.4}, {"yes": 0.75, "no": 0.25}, {'"}': 1.0}],
        [{'{"answer': 1.0}, {'":"yes': 0.75, '":"no': 0.25, '"': 0.5}, {'"}': 1.0}],
        [{'{"answer"': 1.0}, {":": 1.0}, {' "': 0.5, '"': 0.5}, {"yes": 0.75, "no": 0.25}, {'"}': 1.0}],
    ],
)
def test_an_option_as_compact_json_is_weighed(peer: Peer, remote: RemoteLLM, tokens: list[dict[str, float]]) -> None:
    chosen = [next(iter(weights)) for weights in tokens]
    logprobs = [logprob(token, weights) for token, weights in zip(chosen, tokens, strict=True)]

    def reply(path: str, body: Json) -> Reply:
        is_asked = path == CHAT and "localmem-ready" not in str(body)
        return (200, answer("".join(chosen), logprobs={"content": logprobs})) if is_asked else tgi(path, body)

    peer.reply = reply
    completion = remote.generate([ask(choice=["yes", "no"])])[0]
    assert completion.choices is not None
    assert {option: math.exp(weight) for option, weight in completion.choices.items()} == pytest.approx(
        {"yes": 0.75, "no": 0.25}
    )


CONTEXTS = {"vLLM": 2000, "llama.cpp": 2048, "Ollama": 4096, "LM Studio": 3000, "SGLang": 2200}
CONTEXTS |= {"text-generation-inference": 2500, "OpenAI-compatible server": 4096}


def test_a_prompt_is_trimmed_to_the_context(engine: str, remote: RemoteLLM, peer: Peer) -> None:
    assert remote.context_length == CONTEXTS[engine]
    old = tuple(Message("user" if n % 2 == 0 else "assistant", "word " * 100) for n in range(60))
    prompt = Prompt("test/long", (Message("system", "Be brief."), *old, Message("user", "And now?")), max_tokens=8)
    completion = remote.generate([prompt])[0]
    assert completion.trimmed > 1000
    messages: Any = next(body for path, body in reversed(peer.requests) if "chat" in path)["messages"]
    assert (messages[0]["content"], messages[-1]["content"]) == ("Be brief.", "And now?")
    assert len(messages) < len(old)


def test_tokens_are_counted(engine: str, remote: RemoteLLM) -> None:
    assert remote.count_tokens([]) == []
    short, long = remote.count_tokens(["one two", "one two three four five six"])
    assert 0 < short < long


def test_what_an_engine_cannot_do_is_refused_by_name(engine: str, remote: RemoteLLM, tmp_path: Path) -> None:
    able = next(iter(remote.endpoints)).capabilities
    if not able.adapters:
        with pytest.raises(BadSettings, match=r"loads no adapters, 'rsum' .* merge it with `localmem distill merge"):
            remote.load_adapter("rsum", tmp_path)
    if "prefill" not in able.abilities:
        with pytest.raises(BadInput, match="cannot do prefill"):
            remote.generate([replace(ask(), prefill="Well")])


def test_a_model_that_is_not_served_is_named(peer: Peer) -> None:
    peer.reply = lambda path, body: (404, {"error": "not found"}) if path == "/api/show" else ollama(path, body)
    remote = RemoteLLM(peer.url, name="other")
    with pytest.raises(LLMError, match=r"does not serve 'other'; it serves small:latest, small; set `model`"):
        remote.generate([ask()])
    remote.close()


def test_the_context_that_ollama_cuts_is_noticed_before_the_first_request(
    peer: Peer, remote: RemoteLLM, caplog: pytest.LogCaptureFixture
) -> None:
    peer.reply = ollama
    with caplog.at_level(logging.WARNING):
        assert remote.context_length == 4096  # 8,192 were asked for
    assert "context of 4096 tokens instead of 8192" in caplog.text
    (load,) = peer.bodies("/api/chat")
    assert load["messages"] == []
    remote.generate([ask()])
    options: Any = peer.bodies("/api/chat")[-1]["options"]
    assert options["num_ctx"] == 4096


def test_ollama_on_the_wire(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = ollama
    extra = {"top_p": 0.9, "repetition_penalty": 1.2, "chat_template_kwargs": {"enable_thinking": False}}
    remote.generate([ask("Hi", max_tokens=9, temperature=0.5, seed=3, stop=["\n"], extra=extra)])
    assert peer.bodies("/api/chat")[-1] == {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": False,
        "options": {
            "num_ctx": 4096,
            "temperature": 0.5,
            "num_predict": 9,
            "top_p": 0.9,
            "repeat_penalty": 1.2,
            "seed": 3,
            "stop": ["\n"],
        },
        "keep_alive": "30m",
        "think": False,
    }


def test_tools_of_ollama_come_and_go_in_openais_form(peer: Peer, remote: RemoteLLM) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
    answered = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "time", "arguments": {"a": 1}}}],
    }

    def reply(path: str, body: Json) -> Reply:
        last = {"message": answered, "done": True, "done_reason": "stop"}
        return (200, last) if path == "/api/chat" and body.get("tools") else ollama(path, body)

    peer.reply = reply
    messages = (
        Message("user", "Porto?"),
        Message("assistant", "", {"tool_calls": [call]}),
        Message("tool", "20 degrees", {"tool_call_id": "c1"}),
    )
    tools = [{"type": "function", "function": {"name": "weather"}}]
    completion = remote.generate([replace(ask(), messages=messages, extra={"tools": tools})])[0]
    sent: Any = peer.bodies("/api/chat")[-1]["messages"]
    assert sent[1]["tool_calls"] == [{"function": {"name": "weather", "arguments": {"city": "Porto"}}}]
    assert completion.finish == "tool_calls"
    assert completion.tool_calls[0]["function"] == {"name": "time", "arguments": '{"a": 1}'}


def test_an_error_within_ollamas_stream_is_one_line(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (200, {"error": "too warm"}) if body.get("stream") else ollama(path, body)
    with pytest.raises(LLMError, match=r"rejected prompt 'test/ask' \(too warm\)"):
        collect(remote.stream(ask()))


def test_json_that_is_twice_wrong_is_a_bad_reply(peer: Peer, remote: RemoteLLM) -> None:
    def reply(path: str, body: Json) -> Reply:
        return plain(path, body | {"messages": [{"content": "x"}]}) if path == CHAT else plain(path, body)

    peer.reply = reply
    with pytest.raises(BadReply, match="twice outside its schema"):
        remote.generate([ask(schema=SCHEMA)])
    assert len(peer.bodies()) == 1 + 2  # a trial of what the server can do, and two attempts


def test_json_that_is_cut_is_returned_without_its_fence(peer: Peer, remote: RemoteLLM) -> None:
    beginning = '{"a": {"b": 1}, "c": "lo'

    def reply(path: str, body: Json) -> Reply:
        if path == CHAT and "JSON schema" in str(body["messages"]):
            return 200, answer(f"```json\n{beginning}", finish="length")
        return plain(path, body)

    peer.reply = reply
    prompt = replace(ask(), format=JsonSchema({"type": "object"}, may_be_cut=True))
    (completion,) = remote.generate([prompt])
    assert (completion.text, completion.finish) == (beginning, "length")


def _reporting(prompt_tokens: int) -> Wire:
    """The plain wire, with this many tokens in each prompt."""

    def reply(path: str, body: Json) -> Reply:
        answered = plain(path, body)
        if answered and path == CHAT and isinstance(answered[1], dict):
            return answered[0], answered[1] | {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 1}}
        return answered

    return reply


def test_a_count_that_was_too_low_is_raised_once_by_prompts_of_one_time(peer: Peer, remote: RemoteLLM) -> None:
    wire, together = _reporting(1200), threading.Barrier(16)
    peer.reply = wire
    text = "some words " * 225  # estimated at 990 tokens
    before = remote.count_tokens([text])[0]
    remote.generate([ask()])

    def reply(path: str, body: Json) -> Reply:
        together.wait(10)
        return wire(path, body)

    peer.reply = reply
    remote.generate([ask(text)] * 16)
    assert 1.1 * before < remote.count_tokens([text])[0] < 1.3 * before


def test_what_a_template_adds_to_a_short_prompt_raises_no_count(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = _reporting(100)
    before = remote.count_tokens(["some words " * 99])
    remote.generate([ask("Hi")])
    assert remote.count_tokens(["some words " * 99]) == before


@pytest.mark.parametrize(("first", "second", "free"), [("a", "a", True), ("a", "b", False)])
def test_the_tokenizer_on_disk_counts_where_it_agrees_with_the_server(
    peer: Peer, starter_llm_dir: Path, first: str, second: str, free: bool
) -> None:
    wire = WIRES["llama.cpp"]
    remote = RemoteLLM(peer.url, name=MODEL, tokenizer=starter_llm_dir)
    from localmem.llm.tokenizer import ChatTokenizer

    tokenizer = ChatTokenizer(starter_llm_dir)

    def reply(path: str, body: Json) -> Reply:
        if path == "/tokenize" and first == second:
            return 200, {"tokens": list(range(tokenizer.count_tokens([str(body["content"])])[0]))}
        return wire(path, body)

    peer.reply = reply
    assert next(iter(remote.endpoints)).counter.is_free == free
    remote.close()


def test_an_unknown_engine_has_no_tokenizer(peer: Peer) -> None:
    remote = RemoteLLM(peer.url, name=MODEL)
    protocol = OpenAIProtocol(next(iter(remote.endpoints)).client, MODEL)
    with pytest.raises(NotImplementedError):
        protocol.count_texts(["a"])
    remote.close()


def test_a_llama_cpp_server_without_eyes_refuses_images(peer: Peer) -> None:
    peer.reply = WIRES["llama.cpp"]
    image = Message("user", "What is it?", {"parts": [{"type": "image_url", "image_url": {"url": "data:,"}}]})
    remote = RemoteLLM(peer.url, name=MODEL)
    with pytest.raises(BadInput, match="cannot do images"):
        remote.generate([replace(ask(), messages=(image,))])
    assert "images" not in remote.abilities
    remote.close()
