"""vLLM's protocol, and what all protocols share, against a loopback server.

Tests requests and the parsing of answers; the contract test covers a real vLLM.
"""

import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localmem.errors import BadReply, BadSettings, LLMError, LLMUnavailable, PartialFailure
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.remote.server_client import OwnServer as OwnServerProtocol
from localmem.llm.remote.vllm_protocol import VllmProtocol
from localmem.types import Completion, Message, Prompt, Usage
from tests.llm.prompts import ask, collect
from tests.llm.remote.conftest import CHAT, WAIT, Json, Peer, Reply, answer, logprob, refusal, stream_events


def vllm_at(
    url: str,
    *,
    name: str = "model",
    context_length: int | None = None,
    api_key: str | None = None,
    server: OwnServerProtocol | None = None,
    timeout: float = 600.0,
    priorities: bool = False,
) -> RemoteLLM:
    return RemoteLLM(
        url,
        name=name,
        context_length=context_length,
        api_key=api_key,
        server=server,
        timeout=timeout,
        new_protocol=lambda client: VllmProtocol(client, name, priorities=priorities),
    )


def ready_vllm_at(
    peer: Peer,
    *,
    name: str = "model",
    context_length: int = 4096,
    api_key: str | None = None,
    timeout: float = 600.0,
    priorities: bool = False,
) -> RemoteLLM:
    """One that has asked the server for its models already."""
    remote = vllm_at(
        peer.url, name=name, context_length=context_length, api_key=api_key, timeout=timeout, priorities=priorities
    )
    reply, peer.reply = peer.reply, lambda path, body: (200, {"data": [{"id": name, "max_model_len": 32768}]})
    assert remote.context_length == context_length
    peer.reply = reply
    peer.requests.pop()
    peer.headers.pop()
    return remote


@pytest.fixture
def remote(peer: Peer) -> Iterator[RemoteLLM]:
    remote = ready_vllm_at(peer, api_key="secret")
    yield remote
    remote.close()


def test_a_prompt_on_the_wire(peer: Peer, remote: RemoteLLM) -> None:
    completion = remote.generate([ask("Hi", max_tokens=9, temperature=0.5, seed=3, stop=["\n"], extra={"top_p": 0.9})])[
        0
    ]
    assert peer.bodies() == [
        {
            "model": "model",
            "messages": [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": "Hi"},
            ],
            "max_tokens": 9,
            "temperature": 0.5,
            "seed": 3,
            "stop": ["\n"],
            "stream": False,
            "top_p": 0.9,
        }
    ]
    assert completion == Completion("fine", "stop", Usage(input=7, output=3, cached=5))
    assert peer.headers[0]["Authorization"] == "Bearer secret"


def test_further_fields_never_replace_the_prompts_own(peer: Peer, remote: RemoteLLM) -> None:
    extra = {
        "messages": [],
        "model": "other",
        "stream": True,
        "stream_options": {},
        "max_tokens": 1,
        "n": 2,
        "user": "u",
    }
    remote.generate([ask("Hi", max_tokens=9, seed=None, extra=extra)])
    body = peer.bodies()[0]
    assert (body["model"], body["stream"], body["max_tokens"], body["user"]) == ("model", False, 9, "u")
    assert body["messages"]
    assert not {"stream_options", "n", "seed"} & set(body)


def test_an_open_ended_prompt_sends_no_limit(peer: Peer, remote: RemoteLLM) -> None:
    fields = {"chat_template_kwargs": {"enable_thinking": False}}
    remote.generate([replace(ask("Hi", max_tokens=9, extra=fields), open_ended=True)])
    (body,) = peer.bodies()
    assert "max_tokens" not in body
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_thoughts_that_the_server_separates_are_no_part_of_the_answer(peer: Peer, remote: RemoteLLM) -> None:
    message = {"role": "assistant", "reasoning_content": "They ask for a name.", "content": None}
    cut = {"choices": [{"index": 0, "message": message, "finish_reason": "length"}], "usage": {"prompt_tokens": 7}}
    peer.reply = lambda path, body: (200, cut)
    assert remote.generate([ask()])[0] == Completion("", "length", Usage(input=7))
    thoughts = [{"choices": [{"delta": {"reasoning_content": text}}]} for text in ("They ", "ask.")]
    peer.reply = lambda path, body: (200, [*map(json.dumps, thoughts), *stream_events("Bru", "no.")])
    pieces, completion = collect(remote.stream(ask()))
    assert (pieces, completion.text) == (["Bru", "no."], "Bruno.")


def test_background_prompts_have_a_lower_priority_where_supported(peer: Peer, remote: RemoteLLM) -> None:
    background = replace(ask(), background=True)
    ranking = ready_vllm_at(peer, name="m", priorities=True)
    ranking.generate([ask()])
    ranking.generate([background])
    remote.generate([background])
    ranking.close()
    assert [body.get("priority") for body in peer.bodies()] == [None, 1, None]


def test_the_servers_counters_of_its_prefix_cache(peer: Peer, remote: RemoteLLM) -> None:
    counters = [
        "# HELP vllm:prefix_cache_queries_total Tokens looked up.",
        'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1200.0',
        'vllm:prefix_cache_queries_total{engine="1",model_name="m"} 300.0',
        'vllm:prefix_cache_hits_total{engine="0",model_name="m"} 900.0',
    ]
    peer.reply = lambda path, body: (200, "\n".join(counters).encode())
    assert remote.prefix_cache() == (1500, 900)
    peer.reply = lambda path, body: (200, b"vllm:num_requests_running 0.0")
    assert remote.prefix_cache() is None


def test_a_schema_on_the_wire(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (200, answer('{"a": 1}'))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    remote.generate([ask(schema=schema)])
    assert peer.bodies()[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": True},
    }


def test_a_choice_on_the_wire_is_cut_where_it_is_decided(peer: Peer, remote: RemoteLLM) -> None:
    step = logprob("RE", {"RE": 0.5, "R": 0.1, "REP": 0.2, "P": 0.2})
    peer.reply = lambda path, body: (
        200,
        answer("REPL", "length", {"content": [step, logprob("PL", {"PL": 0.75, "TI": 0.25})]}),
    )
    completion = remote.generate([ask(choice=["REPLACE", "RETIRE", "PASS"], stop=["E"], max_tokens=50)])[0]
    body = peer.bodies()[0]
    assert body["structured_outputs"] == {"choice": ["REPLACE", "RETIRE", "PASS"]}
    assert (body["logprobs"], body["top_logprobs"], body["max_tokens"]) == (True, 20, 3)
    assert "stop" not in body
    assert "guided_choice" not in body
    assert (completion.text, completion.finish) == ("REPLACE", "stop")
    assert completion.choices is not None
    assert {option: math.exp(weight) for option, weight in completion.choices.items()} == pytest.approx(
        {"REPLACE": 0.2 + 0.6 * 0.75, "RETIRE": 0.6 * 0.25, "PASS": 0.2}
    )


def test_options_past_the_twentieth_are_below_it(peer: Peer, remote: RemoteLLM) -> None:
    listed = {f"{chr(97 + n)}": 0.04 for n in range(19)} | {"t": 0.02}
    peer.reply = lambda path, body: (200, answer("a", "length", {"content": [logprob("a", listed)]}))
    completion = remote.generate([ask(choice=[*listed, "zebra"])])[0]
    assert completion.choices is not None
    assert completion.choices["zebra"] == pytest.approx(completion.choices["t"] - 1.0)


def test_an_answer_outside_the_options_is_a_bad_reply(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (200, answer("perhaps"))
    with pytest.raises(
        BadReply, match=r"'test/ask' was answered 'perhaps'; the server did not enforce \['yes', 'no'\]"
    ):
        remote.generate([ask(choice=["yes", "no"])])


def test_an_answer_outside_the_options_is_a_bad_reply_with_log_probabilities_too(peer: Peer, remote: RemoteLLM) -> None:
    steps = [logprob(" per", {" per": 0.5, " may": 0.5}), logprob("haps", {"haps": 1.0})]
    peer.reply = lambda path, body: (200, answer(" perhaps", logprobs={"content": steps}))
    with pytest.raises(BadReply, match=r"was answered ' perhaps'; the server did not enforce"):
        remote.generate([ask(choice=["yes", "no"])])


def test_neighbours_of_one_role_are_joined(peer: Peer, remote: RemoteLLM) -> None:
    remote.generate([Prompt("x", (Message("user", "one"), Message("user", "two")))])
    assert peer.bodies()[0]["messages"] == [{"role": "user", "content": "one\n\ntwo"}]


def test_a_batch_is_sent_in_parallel_and_returned_in_order(peer: Peer, remote: RemoteLLM) -> None:
    together = threading.Barrier(16)

    def reply(path: str, body: Json) -> Reply:
        together.wait(10)
        messages = body["messages"]
        assert isinstance(messages, list)
        return 200, answer(messages[-1]["content"])

    peer.reply = reply
    completion = remote.generate([ask(str(number)) for number in range(16)])
    assert [completion.text for completion in completion] == [str(number) for number in range(16)]


def test_a_rejection_is_one_line_and_not_repeated(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (400, refusal("no such\nparameter"))
    with pytest.raises(LLMError, match=r"rejected prompt 'test/ask' \(400: no such parameter\)") as caught:
        remote.generate([ask()])
    assert "\n" not in str(caught.value)
    assert len(peer.requests) == 1
    with pytest.raises(LLMError, match="rejected"):
        collect(remote.stream(ask()))
    assert len(peer.requests) == 2


def test_one_refusal_does_not_fail_its_neighbours(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (400, refusal("bad")) if body["max_tokens"] == 3 else (200, answer("fine"))
    with pytest.raises(PartialFailure) as caught:
        remote.generate([ask(), ask(max_tokens=3), ask()])
    assert [type(result) for result in caught.value.results] == [Completion, LLMError, Completion]


@pytest.mark.parametrize("first", [None, (503, {"message": "restarting"})], ids=["connection", "status"])
def test_a_failed_request_is_repeated_when_the_server_is_healthy(peer: Peer, remote: RemoteLLM, first: Reply) -> None:
    peer.reply = lambda path, body: first if len(peer.bodies()) == 1 and path == CHAT else (200, answer("fine"))
    assert remote.generate([ask()])[0].text == "fine"
    assert [path for path, _ in peer.requests] == [CHAT, "/health", CHAT]


def test_a_stream_that_failed_before_its_first_piece_is_repeated(peer: Peer, remote: RemoteLLM) -> None:
    def reply(path: str, body: Json) -> Reply:
        if path != CHAT:
            return 200, {}
        return None if len(peer.bodies()) == 1 else (200, stream_events("fi", "ne"))

    peer.reply = reply
    assert collect(remote.stream(ask()))[1].text == "fine"


def test_a_second_failure_is_an_error(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (500, refusal("engine")) if path == CHAT else (200, {})
    with pytest.raises(LLMError, match=r"failed at prompt 'test/ask' \(500: engine\)"):
        remote.generate([ask()])
    assert len(peer.bodies()) == 2


def test_no_server_is_unavailable(unused_port: int) -> None:
    remote = vllm_at(f"http://127.0.0.1:{unused_port}/v1/", context_length=4096)
    with pytest.raises(LLMUnavailable, match=f"no server answers at http://127.0.0.1:{unused_port} "):
        remote.generate([ask()])
    with pytest.raises(LLMUnavailable, match=r"start the server or check `llm\.url`"):
        collect(remote.stream(ask()))
    remote.close()


def test_a_timeout_is_not_repeated(peer: Peer) -> None:
    release = threading.Event()
    peer.reply = lambda path, body: (release.wait(10), (200, answer("late")))[1]
    remote = ready_vllm_at(peer, timeout=0.2)
    with pytest.raises(LLMUnavailable, match="did not answer prompt 'test/ask' within 0 s"):
        remote.generate([ask()])
    release.set()
    assert len(peer.bodies()) == 1
    remote.close()


def test_a_stream_on_the_wire(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (200, stream_events("Hel", "lo", finish="length"))
    pieces, completion = collect(remote.stream(ask()))
    assert pieces == ["Hel", "lo"]
    assert completion == Completion("Hello", "length", Usage(input=7, output=2))
    assert peer.bodies()[0]["stream"] is True
    assert peer.bodies()[0]["stream_options"] == {"include_usage": True}


def test_a_stream_may_hold_any_separator_of_lines(peer: Peer, remote: RemoteLLM) -> None:
    text = "one\u2028two\u2029three\x85four"
    peer.reply = lambda path, body: (200, [event.replace("HERE", text) for event in stream_events("HERE")])
    assert collect(remote.stream(ask()))[1].text == text


def test_closing_a_stream_closes_the_connection(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (200, [*stream_events("Hel")[:2], WAIT])
    stream = remote.stream(ask())
    assert next(stream) == "Hel"
    assert peer.sent.wait(10)
    assert not peer.hung_up.is_set()
    stream.close()
    assert peer.hung_up.wait(10)


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        (stream_events("Hel")[:2], "the stream ended before the answer did"),
        ([stream_events("Hel")[1], json.dumps(refusal("too warm"))], r"rejected prompt 'test/ask' \(400: too warm\)"),
        (["{"], "does not follow the OpenAI protocol"),
    ],
)
def test_a_broken_stream_is_an_error(peer: Peer, remote: RemoteLLM, events: list[str], complaint: str) -> None:
    peer.reply = lambda path, body: (200, events)
    with pytest.raises(LLMError, match=complaint):
        collect(remote.stream(ask()))
    assert len(peer.requests) == 1


def test_another_protocol_is_an_error(peer: Peer, remote: RemoteLLM) -> None:
    for content in (b"<html>", b'{"choices": []}', b'{"nothing": 1}'):
        peer.reply = lambda path, body, content=content: (200, content)  # type: ignore[misc]
        with pytest.raises(LLMError, match=r"OpenAI"):
            remote.generate([ask()])


def test_json_cut_short_is_a_bad_reply(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = lambda path, body: (200, answer('{"a": ', "length"))
    with pytest.raises(BadReply, match="raise its max_tokens above 16"):
        remote.generate([ask(schema={})])


def test_the_server_gives_the_context_length(peer: Peer) -> None:
    models = {"data": [{"id": "model", "max_model_len": 700}, {"id": "adapter", "parent": "model"}]}
    peer.reply = lambda path, body: (200, models if path == "/v1/models" else answer("fine"))
    remote = vllm_at(peer.url)
    assert remote.context_length == 700
    assert remote.context_length == 700
    assert len(peer.requests) == 1
    for wish, context_length in ((4096, 700), (500, 500)):
        wishing = vllm_at(peer.url, context_length=wish)
        assert wishing.context_length == context_length
        assert dict(next(iter(wishing.endpoints)).describe())["context"].startswith(f"{context_length} tokens")
        wishing.close()
    other = vllm_at(peer.url, name="other", context_length=500)
    with pytest.raises(LLMError, match="does not serve 'other'; it serves model, adapter"):
        other.generate([ask()])
    remote.close()
    other.close()


def test_without_a_tokenizer_the_server_counts_tokens(peer: Peer) -> None:
    def reply(path: str, body: Json) -> Reply:
        if path != "/tokenize":
            return 200, answer("fine")
        messages = body.get("messages") or [{"content": body.get("prompt")}]
        assert isinstance(messages, list)
        return 200, {"count": sum(len(message["content"].split()) for message in messages)}

    peer.reply = reply
    remote = ready_vllm_at(peer, context_length=300)
    assert remote.count_tokens(["a b c", ""]) == [3, 0]
    completion = remote.generate(
        [ask("word " * 500, max_tokens=10, extra={"chat_template_kwargs": {"enable_thinking": False}})]
    )
    assert 210 < completion[0].trimmed < 260
    counted = peer.bodies("/tokenize")[-1]
    assert counted["chat_template_kwargs"] == {"enable_thinking": False}
    assert counted["model"] == "model"
    roomy = ready_vllm_at(peer)
    requests = len(peer.bodies("/tokenize"))
    roomy.generate([ask("surely short enough")])
    assert len(peer.bodies("/tokenize")) == requests
    remote.close()
    roomy.close()


def test_prompts_are_routed_to_adapters(peer: Peer, remote: RemoteLLM, tmp_path: Path) -> None:
    served = (200, {"data": [{"id": "model"}]})
    peer.reply = lambda path, _: served if path == "/v1/models" else (200, answer("fine") if path == CHAT else b"ok")
    for name in ("rsum", "rsum/update"):
        remote.load_adapter(name, tmp_path / name)
    remote.generate([ask(name=name) for name in ("rsum/respond", "rsum/update", "rsumx/respond")])
    assert sorted(str(body["model"]) for body in peer.bodies()) == ["model", "rsum", "rsum/update"]


def test_adapters_on_the_wire(peer: Peer, remote: RemoteLLM, tmp_path: Path) -> None:
    served = ["model"]

    def reply(path: str, body: Json) -> Reply:
        if path == "/v1/models":
            return 200, {"data": [{"id": name} for name in served]}
        if path == "/v1/load_lora_adapter":
            served.append(str(body["lora_name"]))
        return 200, b"Success" if "lora" in path else answer("fine")

    peer.reply = reply
    remote.load_adapter("rsum", tmp_path)
    remote.load_adapter("rsum", tmp_path)
    remote.generate([ask(name="rsum/update")])
    assert [path for path, _ in peer.requests if "lora" in path] == [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/v1/load_lora_adapter",
    ]
    assert peer.bodies("/v1/load_lora_adapter")[0] == {"lora_name": "rsum", "lora_path": str(tmp_path)}
    assert [body["model"] for body in peer.bodies()] == ["rsum"]


class OwnServer:
    """Stands in for a server of our own: counts its starts, and comes back when it is asked to."""

    def __init__(self) -> None:
        self.starts = 1
        self.adapter_slots = 4
        self.waited = 0
        self.gone = False

    def ensure_ready(self) -> None:
        self.waited += 1
        if self.gone:
            raise LLMUnavailable("the vLLM server ended with code 1; its log says: RuntimeError: full")


@pytest.fixture
def own(peer: Peer) -> Iterator[tuple[OwnServer, RemoteLLM]]:
    server = OwnServer()
    remote = vllm_at(peer.url, context_length=4096, server=server)
    yield server, remote
    remote.close()


def test_a_restart_is_waited_for_and_adapters_are_loaded_again(
    peer: Peer, own: tuple[OwnServer, RemoteLLM], tmp_path: Path
) -> None:
    server, remote = own
    peer.reply = lambda path, body: (200, {"data": [{"id": "model"}]} if path == "/v1/models" else b"ok")
    remote.load_adapter("rsum", tmp_path)

    def reply(path: str, body: Json) -> Reply:
        if path == CHAT and server.starts == 1:
            server.starts = 2
            return None
        return 200, answer("fine") if path == CHAT else b"ok"

    peer.requests.clear()
    peer.reply = reply
    assert remote.generate([ask(name="rsum/update")])[0].text == "fine"
    assert [path for path, _ in peer.requests] == [CHAT, "/v1/load_lora_adapter", CHAT]
    assert server.waited == 2
    peer.reply = lambda path, body: (200, {"data": [{"id": "model"}]} if path == "/v1/models" else b"ok")
    for name in "abc":
        remote.load_adapter(name, tmp_path / name)
    with pytest.raises(BadSettings, match="exceeds the server's 4 slots; raise"):
        remote.load_adapter("other", tmp_path / "other")


def test_a_folder_takes_one_slot_for_all_its_prompts(
    peer: Peer, own: tuple[OwnServer, RemoteLLM], tmp_path: Path
) -> None:
    server, remote = own
    server.adapter_slots = 1
    served = (200, {"data": [{"id": "model"}]})
    peer.reply = lambda path, _: served if path == "/v1/models" else (200, answer("fine") if path == CHAT else b"ok")
    for name in ("rsum/respond", "creem/respond", "theanine/respond"):
        remote.load_adapter(name, tmp_path)
    remote.generate([ask(name=name) for name in ("theanine/respond", "creem/respond", "rsum/respond")])
    assert [path for path, _ in peer.requests if "lora" in path] == ["/v1/load_lora_adapter"]
    assert [body["model"] for body in peer.bodies()] == ["rsum/respond"] * 3


def test_a_dead_server_is_reported_with_its_log(peer: Peer, own: tuple[OwnServer, RemoteLLM]) -> None:
    server, remote = own
    server.gone = True
    peer.reply = lambda path, body: None
    with pytest.raises(LLMUnavailable, match="its log says: RuntimeError: full"):
        remote.generate([ask()])
    with pytest.raises(LLMUnavailable, match="its log says: RuntimeError: full"):
        collect(remote.stream(ask()))
    assert len(peer.bodies()) == 2


def test_proxies_of_the_environment_are_not_used(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    remote = ready_vllm_at(peer)
    assert remote.generate([ask()])[0].text == "fine"
    remote.close()


def test_tools_images_and_a_prefill_are_sent_and_calls_come_back(peer: Peer, remote: RemoteLLM) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
    messages = (
        Message("user", "Look:", {"parts": [image]}),
        Message("assistant", "", {"tool_calls": [call]}),
        Message("tool", "20 degrees", {"tool_call_id": "c1"}),
        Message("tool", "sunny", {"tool_call_id": "c2"}),
    )
    tools = [{"type": "function", "function": {"name": "weather"}}]
    pieces = [{"index": 0, "id": "c9", "type": "function", "function": {"name": "weather", "arguments": '{"ci'}}]
    second = [{"index": 0, "function": {"arguments": 'ty": 1}'}}]
    events = [{"choices": [{"delta": {"tool_calls": part}}]} for part in (pieces, second)]
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    peer.reply = lambda path, body: (200, [*map(json.dumps, (*events, end)), "[DONE]"])
    prompt = replace(ask("x"), messages=messages, extra={"tools": tools}, prefill="It is")
    _, completion = collect(remote.stream(prompt))
    (body,) = peer.bodies()
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, image]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "20 degrees", "tool_call_id": "c1"},
        {"role": "tool", "content": "sunny", "tool_call_id": "c2"},
        {"role": "assistant", "content": "It is"},
    ]
    assert (body["tools"], body["continue_final_message"]) == (tools, True)
    expected = {"type": "function", "id": "c9", "function": {"name": "weather", "arguments": '{"city": 1}'}}
    assert (completion.finish, completion.tool_calls) == ("tool_calls", (expected,))
