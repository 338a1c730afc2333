"""Keys and users: who may ask, and that nobody sees another's words."""

import httpx
import openai
import pytest

from localmem.config import load_settings
from localmem.errors import BadSettings
from localmem.server.auth import check_binding, is_loopback
from tests.server.conftest import House

MODEL = "smollm2-135m-instruct"
ANY = "0.0.0.0"  # noqa: S104  # nothing is bound to it


def say(client: openai.OpenAI, text: str, **more: object) -> str:
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **more)  # type: ignore[call-overload]
    return str(reply.choices[0].message.content)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/memories", "/v1/chat/completions", "/v1/sessions/end"])
def test_without_a_key_nothing_is_answered(keyed: House, path: str) -> None:
    method = "GET" if path.endswith(("models", "memories")) else "POST"
    for headers in ({}, {"authorization": "Basic key-of-ann-1"}, {"authorization": "Bearer nobody"}):
        answer = keyed.http().request(method, path, headers=headers, json={} if method == "POST" else None)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_the_official_client_meets_an_authentication_error(keyed: House) -> None:
    with pytest.raises(openai.AuthenticationError):
        say(keyed.openai("wrong"), "Hello")
    assert keyed.runtime.store.users() == []


def test_a_key_binds_its_user_and_two_keys_may_be_one_user(keyed: House) -> None:
    say(keyed.openai("key-of-ann-1"), "I am Ann.", user="ben")
    say(keyed.openai("key-of-ann-2"), "Me again.")
    say(keyed.openai("key-of-ben-1"), "I am Ben.")
    assert sorted(log[0] for log in keyed.log("ann")) == ["I am Ann.", "Me again."]
    assert [log[0] for log in keyed.log("ben")] == ["I am Ben."]
    assert keyed.runtime.store.users() == ["ann", "ben"]


def test_nobody_recalls_lists_searches_or_ends_what_is_anothers(keyed: House) -> None:
    ann, ben = keyed.openai("key-of-ann-1"), keyed.openai("key-of-ben-1")
    say(ann, "My secret number is 7391.", extra_headers={"x-localmem-session": "shared"})
    ann.post("/sessions/end", cast_to=httpx.Response, body={})
    keyed.remembered("ann")
    say(ben, "My secret number?", extra_headers={"x-localmem-session": "shared"})
    assert "7391" not in "".join(message.content for message in keyed.llm.prompts[-1].messages)
    listed = keyed.http("key-of-ann-1").get("/v1/memories").json()["data"]
    theirs = keyed.http("key-of-ben-1")
    assert theirs.get("/v1/memories").json()["data"] == []
    assert theirs.post("/v1/memories/search", json={"query": "secret number"}).json()["data"] == []
    for path in (f"/v1/memories/{listed[0]['id']}", f"/v1/memories/{listed[0]['id']}/history"):
        assert theirs.get(path).status_code == 404
    assert theirs.delete(f"/v1/memories/{listed[0]['id']}").status_code == 404
    assert theirs.delete("/v1/memories?confirm=all").status_code == 200
    assert keyed.log("ben") == []
    assert keyed.log("ann") == [["My secret number is 7391.", ">You said: My secret number is 7391."]]


def test_health_needs_no_key_and_metrics_none_on_loopback(keyed: House) -> None:
    for path in ("/health/live", "/health/ready", "/metrics"):
        assert keyed.http().get(path).status_code == 200


def test_a_page_from_elsewhere_cannot_use_a_server_without_keys(house: House) -> None:
    http = house.http()
    assert http.get("/v1/memories", headers={"host": "evil.example"}).status_code == 403
    assert http.post("/v1/sessions/end", headers={"origin": "https://evil.example"}).status_code == 403
    assert http.get("/v1/memories", headers={"origin": "http://localhost:3000"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost.")),
        *((host, False) for host in (ANY, "::", "192.168.1.5", "localhost.evil.example", "")),
    ],
)
def test_what_is_loopback(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_an_open_door_needs_keys() -> None:
    with pytest.raises(BadSettings, match=r"0\.0\.0\.0 is open to others; set server\.keys"):
        check_binding(load_settings(None, {"server": {"host": ANY}}))
    check_binding(load_settings(None, {"server": {"host": ANY, "keys": {"long-enough": "ann"}}}))
    with pytest.raises(BadSettings, match="at least 8 characters"):
        check_binding(load_settings(None, {"server": {"keys": {"short": "ann"}}}))
