"""Calls of tools that a backbone streams reach clients of every protocol piece by piece, and are whole in the end."""

import json
from typing import Any

import pytest

from localmem.llm.remote.openai_wire import join_tool_calls
from tests.server.conftest import LiveServer

PIECES = (
    {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"ci'}},
    {"index": 0, "function": {"arguments": 'ty": "Porto"}'}},
    {"index": 1, "id": "c2", "type": "function", "function": {"name": "tides", "arguments": "{}"}},
)
CALLS = [("c1", "weather", {"city": "Porto"}), ("c2", "tides", {})]
NAMES = ("weather", "tides")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.fixture(autouse=True)
def calls(able: LiveServer) -> None:
    able.llm.calls, able.llm.call_pieces = join_tool_calls(PIECES), PIECES


def read_events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_chat_completions(able: LiveServer) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    messages: list[Any] = [{"role": "user", "content": "How is the sea?"}]
    stream = able.openai().chat.completions.create(model="localmem", messages=messages, tools=tools, stream=True)
    chunks = [chunk.choices[0] for chunk in stream]
    pieces = [call.model_dump(exclude_none=True) for choice in chunks for call in choice.delta.tool_calls or ()]
    assert pieces == list(PIECES)
    assert chunks[-1].finish_reason == "tool_calls"
    assert able.log() == [["How is the sea?"]]


def test_responses(able: LiveServer) -> None:
    tools: list[Any] = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]
    with able.openai().responses.stream(model="localmem", input="How is the sea?", tools=tools) as stream:
        events = list(stream)
        output = stream.get_final_response().output
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert deltas == ['{"ci', 'ty": "Porto"}', "{}"]
    calls = [(item.call_id, item.name, json.loads(item.arguments)) for item in output if item.type == "function_call"]
    assert calls == CALLS
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.model_dump()["id"] for item in items] == [item.model_dump()["id"] for item in output]


def test_messages(able: LiveServer) -> None:
    tools = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
    messages = [{"role": "user", "content": "How is the sea?"}]
    body = {"model": "localmem", "max_tokens": 50, "messages": messages, "tools": tools, "stream": True}
    events = read_events(able.http().post("/v1/messages", json=body).text)
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    arguments = ["", ""]
    for event in events:
        if event["type"] == "content_block_delta":
            arguments[event["index"]] += event["delta"]["partial_json"]
    assert [(block["id"], block["name"]) for block in blocks] == [("c1", "weather"), ("c2", "tides")]
    assert [json.loads(text) for text in arguments] == [{"city": "Porto"}, {}]
    assert [event["index"] for event in events if event["type"] == "content_block_stop"] == [0, 1]
    assert [event["delta"]["stop_reason"] for event in events if event["type"] == "message_delta"] == ["tool_use"]


def test_ollama_gets_each_call_as_soon_as_it_is_whole(able: LiveServer) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    body = {"model": "localmem", "messages": [{"role": "user", "content": "How is the sea?"}], "tools": tools}
    lines = [json.loads(line) for line in able.http().post("/api/chat", json=body).text.splitlines()]
    calls = [line["message"]["tool_calls"] for line in lines if line["message"].get("tool_calls")]
    read = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for (call,) in calls]
    assert read == CALLS
    assert lines[-1]["done"] is True
