"""The contract of an LLM, tested with the scripted one, transformers and a real vLLM server."""

import json
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import jsonschema
import pytest

from localmem.errors import BadInput, BadReply, LocalmemError, PartialFailure, PromptTooLong
from localmem.llm.base import LLM
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.transformers import TransformersLLM
from localmem.llm.vllm.vllm_server import VllmServer
from localmem.types import Choice, Completion, Message, Prompt
from tests.llm.conftest import CONTEXT
from tests.llm.prompts import ask, collect

OPTION_SETS = (
    ("yes", "no"),
    ("PASS", "APPEND", "REPLACE", "DELETE"),
    ("A", "AB", "B"),
    ("the cat", "the dog", "the cathedral"),
    ("기쁨", "슬픔", "기대"),
)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mood": {"enum": ["glad", "sad", "neither"]},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
}
NESTED = {
    "type": "array",
    "items": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 1, "maxItems": 3},
    "minItems": 2,
    "maxItems": 3,
}
FACTS = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "items": {"type": "string", "maxLength": 16}, "maxItems": 2},
        "sure": {"type": "boolean"},
        "of": {"type": "object", "properties": {"who": {"const": "user"}}, "required": ["who"]},
    },
    "required": ["facts", "sure", "of"],
}
CODE = {"type": "string", "pattern": "^[a-f]{3}-[0-9]{2}$"}
SCHEMAS = (PERSON, NESTED, FACTS, CODE)

NAMES = ("scripted", "transformers", "vllm")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`llm` is each of the three in turn, `model` each of the two that have weights."""
    for fixture, names in (("llm", NAMES), ("model", NAMES[1:])):
        if fixture in metafunc.fixturenames:
            params = [pytest.param(name, marks=_marks(name)) for name in names]
            metafunc.parametrize(fixture, params, indirect=True)


def _marks(name: str) -> list[pytest.MarkDecorator]:
    # One group is one worker under xdist, so there is one server.
    return [pytest.mark.vllm, pytest.mark.xdist_group("vllm")] if name == "vllm" else []


@pytest.fixture
def llm(request: pytest.FixtureRequest) -> LLM:
    fixture: LLM = request.getfixturevalue(f"{request.param}_llm")
    return fixture


@pytest.fixture
def model(request: pytest.FixtureRequest) -> TransformersLLM | RemoteLLM:
    fixture: TransformersLLM | RemoteLLM = request.getfixturevalue(f"{request.param}_llm")
    return fixture


def test_name_and_context_length(llm: LLM) -> None:
    assert llm.name in ("scripted", "starter")
    assert llm.context_length == CONTEXT
    assert llm.generate([]) == []


def test_answers_have_the_order_of_their_prompts(llm: LLM) -> None:
    prompts = [ask(f"Say {n}", schema={"const": f"item {n}"}, max_tokens=24) for n in range(12)]
    assert [json.loads(completion.text) for completion in llm.generate(prompts)] == [f"item {n}" for n in range(12)]


def test_threads_get_their_own_answers(llm: LLM) -> None:
    def ask_one(number: int) -> str:
        completion = llm.generate([ask(f"Say {number}", schema={"const": f"item {number}"}, max_tokens=24)])
        return str(json.loads(completion[0].text))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask_one, range(16))) == [f"item {number}" for number in range(16)]


def test_choices_are_never_left(model: LLM) -> None:
    prompts = [
        ask("Write a long poem, please!", choice=OPTION_SETS[n % 5], temperature=2.0, seed=n, max_tokens=1)
        for n in range(100)
    ]
    for prompt, completion in zip(prompts, model.generate(prompts), strict=True):
        assert isinstance(prompt.format, Choice)
        assert completion.text in prompt.format.options
        assert completion.finish == "stop"
        assert completion.choices is not None
        assert set(completion.choices) == set(prompt.format.options)
        assert sum(map(math.exp, completion.choices.values())) == pytest.approx(1)


@pytest.mark.slow
def test_schemas_are_never_left(model: LLM) -> None:
    prompts = [
        ask("Write a long poem, please!", schema=SCHEMAS[n % 4], temperature=2.0, seed=n, max_tokens=120)
        for n in range(100)
    ]
    for prompt, completion in zip(prompts, model.generate(prompts), strict=True):
        jsonschema.validate(json.loads(completion.text), prompt.format.schema)  # type: ignore[union-attr]
        assert completion.finish == "stop"


def test_the_likeliest_choice_is_the_greedy_one(llm: LLM) -> None:
    prompts = [
        ask(text, choice=("yes", "no", "maybe"))
        for text in ("Is the sea wet?", "Can stones swim?", "Will it rain?", "Do you like tea?")
    ]
    for completion in llm.generate(prompts):
        assert completion.choices is not None
        assert completion.text == max(completion.choices, key=lambda option: completion.choices[option])  # type: ignore[index]


def test_an_answer_ends_before_its_stop_string(llm: LLM) -> None:
    complete = llm.generate([ask(max_tokens=40)])[0].text
    for stop in (" ", ",", "and"):
        assert stop in complete
        cut = llm.generate([ask(max_tokens=40, stop=["never said", stop])])[0]
        assert cut.text == complete.partition(stop)[0]
        assert cut.finish == "stop"


@pytest.mark.parametrize(
    "prompt",
    [
        ask(max_tokens=24),
        ask(max_tokens=24, temperature=0.9, seed=5),
        ask("Write some emoji and some Korean.", max_tokens=24, temperature=1.2, seed=7),
        ask(max_tokens=40, stop=["and the", ","]),
        ask("Sure?", choice=["yes", "no", "nothing"]),
        ask("Say it.", schema={"const": {"it": [1, "two"]}}, max_tokens=40),
    ],
    ids=["greedy", "drawn", "characters", "stop", "choice", "schema"],
)
def test_a_stream_equals_generate(llm: LLM, prompt: Prompt) -> None:
    pieces, streamed = collect(llm.stream(prompt))
    complete = llm.generate([prompt])[0]
    assert "".join(pieces) == streamed.text == complete.text
    assert streamed.finish == complete.finish
    assert streamed.usage.output == complete.usage.output


def test_a_stream_comes_in_pieces(llm: LLM) -> None:
    pieces, completion = collect(llm.stream(ask(max_tokens=20)))
    assert len(pieces) > 5
    assert completion.finish == "length"
    assert completion.usage.output == 20
    assert completion.usage.input > 0


def test_an_open_ended_answer_may_be_longer_than_what_is_reserved(llm: LLM) -> None:
    sentence = ask(max_tokens=4, stop=["."])
    limited, complete = llm.generate([sentence, replace(sentence, open_ended=True)])
    assert (limited.usage.output, limited.finish) == (4, "length")
    assert complete.usage.output > 4


def test_a_long_prompt_is_trimmed_and_logged(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    old = tuple(Message("user" if n % 2 == 0 else "assistant", "word " * 100) for n in range(30))
    prompt = Prompt("test/long", (Message("system", "Be brief."), *old, Message("user", "And now?")), max_tokens=8)
    with caplog.at_level(logging.WARNING, "localmem"):
        completion = llm.generate([prompt])[0]
    assert completion.trimmed > 1000
    assert completion.usage.input + 8 <= CONTEXT
    assert completion.usage.input > CONTEXT - 8 - 250  # not more was cut than had to be
    assert "test/long" in caplog.text


def test_a_prompt_that_cannot_fit_raises(llm: LLM) -> None:
    for attempt in (lambda prompt: llm.generate([prompt]), llm.check):
        with pytest.raises(PromptTooLong, match="lower max_tokens"):
            attempt(ask("word " * 200, max_tokens=CONTEXT))
    llm.check(ask("word " * 200, max_tokens=8))


def test_a_bad_item_does_not_fail_its_neighbours(model: LLM) -> None:
    good = ask("Say it.", schema={"const": "it"}, max_tokens=20)
    unsatisfiable = ask(schema={"type": "integer", "minimum": 5, "maximum": 1})
    too_long = ask("word " * 200, max_tokens=CONTEXT)
    one_option = ask(choice=["only"])
    with pytest.raises(PartialFailure) as caught:
        model.generate([good, unsatisfiable, good, too_long, one_option, good])
    kinds = [type(result) for result in caught.value.results]
    assert kinds[0] is kinds[2] is kinds[5] is Completion
    assert kinds[3:5] == [PromptTooLong, BadInput]
    assert isinstance(caught.value.results[1], LocalmemError)
    with pytest.raises(LocalmemError, match="test/ask"):
        model.generate([unsatisfiable])


def test_json_cut_by_its_limit_is_a_bad_reply(model: LLM) -> None:
    prompt = ask("Say it.", schema=FACTS, max_tokens=3)
    with pytest.raises(BadReply, match="max_tokens"):
        model.generate([prompt])
    with pytest.raises(BadReply, match="max_tokens"):
        collect(model.stream(prompt))


def test_a_seed_repeats_its_answer(llm: LLM) -> None:
    prompts = [ask(temperature=1.0, seed=seed, max_tokens=12) for seed in (1, 2, 3)]
    first = [completion.text for completion in llm.generate(prompts)]
    assert [llm.generate([prompt])[0].text for prompt in prompts] == first
    assert len(set(first)) == 3


def test_without_a_seed_answers_differ(model: LLM) -> None:
    prompts = [ask(temperature=1.0, seed=None, max_tokens=12)] * 3
    assert len({completion.text for completion in model.generate(prompts)}) > 1


def test_sampling_fields_are_followed(model: LLM) -> None:
    greedy = model.generate([ask()])[0].text
    drawn = [ask(temperature=2.0, seed=3, extra={"top_k": 1}), ask(temperature=2.0, seed=3, extra={"top_p": 0.00001})]
    assert [completion.text for completion in model.generate(drawn)] == [greedy, greedy]
    assert model.generate([ask(extra={"repetition_penalty": 1.8}, max_tokens=40)])[0].text != greedy


def test_tokens_are_counted(llm: LLM) -> None:
    assert llm.count_tokens([]) == []
    short, long, none = llm.count_tokens(["one two", "one two three four five six", ""])
    assert 0 == none < short < long


def test_giving_up_a_stream_in_process_frees_its_work(transformers_llm: TransformersLLM) -> None:
    stream = transformers_llm.stream(ask(max_tokens=600))
    next(stream)
    assert transformers_llm.active == 1
    stream.close()
    assert transformers_llm.active == 0


@pytest.mark.vllm
@pytest.mark.xdist_group("vllm")
def test_giving_up_a_stream_of_the_server_frees_its_work(vllm_llm: RemoteLLM, vllm_server: VllmServer) -> None:
    stream = vllm_llm.stream(ask(max_tokens=900, extra={"ignore_eos": True}))
    next(stream)
    assert _running(vllm_server) == 1
    stream.close()
    deadline = time.monotonic() + 10
    while _running(vllm_server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _running(vllm_server) == 0


@pytest.mark.vllm
@pytest.mark.xdist_group("vllm")
def test_long_prompts_with_seeds_do_not_end_the_server(vllm_llm: RemoteLLM, vllm_server: VllmServer) -> None:
    """A CPU build that read a part of one dies of it, and restarts; these do not fit into one step together."""
    prompts = [ask(f"{number} " + "and so on " * 220, temperature=0.8, seed=number) for number in range(4)]
    assert len(vllm_llm.generate(prompts)) == 4
    assert vllm_server.starts == 1


def _running(server: VllmServer) -> float:
    lines = httpx.get(f"{server.url}/metrics", trust_env=False).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("vllm:num_requests_running"))


@pytest.mark.vllm
@pytest.mark.xdist_group("vllm")
def test_both_backends_give_the_same_choice_probabilities(
    transformers_llm: TransformersLLM, vllm_llm: RemoteLLM
) -> None:
    prompts = [
        ask(text, choice=options)
        for text in ("Is the sea wet?", "What follows?", "Which of them?")
        for options in OPTION_SETS[:4]
    ]
    for mine, theirs in zip(transformers_llm.generate(prompts), vllm_llm.generate(prompts), strict=True):
        assert mine.choices is not None
        assert theirs.choices is not None
        assert {option: math.exp(weight) for option, weight in mine.choices.items()} == pytest.approx(
            {option: math.exp(weight) for option, weight in theirs.choices.items()}, abs=0.01
        )


def test_an_adapter_answers_only_its_prompts(model: TransformersLLM | RemoteLLM, random_adapter: Path) -> None:
    plain, routed, other = ask(name="other/task"), ask(name="lora/task"), ask(name="loranot/task")
    base = model.generate([plain])[0].text
    assert [completion.text for completion in model.generate([plain, routed, other])] == [base] * 3
    model.load_adapter("lora", random_adapter)
    before = model.generate([plain, routed, other])
    assert [before[0].text, before[2].text] == [base, base]
    assert before[1].text != base
    assert model.generate([routed])[0].text == before[1].text
    model.load_adapter("lora", random_adapter)
    assert model.generate([routed])[0].text == before[1].text
    with pytest.raises(LocalmemError, match="nowhere"):
        model.load_adapter("lora", random_adapter / "nowhere")
