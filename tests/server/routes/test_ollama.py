"""Ollama's protocol: translation in and out, and what is stored."""

import json
from typing import Any

import pytest

from localmem.types import JsonSchema
from tests.server.conftest import STARTER_PENALTIES, LiveServer

HELLO = {"model": "localmem", "messages": [{"role": "user", "content": "I keep bees."}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_chat_is_streamed_by_default_and_stored(live: LiveServer) -> None:
    answer = live.http().post("/api/chat", json=HELLO)
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = lines_of(answer.text)
    assert "".join(line["message"]["content"] for line in lines) == "You said: I keep bees."
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert (lines[-1]["done_reason"], lines[-1]["eval_count"]) == ("stop", 5)
    assert live.log() == [["I keep bees.", ">You said: I keep bees."]]


def test_options_formats_and_tags_are_understood(live: LiveServer) -> None:
    live.llm.answer = lambda _prompt: "{}"
    options = {"temperature": 0.5, "num_predict": 7, "num_ctx": 4096, "repeat_penalty": 1.1, "stop": ["END"]}
    body = {**HELLO, "model": "localmem:latest", "stream": False, "options": options, "format": {"type": "object"}}
    answer = live.http().post("/api/chat", json=body).json()
    assert answer["message"] == {"role": "assistant", "content": "{}"}
    assert answer["done"] is True
    prompt = live.llm.prompts[-1]
    assert (prompt.temperature, prompt.max_tokens, prompt.stop[-1]) == (0.5, 7, "END")
    assert prompt.format == JsonSchema({"type": "object"}, may_be_cut=True)
    assert prompt.extra == STARTER_PENALTIES
    live.http().post("/api/chat", json={**HELLO, "options": {"num_predict": -1}})
    assert live.llm.prompts[-1].max_tokens != -1


def test_json_that_is_cut_is_a_cut_reply(live: LiveServer) -> None:
    live.llm.answer = lambda _prompt: '{"a": 1, "b": 2}'
    body = {**HELLO, "format": "json", "options": {"num_predict": 2}, "stream": False}
    answer = live.http().post("/api/chat", json=body).json()
    assert (answer["done_reason"], answer["message"]["content"]) == ("length", '{"a": 1,')


def test_tools_are_called_with_objects_and_results_need_no_ids(able: LiveServer) -> None:
    able.llm.calls = (CALL,)
    messages: list[dict[str, object]] = [{"role": "user", "content": "The weather?"}]
    body = {"model": "localmem", "messages": messages, "tools": [TOOL]}
    *_, calls, last = lines_of(able.http().post("/api/chat", json=body).text)
    (call,) = calls["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": {"city": "Porto"}}
    assert last["done"] is True
    request: dict[str, object] = {"role": "assistant", "content": "", "tool_calls": [{"function": call["function"]}]}
    messages += [request, {"role": "tool", "tool_name": "weather", "content": "I am Zorro."}]
    able.llm.answer = lambda _prompt: "Rain."
    answer = able.http().post("/api/chat", json={**body, "stream": False}).json()
    assert answer["message"]["content"] == "Rain."
    repeated, result = able.llm.prompts[-1].messages[-2:]
    (sent,) = repeated.fields["tool_calls"]  # type: ignore[misc]
    assert result.fields == {"tool_call_id": sent["id"]}  # type: ignore[has-type]
    assert able.log() == [["The weather?", ">Rain."]]


@pytest.mark.parametrize("key", ["tool_name", "tool_call_id"])
def test_results_in_another_order_belong_to_the_calls_that_they_name(able: LiveServer, key: str) -> None:
    calls = [{"id": f"id-{name}", "function": {"name": name, "arguments": {}}} for name in ("weather", "tides")]
    named = {"tool_name": ("tides", "weather"), "tool_call_id": ("id-tides", "id-weather")}[key]
    results = [{"role": "tool", "content": f"of {name}", key: name} for name in named]
    messages = [{"role": "user", "content": "And?"}, {"role": "assistant", "tool_calls": calls}, *results]
    able.http().post("/api/chat", json={"model": "localmem", "messages": messages}).raise_for_status()
    sent = able.llm.prompts[-1].messages[-2:]
    assert [message.fields["tool_call_id"] for message in sent] == ["id-tides", "id-weather"]


def test_a_prompt_is_generated_from_and_an_empty_one_loads(live: LiveServer) -> None:
    http = live.http()
    body = {"model": "localmem", "prompt": "I climb.", "system": "Be brief.", "stream": False}
    assert http.post("/api/generate", json=body).json()["response"] == "You said: I climb."
    assert "Be brief." in live.llm.prompts[-1].messages[0].content
    assert http.post("/api/generate", json={"model": "localmem"}).json()["done_reason"] == "load"
    assert [http.post(f"/api/{name}", json={"model": "x"}).status_code for name in ("generate", "chat")] == [404, 404]
    assert live.log() == [["I climb.", ">You said: I climb."]]


def test_what_would_be_ignored_of_a_prompt_is_refused_by_name(live: LiveServer) -> None:
    for name, value in {"suffix": "x", "context": [1], "raw": True, "template": "{{ .Prompt }}"}.items():
        answer = live.http().post("/api/generate", json={"model": "localmem", "prompt": "I climb.", name: value})
        assert (answer.status_code, answer.json()["error"]) == (400, f"{name} is not supported; omit it")
    assert live.log() == []


def test_images_are_passed_on(able: LiveServer) -> None:
    message = {"role": "user", "content": "My boat.", "images": ["/9j/AAAA"]}
    able.http().post("/api/chat", json={"model": "localmem", "messages": [message]})
    image = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/AAAA"}}
    assert able.llm.prompts[-1].messages[-1].fields == {"parts": (image,)}


def test_clients_find_the_models_and_what_they_can_do(able: LiveServer) -> None:
    http = able.http()
    models = http.get("/api/tags").json()["models"] + http.get("/api/ps").json()["models"]
    assert models[0]["name"] == "localmem:latest"
    assert all(len(model["digest"]) == 64 for model in models)
    assert http.get("/api/version").json()["version"]
    assert len(http.get("/api/ps").json()["models"]) == 1
    details = http.post("/api/show", json={"model": "localmem"}).json()
    assert details["capabilities"] == ["completion", "tools", "vision"]
    assert details["model_info"]["localmem.context_length"] == 8192


def test_a_body_needs_no_type_and_errors_have_the_form_of_the_protocol(live: LiveServer) -> None:
    body = json.dumps({**HELLO, "stream": False}).encode()
    assert live.http().post("/api/chat", content=body).status_code == 200
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        headers = {"content-type": kind}
        assert live.http().post("/api/chat", content=body, headers=headers).status_code == 200
        for foreign in (
            {"origin": "https://a.example"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        ):
            assert live.http().post("/api/chat", content=body, headers=headers | foreign).status_code == 403
    assert live.http().post("/api/chat", content=b"model=localmem").status_code == 400
    refused = live.http().post("/api/chat", json={**HELLO, "options": {"num_predict": "a"}})
    assert refused.json()["error"] == 'options.num_predict is "a"; use a whole number'
    refused = live.http().post("/api/chat", json={**HELLO, "model": "gpt"})
    assert refused.status_code == 404
    assert "not served here" in refused.json()["error"]


def test_what_is_null_is_absent(able: LiveServer) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    messages = [*HELLO["messages"], call, {"role": "tool", "content": "5", "images": None}]
    options = {"stop": None, "seed": None}
    body = {"model": "localmem", "messages": messages, "stream": False, "format": None, "options": options}
    assert able.http().post("/api/chat", json=body).json()["done"] is True
    body = {"model": "localmem", "prompt": "Hello", "system": None, "suffix": None, "stream": None}
    assert able.http().post("/api/generate", json=body).headers["content-type"] == "application/x-ndjson"
