"""Tools, images, several choices and prefill pass through; only people's words and whole replies are stored."""

import json

import pytest
from openai.types.chat import ChatCompletionMessageParam

from localmem.types import Message, Prompt
from tests.server.conftest import STARTER_PENALTIES, LiveServer

MODEL = "localmem"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALLS = (
    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}},
    {"id": "c2", "type": "function", "function": {"name": "tides", "arguments": "{}"}},
)
RESULTS: list[dict[str, object]] = [
    {"role": "tool", "tool_call_id": "c1", "content": "My name is Zorro."},
    {"role": "tool", "tool_call_id": "c2", "content": "high"},
]
IMAGE_URL = "data:image/png;base64,AA=="
IMAGE = {"type": "image_url", "image_url": {"url": IMAGE_URL}}
TEXT_AND_IMAGE = [{"type": "text", "text": "A map."}, IMAGE]
ANTHROPIC_USE = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
ANTHROPIC_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
ANTHROPIC_RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [TEXT_AND_IMAGE[0], ANTHROPIC_IMAGE]}
INPUT_PARTS = [
    {"type": "input_text", "text": "A map."},
    {"type": "input_image", "image_url": IMAGE_URL},
]


def after_tools(prompt: Prompt) -> str:
    return "It is sunny." if prompt.messages[-1].role == "tool" else "You are welcome."


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_only_words_are_stored(able: LiveServer, stream: bool) -> None:
    able.llm.calls, able.llm.answer = CALLS, after_tools
    http = able.http()
    messages: list[dict[str, object]] = [{"role": "user", "content": "How is the weather?"}]
    body = {"model": MODEL, "messages": messages, "tools": [WEATHER], "tool_choice": "auto", "stream": stream}
    answer = http.post("/v1/chat/completions", json=body)
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        assert [call.pop("index") for call in calls] == [0, 1]
        assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        (choice,) = answer.json()["choices"]
        calls = choice["message"]["tool_calls"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert calls == list(CALLS)
    assert able.llm.prompts[-1].extra == {"tools": [WEATHER], "tool_choice": "auto", **STARTER_PENALTIES}
    assert able.log() == [["How is the weather?"]]

    messages += [{"role": "assistant", "content": None, "tool_calls": calls}, *RESULTS]
    reply = http.post("/v1/chat/completions", json={**body, "stream": False}).json()["choices"][0]["message"]
    assert reply["content"] == "It is sunny."
    assert able.log() == [["How is the weather?", ">It is sunny."]]

    able.llm.calls = ()
    messages += [reply, {"role": "user", "content": "Thanks."}]
    http.post("/v1/chat/completions", json={**body, "stream": False})
    assert able.log() == [["How is the weather?", ">It is sunny.", "Thanks.", ">You are welcome."]]
    sent = able.llm.prompts[-1].messages
    assert [message.role for message in sent] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert sent[2] == Message("assistant", "", {"tool_calls": list(CALLS)})
    assert sent[3] == Message("tool", "My name is Zorro.", {"tool_call_id": "c1"})


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat"])
@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_in_a_call_is_replaced(able: LiveServer, path: str, stream: bool) -> None:
    able.llm.calls = ({**CALLS[0], "function": {"name": "weather", "arguments": '{"city": "a\\ud800"}'}},)
    tool = {"name": "weather", "input_schema": {}} if path == "/v1/messages" else WEATHER
    body = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "Weather?"}], "tools": [tool]}
    answer = able.http().post(path, json={**body, "stream": stream})
    assert answer.status_code == 200
    assert "a\ufffd" in answer.text or "a\\\\ud800" in answer.text  # Anthropic streams the model's own JSON


def test_memory_comes_before_the_calls_of_tools(able: LiveServer) -> None:
    http = able.http()
    http.post("/v1/memories", json={"text": "I live in Porto."})
    messages = [
        {"role": "user", "content": "How is the weather where I live?"},
        {"role": "assistant", "tool_calls": list(CALLS)},
        *RESULTS,
    ]
    body = {"model": MODEL, "messages": messages, "tools": [WEATHER]}
    recalled = http.post("/v1/chat/completions", json=body).json()["localmem"]["memory"]
    sent = able.llm.prompts[-1].messages
    assert "I live in Porto" in recalled
    place = next(index for index, message in enumerate(sent) if "I live in Porto" in message.content)
    assert place < [message.role for message in sent].index("tool") - 1
    assert able.log() == [["How is the weather where I live?", ">You said: high"]]


def test_the_results_of_tools_are_searched_and_stored_nowhere_when_memory_only_reads(able: LiveServer) -> None:
    messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "tool_calls": list(CALLS)}, *RESULTS]
    for mode in ("read", "off"):
        body = {"model": MODEL, "messages": messages, "tools": [WEATHER]}
        answer = able.http().post("/v1/chat/completions", json=body, headers={"x-localmem": mode})
        assert answer.json()["choices"][0]["message"]["content"] == "You said: high"
        assert [message.role for message in able.llm.prompts[-1].messages][-3:] == ["assistant", "tool", "tool"]
    assert able.log() == []


def test_a_history_may_begin_with_the_calls_of_tools(able: LiveServer) -> None:
    """A client that sends its last messages only: the log, if it has the question, puts it before them."""
    able.llm.calls, able.llm.answer = CALLS, after_tools
    question = {"role": "user", "content": "How is the weather?"}
    window: list[dict[str, object]] = [{"role": "assistant", "tool_calls": list(CALLS)}, *RESULTS]
    turns: list[dict[str, object]] = [{"role": "assistant", "content": "It is sunny."}]
    turns += [{"role": "user", "content": "And then?"}]
    for question_sent, roles in ((False, []), (True, ["user"])):
        able.http().delete("/v1/memories?confirm=all")
        if question_sent:
            able.http().post("/v1/chat/completions", json={"model": MODEL, "messages": [question, *window]})
        able.llm.calls = ()
        body = {"model": MODEL, "messages": [*window, *turns], "tools": [WEATHER]}
        able.http().post("/v1/chat/completions", json=body).raise_for_status()
        sent = able.llm.prompts[-1].messages
        expected = ["system", *roles, "assistant", "tool", "tool", "assistant", "user"]
        assert [message.role for message in sent] == expected
        logged = [["How is the weather?", ">It is sunny.", "And then?", ">You are welcome."]]
        assert able.log() == (logged if question_sent else [logged[0][1:]])
    refusal = able.http().post("/v1/chat/completions", json={"model": MODEL, "messages": window})
    assert (refusal.status_code, "after such a one" in refusal.text) == (400, True)


def test_a_refusal_that_a_client_resends_is_the_text_of_a_reply(live: LiveServer) -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I would rather not."}]}
    messages = [{"role": "user", "content": "Sing."}, refusal, {"role": "user", "content": "Hum."}]
    live.http().post("/v1/chat/completions", json={"model": MODEL, "messages": messages}).raise_for_status()
    assert live.log() == [["Sing.", ">I would rather not.", "Hum.", ">You said: Hum."]]


def test_images_go_to_the_backbone_and_their_words_to_memory(able: LiveServer) -> None:
    for content in ([{"type": "text", "text": "My boat."}, IMAGE], [IMAGE]):
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}]}
        assert able.http().post("/v1/chat/completions", json=body).status_code == 200
        assert able.llm.prompts[-1].messages[-1].fields == {"parts": (IMAGE,)}
    assert [log[0] for log in able.log()] == ["My boat.", "[image]"]


@pytest.mark.parametrize(
    ("path", "field", "following"),
    [
        (
            "/v1/chat/completions",
            "messages",
            [
                {"role": "assistant", "tool_calls": [CALLS[0]]},
                {"role": "tool", "tool_call_id": "c1", "content": TEXT_AND_IMAGE},
            ],
        ),
        (
            "/v1/responses",
            "input",
            [
                {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": INPUT_PARTS},
            ],
        ),
        (
            "/v1/messages",
            "messages",
            [{"role": "assistant", "content": [ANTHROPIC_USE]}, {"role": "user", "content": [ANTHROPIC_RESULT]}],
        ),
        (
            "/api/chat",
            "messages",
            [
                {"role": "assistant", "tool_calls": [CALLS[0]]},
                {"role": "tool", "content": "A map.", "images": ["AA=="]},
            ],
        ),
    ],
)
def test_the_images_of_results_go_to_the_backbone(
    able: LiveServer, path: str, field: str, following: list[dict[str, object]]
) -> None:
    body = {"model": MODEL, "max_tokens": 50, field: [{"role": "user", "content": "Where is it?"}, *following]}
    able.http().post(path, json=body).raise_for_status()
    assert able.llm.prompts[-1].messages[-1] == Message("tool", "A map.", {"tool_call_id": "c1", "parts": (IMAGE,)})
    assert able.log() == [["Where is it?", ">You said: A map."]]


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_are_returned_and_the_first_is_stored(able: LiveServer, stream: bool) -> None:
    replies = iter(["one", "two", "three"])
    able.llm.answer = lambda _prompt: next(replies)
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Count."}]
    client = able.openai()
    if stream:
        texts = {0: "", 1: "", 2: ""}
        for chunk in client.chat.completions.create(model=MODEL, messages=messages, n=3, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        reply = client.chat.completions.create(model=MODEL, messages=messages, n=3, seed=7)
        texts = {choice.index: choice.message.content or "" for choice in reply.choices}
        assert [prompt.seed for prompt in able.llm.prompts] == [7, 8, 9]
    assert texts == {0: "one", 1: "two", 2: "three"}
    assert able.log() == [["Count.", ">one"]]


def test_a_prefilled_reply_is_continued_and_stored_whole(able: LiveServer) -> None:
    able.llm.answer = lambda _prompt: " red."
    messages = [{"role": "user", "content": "A rhyme."}, {"role": "assistant", "content": "Roses are"}]
    answer = able.http().post("/v1/chat/completions", json={"model": MODEL, "messages": messages}).json()
    assert answer["choices"][0]["message"]["content"] == " red."
    assert able.llm.prompts[-1].prefill == "Roses are"
    assert able.llm.prompts[-1].messages[-1].content.endswith("A rhyme.")
    assert able.log() == [["A rhyme.", ">Roses are red."]]


def test_a_text_completion_is_a_message_of_the_user(live: LiveServer) -> None:
    client = live.openai()
    reply = client.completions.create(model=MODEL, prompt="I have a boat.")
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("You said: I have a boat.", "stop")
    pieces = client.completions.create(model=MODEL, prompt="And a car.", stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == "You said: And a car."
    assert [log[0] for log in live.log()] == ["I have a boat.", "And a car."]
    refused = live.http().post("/v1/completions", json={"model": MODEL, "prompt": "x", "suffix": "y"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "suffix")
