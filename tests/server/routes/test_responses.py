"""OpenAI's Responses: translation in and out, dialogues by id, and what is stored."""

from typing import Any

import openai
import pytest

from localmem.store import Store
from tests.server.conftest import LiveServer

MODEL = "localmem"
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
NULLS = dict.fromkeys(("stream", "tools", "metadata"))
TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": None}


def test_a_response_is_continued_by_its_id(live: LiveServer) -> None:
    client = live.openai()
    first = client.responses.create(model=MODEL, input="My fish is Bubbles.", instructions="Be kind.")
    assert (first.status, first.output_text) == ("completed", "You said: My fish is Bubbles.")
    assert first.usage is not None
    assert first.usage.output_tokens == 6
    assert "Be kind." in live.llm.prompts[-1].messages[0].content
    client.responses.create(model=MODEL, input="And a cat.", previous_response_id=first.id, extra_body=NULLS)
    (log,) = live.log()
    assert log[::2] == ["My fish is Bubbles.", "And a cat."]
    with pytest.raises(openai.NotFoundError, match="send the whole dialogue"):
        client.responses.create(model=MODEL, input="Well?", previous_response_id="resp_unknown")
    live.http().delete("/v1/memories?confirm=all")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=MODEL, input="Well?", previous_response_id=first.id)


def test_what_another_process_erased_is_in_no_response_that_is_continued(live: LiveServer) -> None:
    client = live.openai()
    first = client.responses.create(model=MODEL, input="My PIN is 4711.")
    with Store.open(live.runtime.settings.data) as other:
        other.delete_session("me", other.sessions("me")[0].id)
    with pytest.raises(openai.NotFoundError, match="send the whole dialogue"):
        client.responses.create(model=MODEL, input="Well?", previous_response_id=first.id)
    second = client.responses.create(model=MODEL, input="I keep bees.")
    client.responses.create(model=MODEL, input="And?", previous_response_id=second.id)
    assert "4711" not in str(live.llm.prompts[-1])


def test_no_user_continues_the_response_of_another(live_with_keys: LiveServer) -> None:
    first = live_with_keys.openai("key-of-ann-1").responses.create(model=MODEL, input="A secret.")
    with pytest.raises(openai.NotFoundError):
        live_with_keys.openai("key-of-ben-1").responses.create(
            model=MODEL, input="What?", previous_response_id=first.id
        )


def test_a_stream_is_read_by_the_official_client(live: LiveServer) -> None:
    with live.openai().responses.stream(model=MODEL, input="one two", max_output_tokens=3) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "You said: one"
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == "You said: one"
    message = events[-1].response.output[0]
    assert message.type == "message"
    assert message.status == "incomplete"
    assert live.log() == [["one two", ">You said: one"]]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_their_results_are_nobodys_words(able: LiveServer, stream: bool) -> None:
    able.llm.calls, client = (CALL,), able.openai()
    items: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "The weather?"}]}]
    if stream:
        with client.responses.stream(model=MODEL, input=items, tools=[TOOL], tool_choice="required") as events:
            kinds = [event.type for event in events]
            response = events.get_final_response()
        assert "response.function_call_arguments.done" in kinds
    else:
        response = client.responses.create(model=MODEL, input=items, tools=[TOOL], tool_choice="required")  # type: ignore[assignment]
    (call,) = response.output
    assert call.type == "function_call"
    assert (call.call_id, call.name, call.arguments) == ("c1", "weather", '{"city": "Porto"}')
    assert able.llm.prompts[-1].extra["tool_choice"] == "required"
    able.llm.answer = lambda _prompt: "Rain."
    items += [call.model_dump(exclude_none=True)]
    items += [{"type": "function_call_output", "call_id": "c1", "output": "I am Zorro."}]
    assert client.responses.create(model=MODEL, input=items).output_text == "Rain."
    assert [message.role for message in able.llm.prompts[-1].messages][-2:] == ["assistant", "tool"]
    assert able.log() == [["The weather?", ">Rain."]]


def test_words_before_calls_of_tools_are_of_the_same_message(able: LiveServer) -> None:
    able.llm.answer = lambda _prompt: "Rain."
    words = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]}
    calls = [{"type": "function_call", "call_id": name, "name": "weather", "arguments": "{}"} for name in ("c1", "c2")]
    results = [{"type": "function_call_output", "call_id": name, "output": "wet"} for name in ("c1", "c2")]
    items: list[Any] = [{"role": "user", "content": "The weather?"}, words, *calls, *results]
    able.http().post("/v1/responses", json={"model": MODEL, "input": items}).raise_for_status()
    sent = able.llm.prompts[-1].messages[-3:]
    assert [message.content for message in sent] == ["Let me look.", "wet", "wet"]
    items += [{"role": "assistant", "content": "Rain."}, {"role": "user", "content": "Oh."}]
    able.http().post("/v1/responses", json={"model": MODEL, "input": items}).raise_for_status()
    assert able.log() == [["The weather?", ">Rain.", "Oh.", ">Rain."]]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content"),
    ],
)
def test_what_only_openai_can_do_is_refused_by_name(live: LiveServer, change: dict[str, object], param: str) -> None:
    answer = live.http().post("/v1/responses", json={"model": MODEL, "input": "Hello", **change})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert "True" not in answer.json()["error"]["message"]
    assert "False" not in answer.json()["error"]["message"]
    assert live.log() == []
