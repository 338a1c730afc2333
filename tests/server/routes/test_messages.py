"""Anthropic's protocol: translation in and out, and what is stored."""

import json
from typing import Any

from localmem.types import JsonSchema
from tests.server.conftest import STARTER_PENALTIES, LiveServer

HELLO = {"model": "localmem", "max_tokens": 50, "messages": [{"role": "user", "content": "I play the cello."}]}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
TOOL = {"name": "weather", "description": "w", "input_schema": {"type": "object"}}


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream; the name of each is its type."""
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [event["type"] for event in events]
    return events


def test_a_message_is_answered_and_stored(live: LiveServer) -> None:
    body = {**HELLO, "system": [{"type": "text", "text": "Be brief."}], "stop_sequences": ["END"], "top_k": 3}
    answer = live.http().post("/v1/messages", json=body, params={"beta": "true"}).json()
    assert answer["content"] == [{"type": "text", "text": "You said: I play the cello."}]
    assert (answer["role"], answer["stop_reason"]) == ("assistant", "end_turn")
    assert answer["usage"]["output_tokens"] == 6
    assert live.log() == [["I play the cello.", ">You said: I play the cello."]]
    prompt = live.llm.prompts[-1]
    assert (prompt.max_tokens, prompt.stop[-1], prompt.extra) == (50, "END", {"top_k": 3, **STARTER_PENALTIES})
    assert "Be brief." in prompt.messages[0].content


def test_a_limit_beyond_the_context_is_that_of_half_of_it(live: LiveServer) -> None:
    for limit, expected in ((100, 100), (8000, 4096), (128_000, 4096)):  # of a context of 8192
        live.http().post("/v1/messages", json={**HELLO, "max_tokens": limit}).raise_for_status()
        assert live.llm.prompts[-1].max_tokens == expected


def test_the_stop_sequence_that_came_is_named(live: LiveServer) -> None:
    body = {**HELLO, "stop_sequences": ["the", " cello"]}
    answer = live.http().post("/v1/messages", json=body).json()
    assert answer["content"][0]["text"] == "You said: I play "
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "the")
    *_, end, _ = events_of(live.http().post("/v1/messages", json={**body, "stream": True}).text)
    assert end["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "the"}


def test_a_stream_has_blocks_and_the_usage_at_its_end(live: LiveServer) -> None:
    events = events_of(live.http().post("/v1/messages", json={**HELLO, "stream": True}).text)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert text == "You said: I play the cello."
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    assert events[-2]["usage"]["output_tokens"] == 6


def test_tools_are_used_and_their_results_are_nobodys_words(able: LiveServer) -> None:
    able.llm.calls = (CALL,)
    messages: list[dict[str, object]] = [{"role": "user", "content": [{"type": "text", "text": "The weather?"}]}]
    body = {**HELLO, "messages": messages, "tools": [TOOL], "tool_choice": {"type": "any"}}
    answer = able.http().post("/v1/messages", json=body).json()
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Porto"}}
    assert (answer["content"], answer["stop_reason"]) == ([use], "tool_use")
    function = {"name": "weather", "description": "w", "parameters": {"type": "object"}}
    assert able.llm.prompts[-1].extra["tools"] == [{"type": "function", "function": function}]
    assert able.llm.prompts[-1].extra["tool_choice"] == "required"
    events = events_of(able.http().post("/v1/messages", json={**body, "stream": True}).text)
    parts = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [json.loads(part["partial_json"]) for part in parts] == [{"city": "Porto"}]

    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "I am Zorro."}]}
    messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]
    able.llm.answer = lambda _prompt: "Rain."
    assert able.http().post("/v1/messages", json=body).json()["content"] == [{"type": "text", "text": "Rain."}]
    assert able.llm.prompts[-1].messages[-1].content == "I am Zorro."
    assert able.log() == [["The weather?", ">Rain."]]
    result["content"] = [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Rain."}}]
    refused = able.http().post("/v1/messages", json=body)
    assert (refused.status_code, "'document'" in refused.json()["error"]["message"]) == (400, True)


def test_a_last_message_of_the_assistant_is_continued(able: LiveServer) -> None:
    able.llm.answer = lambda _prompt: " red."
    messages = [{"role": "user", "content": "A rhyme."}, {"role": "assistant", "content": "Roses are"}]
    answer = able.http().post("/v1/messages", json={**HELLO, "messages": messages}).json()
    assert answer["content"][0]["text"] == " red."
    assert able.log() == [["A rhyme.", ">Roses are red."]]


def test_images_are_passed_on(able: LiveServer) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "My boat."}]
    able.http().post("/v1/messages", json={**HELLO, "messages": [{"role": "user", "content": content}]})
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert able.llm.prompts[-1].messages[-1].fields == {"parts": (image,)}
    source["data"] = ""  # as of a file on Anthropic's servers
    body = {**HELLO, "messages": [{"role": "user", "content": content}]}
    assert able.http().post("/v1/messages", json=body).status_code == 400


def test_tokens_are_counted_of_what_the_client_sends(live: LiveServer) -> None:
    body = {"model": "localmem", "system": "Be brief.", "messages": [{"role": "user", "content": "one two three"}]}
    assert live.http().post("/v1/messages/count_tokens", json=body).json() == {"input_tokens": 5}
    unknown = live.http().post("/v1/messages/count_tokens", json={**body, "model": "claude"})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    assert live.log() == []


def test_errors_have_the_form_of_the_protocol_and_a_key_may_come_in_its_header(live_with_keys: LiveServer) -> None:
    http = live_with_keys.http()
    assert http.post("/v1/messages", json=HELLO).json()["error"]["type"] == "authentication_error"
    headers = {"x-api-key": "key-of-ben-1"}
    assert http.post("/v1/messages", json=HELLO, headers=headers).status_code == 200
    unknown = http.post("/v1/messages", json={**HELLO, "model": "gpt"}, headers=headers)
    assert unknown.json()["type"] == "error"
    assert unknown.json()["error"]["type"] == "not_found_error"
    for change, words in (
        ({"thinking": {"type": "enabled"}}, "thinking"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "document"),
        ({"max_tokens": 0}, "max_tokens"),
    ):
        refused = http.post("/v1/messages", json={**HELLO, **change}, headers=headers)
        assert refused.status_code == 400
        assert words in refused.json()["error"]["message"]
    assert [len(log) for log in live_with_keys.log("ben")] == [2]


def test_an_output_format_is_kept_to(live: LiveServer) -> None:
    live.llm.answer, schema = lambda _prompt: "{}", {"type": "object"}
    config = {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert live.http().post("/v1/messages", json={**HELLO, "output_config": config}).status_code == 200
    assert live.llm.prompts[-1].format == JsonSchema(schema, may_be_cut=True)
    refused = live.http().post("/v1/messages", json={**HELLO, "output_config": {"format": {"type": "xml"}}})
    assert refused.json()["error"]["message"].startswith('output_config.type is "xml"; use ')
