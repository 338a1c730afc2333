"""What calls of tools cost, however tokens are counted, and prompts that a chat template refuses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localmem.errors import LLMUnavailable
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.remote.token_counts import DiskCounter, EstimatingCounter, ServerCounter
from localmem.llm.tokenizer import ChatTokenizer
from localmem.types import Message
from tests.llm.prompts import ask
from tests.llm.remote.conftest import Peer, refusal
from tests.llm.remote.engines import MODEL, WIRES

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
RESULT = Message("tool", "20 degrees", {"tool_call_id": "c1"})
CALLS = (Message("user", "Porto?"), Message("assistant", "", {"tool_calls": [CALL]}), RESULT)
PLAIN = tuple(replace(message, fields={}) for message in CALLS)
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather in a city. " * 20}}]
# As the template of Mistral 7B v0.3 does
REFUSING = """{%- for message in messages %}
{%- if message.tool_calls and message.tool_calls[0].id|length != 9 %}{{ raise_exception("nine letters") }}{% endif %}
{%- if (message.role == "user") != (loop.index0 % 2 == 0) %}{{ raise_exception("must alternate") }}{% endif %}
{{- message.content }}{% endfor %}"""
CONCATENATING = """{% for message in messages %}{{ message.content }}{% for call in message.tool_calls %}
{{- call.function.name + call.function.arguments }}{% endfor %}{% endfor %}"""


@pytest.fixture
def tokenizer(starter_llm_dir: Path) -> ChatTokenizer:
    tokenizer = ChatTokenizer(starter_llm_dir)
    tokenizer.tokenizer.chat_template = Path(__file__).with_name("tools.jinja").read_text()
    return tokenizer


def test_the_tokenizer_on_disk_counts_calls_results_and_tools(tokenizer: ChatTokenizer) -> None:
    counter = DiskCounter(tokenizer, is_confirmed=True)
    plain, calls = counter.count_messages(PLAIN, {}), counter.count_messages(CALLS, {})
    assert calls > plain + 10
    assert counter.count_messages(CALLS, {}, TOOLS) > calls + 100
    assert '"arguments": {"city": "Porto"}' in tokenizer.tokenizer.decode(tokenizer.encode(CALLS, {}))


@pytest.mark.parametrize("template", [REFUSING, CONCATENATING])
def test_a_prompt_that_the_template_refuses_is_estimated(tokenizer: ChatTokenizer, template: str) -> None:
    tokenizer.tokenizer.chat_template = template
    counter = DiskCounter(tokenizer, is_confirmed=True)
    assert 30 < counter.count_messages(CALLS, {}) < 120
    assert counter.count_messages(CALLS, {}, TOOLS) > 130


def test_an_estimate_counts_calls_and_tools_by_their_bytes() -> None:
    counter = EstimatingCounter()
    calls = counter.count_messages(CALLS, {})
    assert calls > counter.count_messages(PLAIN, {}) + 30
    assert counter.count_messages(CALLS, {}, TOOLS) > calls + 150


@pytest.fixture
def remote(peer: Peer) -> Iterator[RemoteLLM]:
    remote = RemoteLLM(peer.url, name=MODEL)
    yield remote
    remote.close()


@pytest.mark.parametrize(("engine", "path"), [("vLLM", "/tokenize"), ("llama.cpp", "/apply-template")])
def test_the_server_is_asked_to_count_calls_and_tools(peer: Peer, remote: RemoteLLM, engine: str, path: str) -> None:
    peer.reply = WIRES[engine]
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages = (Message("user", "word " * 2000, {"parts": [image]}), *CALLS[1:])
    (endpoint,) = remote.endpoints
    endpoint.counter.count_messages(messages, {"enable_thinking": False}, TOOLS)
    (body,) = peer.bodies(path)
    assert (body["tools"], body["chat_template_kwargs"]) == (TOOLS, {"enable_thinking": False})
    assert body["messages"] == [
        {"role": "user", "content": "word " * 2000},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "20 degrees", "tool_call_id": "c1"},
    ]


def test_many_tools_are_counted_before_they_are_sent(peer: Peer, remote: RemoteLLM) -> None:
    peer.reply = WIRES["vLLM"]
    remote.generate([ask(extra={"tools": TOOLS})])
    assert not peer.bodies("/tokenize")
    remote.generate([ask(extra={"tools": TOOLS * 9})])
    assert peer.bodies("/tokenize")


def test_a_prompt_that_the_servers_template_refuses_is_estimated(peer: Peer, remote: RemoteLLM) -> None:
    wire = WIRES["vLLM"]
    peer.reply = lambda path, body: (400, refusal("nine letters")) if path == "/tokenize" else wire(path, body)
    (endpoint,) = remote.endpoints
    assert isinstance(endpoint.counter, ServerCounter)
    assert endpoint.counter.count_messages(CALLS, {}, TOOLS) == EstimatingCounter().count_messages(CALLS, {}, TOOLS)
    peer.reply = lambda path, body: None
    with pytest.raises(LLMUnavailable):
        endpoint.counter.count_messages(CALLS, {}, TOOLS)
