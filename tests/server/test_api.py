"""Models, embeddings and errors, as the official client meets them."""

import base64
import json

import numpy as np
import openai
import pytest

from localmem.errors import Conflict, LLMUnavailable, LocalmemError
from localmem.types import Prompt
from tests.server.conftest import LiveServer

MODEL, ENCODER = "smollm2-135m-instruct", "minilm-l6-v2"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}


def test_models_are_listed_and_looked_up(live: LiveServer) -> None:
    client = live.openai()
    assert [model.id for model in client.models.list()] == [MODEL, "localmem", ENCODER]
    assert client.models.retrieve(MODEL).owned_by == "localmem"
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.models.retrieve("gpt-4o")


@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ({"beta": True}, [MODEL, "localmem", ENCODER], False),
        ({"limit": 2}, [MODEL, "localmem"], True),
        ({"limit": 2, "after_id": "localmem"}, [ENCODER], False),
        ({"limit": 1, "before_id": ENCODER}, ["localmem"], True),
        ({"after_id": ENCODER}, [], False),
    ],
)
def test_models_are_listed_in_pages(
    live: LiveServer, query: dict[str, str | int], ids: list[str], has_more: bool
) -> None:
    page = live.http().get("/v1/models", params=query).json()
    assert [model["id"] for model in page["data"]] == ids
    assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
    assert page["has_more"] == has_more
    assert all(model["type"] == "model" and model["created_at"].endswith("Z") for model in page["data"])
    unknown = live.http().get("/v1/models", params={"after_id": "gpt-4o"})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "after_id")


def test_embeddings_are_unit_vectors_whichever_way_they_are_written(live: LiveServer) -> None:
    client, texts = live.openai(), ["the sea", "a dog by the sea"]
    as_base64 = client.embeddings.create(model=ENCODER, input=texts)
    as_floats = client.embeddings.create(model="localmem", input=texts, encoding_format="float")
    rows = np.array([item.embedding for item in as_base64.data])
    assert rows.shape == (2, 512)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert np.allclose(rows, [item.embedding for item in as_floats.data])
    assert [item.index for item in as_base64.data] == [0, 1]
    assert as_base64.usage.prompt_tokens == 7
    raw = live.http().post("/v1/embeddings", json={"model": ENCODER, "input": "x", "encoding_format": "base64"}).json()
    assert np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), dtype="<f4").shape == (512,)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ["fine", " "]}, "input"),
        ({"input": "x", "dimensions": 7}, "dimensions"),
    ],
)
def test_invalid_embedding_requests_are_refused(live: LiveServer, body: dict[str, object], param: str) -> None:
    answer = live.http().post("/v1/embeddings", json={"model": ENCODER, **body})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2, 3]]])
def test_token_ids_are_no_texts(live: LiveServer, tokens: list[object]) -> None:
    error = live.http().post("/v1/embeddings", json={"model": ENCODER, "input": tokens}).json()["error"]
    assert error["message"] == "input: send texts, not token ids (LangChain: check_embedding_ctx_length=False)"
    assert error["param"] == "input"


def test_an_unknown_model_is_not_found(live: LiveServer) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        live.openai().chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hello"}])
    assert raised.value.code == "model_not_found"
    assert raised.value.param == "model"
    assert MODEL in raised.value.message
    assert live.log() == []


REFUSED = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "  "}]}, "messages"),
    ({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "20", "tool_call_id": "c1"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "hi"}, {"role": "function", "content": "ho"}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "hi"}]}, "messages"),
    ({"messages": [{"role": "robot", "content": "hi"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "messages.0.content"),
    ({"temperature": 9}, "temperature"),
    ({"top_p": 5}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"tools": [{"type": "function"}]}, "tools.0.function"),
    ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
    ({"functions": [{"name": "weather"}]}, "functions"),
    ({"audio": {"voice": "alloy"}}, "audio"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
]


@pytest.mark.parametrize(("change", "param"), REFUSED, ids=[json.dumps(case[0])[:60] for case in REFUSED])
def test_unsupported_requests_are_refused_and_not_stored(
    live: LiveServer, change: dict[str, object], param: str
) -> None:
    answer = live.http().post("/v1/chat/completions", json={**HELLO, **change})
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert "\n" not in error["message"]
    assert live.log() == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "messages is []; use a list of 1 or more entries"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content is 5; use a string or a list"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages.0.content.0.type is missing; add it"),
        ({"temperature": 9}, "temperature is 9; use a number of at most 2.0"),
        ({"seed": -(2**64)}, f"seed is {-(2**64)}; use a number of at least {-(2**63)}"),
        ({"stream": "perhaps"}, 'stream is "perhaps"; use true or false'),
        ({"messages": "x" * 100}, f'messages is "{"x" * 39}…; use a list'),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_cure(
    live: LiveServer, body: dict[str, object], message: str
) -> None:
    error = live.http().post("/v1/chat/completions", json={**HELLO, **body}).json()["error"]
    assert error["message"] == message
    assert message.startswith(f"{error['param']} is ")


def test_the_body_itself_may_be_wrong(live: LiveServer) -> None:
    http = live.http()
    for path, body, message in (
        ("chat/completions", [], "the body is []; use an object"),
        ("responses", {"model": MODEL, "input": ""}, 'input is ""; use a string of 1 or more characters or a list'),
    ):
        assert http.post(f"/v1/{path}", json=body).json()["error"]["message"] == message
    assert http.post("/v1/chat/completions").json()["error"]["message"] == "the body is missing; add it"
    headers = {"content-type": "application/json"}
    error = http.post("/v1/chat/completions", content='{"n": "é"}'.encode("latin-1"), headers=headers).json()["error"]
    assert error["message"] == "the body cannot be read as JSON; send it as UTF-8, with numbers of a usual size"
    error = http.post("/v1/chat/completions", content=json.dumps(HELLO)).json()["error"]
    assert error["message"] == "the body is not sent as JSON; add the header `content-type: application/json`"


def test_invalid_json_and_unknown_paths(live: LiveServer) -> None:
    http = live.http()
    headers = {"content-type": "application/json"}
    assert (
        "not valid JSON" in http.post("/v1/chat/completions", content="{", headers=headers).json()["error"]["message"]
    )
    assert http.post("/v1/chat/completions", content="{", headers=headers).status_code == 400
    unknown = http.post("/chat/completions", json=HELLO)
    assert unknown.status_code == 404
    assert unknown.json()["error"]["message"] == (
        "there is no route '/chat/completions'; the base URL for OpenAI's clients ends in /v1, "
        "and GET /openapi.json lists all routes"
    )
    answer = http.get("/v1/chat/completions")
    assert answer.status_code == 405
    assert answer.json()["error"]["message"] == "'/v1/chat/completions' does not allow GET; use POST"
    answer = http.put("/v1/memories")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, POST")
    assert answer.json()["error"]["message"] == "'/v1/memories' does not allow PUT; use DELETE, GET, POST"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LLMUnavailable("no server answers at http://127.0.0.1:1; start one"), 503, "llm_unavailable"),
        (Conflict("the bank is at version 2"), 409, "conflict"),
        (LocalmemError("something else"), 500, "failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_before_the_first_word_has_its_status(
    live: LiveServer, error: LocalmemError, status: int, code: str, stream: bool
) -> None:
    def fail(_prompt: Prompt) -> str:
        raise error

    live.llm.answer = fail
    answer = live.http().post("/v1/chat/completions", json={**HELLO, "stream": stream})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"] == str(error)
    assert live.log() == [["Hello"]]  # stored once, also when the client retries
    live.llm.answer = lambda _prompt: "Well?"
    assert live.http().post("/v1/chat/completions", json=HELLO).status_code == 200
    assert live.log() == [["Hello", ">Well?"]]


def test_an_error_during_a_stream_is_raised_by_the_client(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    stream_all = type(live.llm).stream

    def fail_midway(self, prompt):  # type: ignore[no-untyped-def]
        pieces = stream_all(self, prompt)
        yield next(pieces)
        raise LLMUnavailable("the server went away")

    monkeypatch.setattr(type(live.llm), "stream", fail_midway)
    stream = live.openai().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    with pytest.raises(openai.APIError, match="the server went away"):
        list(stream)
    assert live.log() == [["Hello", ">You"]]


def test_an_unexpected_error_reveals_nothing(live: LiveServer) -> None:
    def fail(_prompt: Prompt) -> str:
        raise ZeroDivisionError("secret")

    live.llm.answer = fail
    with pytest.raises(openai.InternalServerError) as raised:
        live.openai().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}])
    assert "secret" not in str(raised.value)
    assert raised.value.code == "internal_error"


REFUSED_BY_BACKBONE = [
    ({"tools": [{"type": "function", "function": {"name": "weather"}}]}, "tools"),
    ({"logprobs": True}, "logprobs"),
    ({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "It is"}]}, "prefill"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        "images",
    ),
]


@pytest.mark.parametrize(("change", "ability"), REFUSED_BY_BACKBONE)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_backbone_cannot_do_is_refused_by_name_and_not_stored(
    live: LiveServer, change: dict[str, object], ability: str, stream: bool
) -> None:
    answer = live.http().post("/v1/chat/completions", json={**HELLO, **change, "stream": stream})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert f"cannot do {ability};" in error["message"]
    assert error["param"] == (ability if ability in change else "messages")
    assert live.log() == []


def test_an_unknown_query_parameter_is_refused(live: LiveServer) -> None:
    answer = live.http().get("/v1/memories?limt=3")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "limt"
    assert "did you mean 'limit'" in answer.json()["error"]["message"]
    assert live.http().get("/v1/memories?limit=3").status_code == 200
