"""Keys and users: who is served, and that no user reaches another's data."""

import re
from pathlib import Path

import httpx
import openai
import pytest

from localmem.config import load_settings
from localmem.errors import BadSettings
from localmem.server.api_keys import KeyFile
from localmem.server.auth import check_binding, is_loopback, needed_scope
from localmem.server.errors import ApiError
from localmem.server.rate_limit import RateLimit
from localmem.settings_sections import KeySettings
from tests.fakes import START
from tests.server.conftest import KEYS, LiveServer, serving

MODEL = "smollm2-135m-instruct"
ANY = "0.0.0.0"  # noqa: S104  # nothing is bound to it


def say(client: openai.OpenAI, text: str, **more: object) -> str:
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **more)  # type: ignore[call-overload]
    return str(reply.choices[0].message.content)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/memories", "/v1/chat/completions", "/v1/sessions/end"])
def test_requests_without_a_valid_key_are_refused(live_with_keys: LiveServer, path: str) -> None:
    method = "GET" if path.endswith(("models", "memories")) else "POST"
    for headers in ({}, {"authorization": "Basic key-of-ann-1"}, {"authorization": "Bearer nobody"}):
        answer = live_with_keys.http().request(method, path, headers=headers, json={} if method == "POST" else None)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_the_official_client_raises_an_authentication_error(live_with_keys: LiveServer) -> None:
    with pytest.raises(openai.AuthenticationError):
        say(live_with_keys.openai("wrong"), "Hello")
    assert live_with_keys.runtime.store.users() == []


def test_a_key_binds_its_user_and_two_keys_may_be_one_user(live_with_keys: LiveServer) -> None:
    say(live_with_keys.openai("key-of-ann-1"), "I am Ann.", user="ben")
    say(live_with_keys.openai("key-of-ann-2"), "Me again.")
    say(live_with_keys.openai("key-of-ben-1"), "I am Ben.")
    assert sorted(log[0] for log in live_with_keys.log("ann")) == ["I am Ann.", "Me again."]
    assert [log[0] for log in live_with_keys.log("ben")] == ["I am Ben."]
    assert live_with_keys.runtime.store.users() == ["ann", "ben"]


def test_users_cannot_reach_each_others_data(live_with_keys: LiveServer) -> None:
    ann, ben = live_with_keys.openai("key-of-ann-1"), live_with_keys.openai("key-of-ben-1")
    say(ann, "My secret number is 7391.", extra_headers={"x-localmem-session": "shared"})
    ann.post("/sessions/end", cast_to=httpx.Response, body={})
    live_with_keys.wait_until_remembered("ann")
    say(ben, "My secret number?", extra_headers={"x-localmem-session": "shared"})
    assert "7391" not in "".join(message.content for message in live_with_keys.llm.prompts[-1].messages)
    units = live_with_keys.http("key-of-ann-1").get("/v1/memories").json()["data"]
    ben_http = live_with_keys.http("key-of-ben-1")
    assert ben_http.get("/v1/memories").json()["data"] == []
    assert ben_http.post("/v1/memories/search", json={"query": "secret number"}).json()["data"] == []
    for path in (f"/v1/memories/{units[0]['id']}", f"/v1/memories/{units[0]['id']}/history"):
        assert ben_http.get(path).status_code == 404
    assert ben_http.delete(f"/v1/memories/{units[0]['id']}").status_code == 404
    assert ben_http.delete("/v1/memories?confirm=all").status_code == 200
    assert live_with_keys.log("ben") == []
    assert live_with_keys.log("ann") == [["My secret number is 7391.", ">You said: My secret number is 7391."]]


def test_health_needs_no_key_and_metrics_none_on_loopback(live_with_keys: LiveServer) -> None:
    for path in ("/health/live", "/health/ready", "/metrics"):
        assert live_with_keys.http().get(path).status_code == 200


def test_a_page_from_elsewhere_cannot_use_a_server_without_keys(live: LiveServer) -> None:
    http = live.http()
    assert http.get("/v1/memories", headers={"host": "evil.example"}).status_code == 403
    assert http.post("/v1/sessions/end", headers={"origin": "https://evil.example"}).status_code == 403
    assert http.get("/v1/memories", headers={"origin": "http://localhost:3000"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LocalHost.")),
        *((host, False) for host in (ANY, "::", "192.168.1.5", "localhost.evil.example", "")),
    ],
)
def test_is_loopback(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_serving_other_machines_needs_keys() -> None:
    with pytest.raises(BadSettings, match=r"0\.0\.0\.0, which other machines can reach"):
        check_binding(load_settings(None, {"server": {"host": ANY}}))
    check_binding(load_settings(None, {"server": {"host": ANY, "keys": {"long-enough": "ann"}}}))
    with pytest.raises(BadSettings, match="at least 8 characters"):
        check_binding(load_settings(None, {"server": {"keys": {"short": "ann"}}}))


TRUSTED = {"key-of-webui": {"user": "webui", "trusted_users": True}, "key-of-ann-1": "ann"}


def test_the_people_behind_a_trusted_key_have_memories_of_their_own(tmp_path: Path) -> None:
    with serving(tmp_path / "data", server={"keys": TRUSTED}) as live:
        client = live.openai("key-of-webui")
        say(client, "I am Eva.", extra_headers={"X-OpenWebUI-User-Id": "eva"})
        say(client, "I am Max.", user="max")
        assert live.runtime.store.users() == ["webui/eva", "webui/max"]
        assert live.log("webui/max")[0][0] == "I am Max."
        for door in (r"header X-OpenWebUI-User-Id, in", "field `user` of OpenAI's chat bodies", "mem0's user_id"):
            with pytest.raises(openai.BadRequestError, match=door):
                say(client, "I am nobody.")
        assert [model.id for model in client.models.list()]  # what is the same for all needs no name
        say(live.openai("key-of-ann-1"), "I am Ann.", extra_headers={"X-OpenWebUI-User-Id": "eva"}, user="webui/eva")
        assert live.runtime.store.users() == ["ann", "webui/eva", "webui/max"]
        memories = live.http("key-of-webui").delete("/v1/memories?confirm=all")
        assert memories.status_code == 400


@pytest.mark.parametrize("name", ["x" * 201, "eva\nmax"])
def test_a_name_that_would_be_cut_or_could_not_be_erased_is_refused(tmp_path: Path, name: str) -> None:
    with serving(tmp_path / "data", server={"keys": TRUSTED}) as live:
        with pytest.raises(openai.BadRequestError, match="send at most 200, none of them a line end"):
            say(live.openai("key-of-webui"), "I am Eva.", user=name)
        say(live.openai("key-of-ann-1"), "I am Ann.", user=name)
        assert live.runtime.store.users() == ["ann"]


def test_a_name_in_a_header_is_utf_8_and_nothing_else(tmp_path: Path) -> None:
    keys = {"key-of-boss-1": {"user": "boss", "operator": True}}
    with serving(tmp_path / "data", server={"keys": keys}) as live:
        names = (b"Jos%C3%A9", "José".encode(), b"Jos%E9")
        http, body = live.http("key-of-boss-1"), {"text": "A."}
        answers = [http.post("/v1/memories", json=body, headers=[(b"x-localmem-user", name)]) for name in names]
        assert [answer.status_code for answer in answers] == [201, 201, 400]
        assert live.runtime.store.users() == ["José"]


def test_a_trusted_key_may_name_another_header(tmp_path: Path) -> None:
    keys = {"key-of-webui": {"user": "chat", "trusted_users": True, "header": "X-Person"}}
    with serving(tmp_path / "data", server={"keys": keys}) as live:
        say(live.openai("key-of-webui"), "I am Eva.", extra_headers={"X-Person": "eva", "X-OpenWebUI-User-Id": "no"})
        assert live.runtime.store.users() == ["chat/eva"]


def test_people_behind_a_proxy_are_who_its_header_says(tmp_path: Path) -> None:
    keys = {"key-of-proxy": {"user": "sso", "trusted_users": True, "header": "X-Forwarded-User"}, "key-of-ann-1": "ann"}
    with serving(tmp_path / "data", server={"keys": keys}) as live:
        eva = {"X-Forwarded-User": "eva"}
        proxied = live.openai("key-of-proxy")
        say(proxied, "I am Eva.", extra_headers=eva, user="max")
        say(proxied, "I am Max.", extra_headers={"X-Forwarded-User": "max"})
        with pytest.raises(openai.BadRequestError, match=r"name the user in the header X-Forwarded-User$"):
            say(proxied, "I am Max.", user="max")  # the proxy named nobody, so what a person writes is no name
        say(live.openai("key-of-ann-1"), "I am Ann.", extra_headers=eva)
        assert live.runtime.store.users() == ["ann", "sso/eva", "sso/max"]
        http = live.http("key-of-proxy")
        listed = http.get("/mem0/v1/entities/", headers=eva).json()["results"]
        assert [each["name"] for each in listed] == ["eva"]
        page = http.get("/mem0/v1/memories/", params={"user_id": "max"}, headers=eva).text
        assert "Max" not in page
        assert live.http().get("/v1/memories", headers=eva).status_code == 401
        both = [*http.headers.items(), ("X-Forwarded-User", "eva"), ("X-Forwarded-User", "max")]
        assert http.get("/v1/memories", headers=both).status_code == 400


def test_people_who_share_a_key_are_warned_of_once(
    live_with_keys: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = live_with_keys.openai("key-of-ann-1")
    for person in ("eva", "eva", "max", "tom", "eva"):
        say(client, f"I am {person}.", extra_headers={"X-OpenWebUI-User-Id": person})
    (warning,) = [record.getMessage() for record in caplog.records if "share the memory" in record.getMessage()]
    assert "'ann'" in warning
    assert "make a key with `localmem keys create --user NAME --trusted-users`" in warning


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        ({"keys": {**TRUSTED, "key-of-eva-1": "webui/eva"}}, "a name of the people behind the key"),
        ({"keys": {"key-of-nobody": {"user": ""}}}, "each with a user"),
        ({"origins": ["*"]}, "there are no keys"),
    ],
)
def test_keys_and_origins_that_break_the_wall_are_refused(server: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        check_binding(load_settings(None, {"server": server}))


def test_pages_of_listed_origins_may_call_and_others_not(tmp_path: Path) -> None:
    origin = "https://chat.example.org"
    with serving(tmp_path / "data", server={"origins": [origin]}) as live:
        http = live.http()
        asks = {"access-control-request-method": "POST", "access-control-request-headers": "x-localmem"}
        preflight = http.options("/v1/chat/completions", headers={"origin": origin, **asks})
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, origin)
        answer = http.get("/v1/models", headers={"origin": origin})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)
        evil = {"origin": "https://evil.example"}
        for refused in (http.get("/v1/models", headers=evil), http.options("/v1/models", headers={**evil, **asks})):
            assert refused.status_code in (400, 403)
            assert "access-control-allow-origin" not in refused.headers


def test_no_origin_may_call_by_default(live: LiveServer) -> None:
    answer = live.http().get("/v1/models", headers={"origin": "https://chat.example.org"})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_the_access_log_names_no_user_and_no_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "localmem.access")
    with serving(tmp_path / "data", server={"access_log": True}) as live:
        live.http().get("/v1/memories/some-secret")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "localmem.access"]
    assert line.startswith("GET /v1/memories/{memory_id:path} 404 ")


def test_a_key_does_what_its_scopes_allow(tmp_path: Path) -> None:
    scopes = {"key-that-chats": "chat", "key-that-reads": "read", "key-that-rules": "admin"}
    keys = {key: {"user": "ann", "scopes": [scope]} for key, scope in scopes.items()}
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "I keep bees."}]}
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    accept = {"accept": "application/json, text/event-stream"}
    with serving(tmp_path / "data", server={"keys": keys}) as live:
        allowed = {}
        for key, scope in scopes.items():
            http = live.http(key)
            answers = {
                "chat": http.post("/v1/chat/completions", json=chat),
                "read": http.post("/v1/memories/search", json={"query": "bees"}),
                "export": http.get("/v1/export"),
                "mcp": http.post("/mcp", json={**ask, "method": "tools/list"}, headers=accept),
                "add": http.post("/v1/memories", json={"text": "I ski."}),
                "models": http.get("/v1/models"),
            }
            refused = {name for name, answer in answers.items() if answer.status_code == 403}
            allowed[scope] = sorted(answers.keys() - refused)
            assert {answers[name].json()["error"]["code"] for name in refused - {"mcp"}} <= {"no_scope"}
        assert allowed["chat"] == ["chat", "models"]
        assert allowed["read"] == ["export", "mcp", "models", "read"]
        assert allowed["admin"] == ["add", "models"]
        call = {"name": "remember", "arguments": {"text": "I sail."}}
        refusal = live.http("key-that-reads").post("/mcp", json={**ask, "params": call}, headers=accept)
        assert "lacks the scope 'admin'" in refusal.text
        assert "I sail." not in live.http("key-that-reads").get("/v1/memories").text


def test_every_route_needs_a_scope_by_which_its_changes_are_guarded(live: LiveServer) -> None:
    """A new route that changes something needs the scope admin, unless it is listed here."""
    paths = live.http().get("/openapi.json").json()["paths"]
    scopes = {
        f"{method} {path}": needed_scope(method.upper(), path)
        for path, operations in paths.items()
        for method in operations
        if method not in ("get", "head") and not path.startswith("/mem0/")
    }
    assert {name for name, scope in scopes.items() if scope == "chat"} == {
        f"post /{path}"
        for path in (
            *("v1/chat/completions", "v1/completions", "v1/responses", "v1/messages", "v1/messages/count_tokens"),
            *("api/chat", "api/generate", "v1/sessions/end"),
        )
    }
    assert {name for name, scope in scopes.items() if scope == "read"} == {
        "post /v1/memories/search", "post /v1/memories/recall"
    }  # fmt: skip
    assert {name for name, scope in scopes.items() if scope is None} == {"post /v1/embeddings", "post /api/show"}


def test_a_running_server_follows_the_file_of_keys(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "data" / "keys.json")
    key, text = file.create(KeySettings(user="ann"), START)
    with serving(tmp_path / "data") as live:
        http = live.http()
        token = re.findall(r'name="token" value="(\w+)"', http.get("/login").text)[0]
        assert http.post("/login", data={"token": token, "key": text}).status_code == 303
        assert [live.http(text).get("/v1/memories").status_code, http.get("/").status_code] == [200, 200]
        assert live.http().get("/v1/memories").status_code == 401
        file.revoke(key.id)
        assert live.http(text).get("/v1/memories").status_code == 401
        assert http.get("/").headers["location"] == "/login"
        _, another = file.create(KeySettings(user="ben"), START, days=1)
        assert live.http(another).get("/v1/memories").status_code == 200
        live.clock.advance(days=1)
        assert live.http(another).get("/v1/memories").status_code == 401
        file.path.chmod(0o666)
        file.path.touch()
        spoilt = live.http(another).get("/v1/memories")
        assert (spoilt.status_code, spoilt.json()["error"]["code"]) == (503, "keys_unreadable")


def test_the_first_key_closes_a_running_server(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "data" / "keys.json")
    with serving(tmp_path / "data") as live:
        assert [live.http().get(path).status_code for path in ("/v1/memories", "/memory")] == [200, 200]
        _, text = file.create(KeySettings(user="ann"), START)
        assert live.http().get("/v1/memories").status_code == 401
        assert live.http().get("/memory").headers["location"] == "/login"
        assert live.http(text).get("/v1/memories").status_code == 200


def test_each_user_has_a_rate_of_their_own(tmp_path: Path) -> None:
    with serving(tmp_path / "data", server={"keys": KEYS, "requests_per_minute": 2}) as live:
        ann = live.http("key-of-ann-1")
        statuses = [ann.get("/v1/memories").status_code for _ in range(2)]
        refused = live.http("key-of-ann-2").get("/v1/memories")  # the other key of the same user
        assert [*statuses, refused.status_code] == [200, 200, 429]
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert live.http("key-of-ben-1").get("/v1/memories").status_code == 200


def test_a_bucket_fills_with_time() -> None:
    moments = iter([0, 0, 0, 29, 30, 1000, 1000, 1000])
    limit = RateLimit(2, lambda: next(moments))
    outcomes = []
    for _ in range(8):
        try:
            limit.admit("ann")
            outcomes.append(0)
        except ApiError as error:
            outcomes.append(int((error.headers or {})["Retry-After"]))
    assert outcomes == [0, 0, 30, 1, 0, 0, 0, 30]
