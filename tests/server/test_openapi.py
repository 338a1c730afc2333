"""The description of the server's routes agrees with what the routes write."""

from collections.abc import Callable
from typing import Any

import httpx
import jsonschema
import pytest

from tests.server.conftest import LiveServer

PAST = {"id": "trip", "time": "2024-05-04T10:00:00Z", "turns": [{"role": "user", "text": "I moved to Porto in May."}]}
Call = Callable[[httpx.Client, str], httpx.Response]
CALLS: dict[tuple[str, str], Call] = {
    ("post", "/v1/sessions"): lambda http, _: http.post("/v1/sessions", json={"sessions": [PAST]}),
    ("get", "/v1/jobs"): lambda http, _: http.get("/v1/jobs?session=trip&wait=30"),
    ("get", "/v1/sessions"): lambda http, _: http.get("/v1/sessions"),
    ("get", "/v1/sessions/{session_id}"): lambda http, _: http.get("/v1/sessions/trip"),
    ("get", "/v1/memories"): lambda http, _: http.get("/v1/memories"),
    ("post", "/v1/memories"): lambda http, _: http.post("/v1/memories", json={"text": "I ski till June."}),
    ("post", "/v1/memories/search"): lambda http, _: http.post("/v1/memories/search", json={"query": "Porto"}),
    ("get", "/v1/memories/{memory_id}"): lambda http, unit: http.get(f"/v1/memories/{unit}"),
    ("patch", "/v1/memories/{memory_id}"): lambda http, unit: http.patch(f"/v1/memories/{unit}", json={"text": "x"}),
    ("delete", "/v1/sessions/{session_id}"): lambda http, _: http.delete("/v1/sessions/trip"),
    ("delete", "/v1/memories"): lambda http, _: http.delete("/v1/memories?confirm=all"),
}


@pytest.fixture
def description(live: LiveServer) -> dict[str, Any]:
    document: dict[str, Any] = live.http().get("/openapi.json").json()
    return document


def test_responses_are_as_described(live: LiveServer, description: dict[str, Any]) -> None:
    http, unit = live.http(), ""
    for (method, path), call in CALLS.items():
        answer = call(http, unit)
        content = description["paths"][path][method]["responses"][str(answer.status_code)]["content"]
        schema = content["application/json"]["schema"]
        assert "$ref" in schema, path
        jsonschema.validate(answer.json(), {**schema, "components": description["components"]})
        if answer.json().get("object") == "memory":
            unit = answer.json()["id"]


def test_errors_and_exports_are_as_described(live: LiveServer, description: dict[str, Any]) -> None:
    http = live.http()
    http.post("/v1/sessions", json={"sessions": [PAST]})
    lines = http.get("/v1/export").content
    http.delete("/v1/memories?confirm=all")
    responses = description["paths"]["/v1/import"]["post"]["responses"]
    for content, name in ((lines, "201"), (b"nonsense", "4XX")):
        answer = http.post("/v1/import", content=content)
        schema = responses[name]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), {**schema, "components": description["components"]})


def test_chat_routes_and_keys_are_described(description: dict[str, Any]) -> None:
    assert description["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, body in (
        ("/v1/chat/completions", "ChatRequest"),
        ("/v1/responses", "ResponsesRequest"),
        ("/v1/completions", "TextRequest"),
        ("/v1/messages", "MessagesRequest"),
        ("/api/chat", "OllamaChatRequest"),
    ):
        operation = description["paths"][path]["post"]
        assert operation["security"] == [{"HTTPBearer": []}]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{body}"}
        assert body in description["components"]["schemas"]


def test_the_headers_that_a_route_acts_on_are_described(description: dict[str, Any]) -> None:
    def headers(method: str, path: str) -> set[str]:
        parameters = description["paths"][path][method].get("parameters", [])
        return {each["name"] for each in parameters if each["in"] == "header" and each["description"]}

    of_memory = {"X-Localmem-User", "X-Localmem-Timezone"}
    for path in (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/api/chat",
        "/api/generate",
    ):
        assert headers("post", path) == {"X-Localmem", "X-Localmem-Session", *of_memory}
    for path in ("/v1/memories", "/v1/memories/recall", "/mem0/v1/memories/"):
        assert headers("post", path) == of_memory
    assert headers("get", "/v1/export") == {"X-Localmem-User"}
    assert headers("get", "/v1/models") == set()
