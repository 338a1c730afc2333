"""mem0's REST shape, by requests as mem0's own client and server have them."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from localmem.server.memory_editor import MemoryEditor
from tests.fakes import START
from tests.server.conftest import LiveServer, serving

KEYS = {
    "key-of-ann-1": "ann",
    "key-of-a-shop": {"user": "shop", "trusted_users": True},
    "key-of-the-owner": {"user": "owner", "operator": True},
}
DIALOGUE = {
    "messages": [
        {"role": "user", "content": "My dog is called Bruno."},
        {"role": "assistant", "content": "Nice."},
    ]
}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    """A server with a plain key, one of many people and an operator's."""
    with serving(tmp_path / "data", server={"keys": KEYS}, retrieval={"retriever": "bm25"}) as server:
        yield server


def client(live: LiveServer, key: str) -> httpx.Client:
    """Access as mem0's client has it."""
    http = live.http()
    http.headers["authorization"] = f"Token {key}"
    return http


def search(http: httpx.Client, user: str, query: str = "What is my dog called?") -> list[str]:
    """The texts that a search of mem0's current client finds."""
    body = {"query": query, "filters": {"user_id": user}, "top_k": 5}
    answer = http.post("/mem0/v3/memories/search/", json=body).raise_for_status().json()
    return [memory["memory"] for memory in answer["results"]]


def test_a_memory_is_added_searched_changed_and_erased(live: LiveServer) -> None:
    http = client(live, "key-of-a-shop")
    assert http.get("/mem0/v1/ping/").json()["status"] == "ok"
    body = {**DIALOGUE, "user_id": "bob/1", "timestamp": 1772470800, "metadata": {"ignored": True}}
    added = http.post("/mem0/v3/memories/add/", json=body).json()
    assert added["status"] == "SUCCEEDED"
    memory = added["results"][0]
    assert (memory["event"], memory["user_id"]) == ("ADD", "bob/1")
    assert memory["created_at"] == "2026-03-02T17:00:00Z"
    assert search(http, "bob/1") == ["User: My dog is called Bruno."]
    assert live.runtime.store.users() == ["shop/bob/1"]
    path = f"/mem0/v1/memories/{quote(memory['id'])}"
    assert http.get(f"{path}/").json()["memory"] == "User: My dog is called Bruno."
    changed = http.put(f"{path}/", json={"text": "My dog is called Rex."}).json()
    assert search(http, "bob/1") == ["User: My dog is called Rex."]
    events = http.get(f"{path}/history/").json()
    texts = ["User: My dog is called Bruno.", "User: My dog is called Rex."]
    assert [(event["event"], event["new_memory"]) for event in events] == [("ADD", texts[0]), ("UPDATE", texts[1])]
    events = http.get(f"/mem0/v1/memories/{quote(changed['id'])}/history/").json()
    assert [(event["event"], event["new_memory"]) for event in events] == [("ADD", texts[1])]
    replaced = http.get(f"{path}/")
    message = f"was replaced by '{changed['id']}'; ask for that one"
    assert (replaced.status_code, message in replaced.text) == (404, True)
    assert http.get(f"/mem0/v1/memories/{quote(changed['id'])}/").json()["user_id"] == "bob/1"
    page = http.post("/mem0/v3/memories/", params={"page": 1, "page_size": 1}, json={"filters": {"user_id": "bob/1"}})
    assert [each["id"] for each in page.json()["results"]] == [changed["id"]]
    assert http.delete(f"/mem0/v1/memories/{quote(changed['id'])}/").json()["message"]
    assert search(http, "bob/1") == []
    assert http.get(f"/mem0/v1/memories/{quote(changed['id'])}/").status_code == 404


def test_a_memory_that_is_hidden_is_not_read_and_ends_in_one_deletion(live: LiveServer) -> None:
    http = client(live, "key-of-a-shop")
    memory = http.post("/mem0/memories", json={**DIALOGUE, "user_id": "bob"}).json()["results"][0]
    path = f"/mem0/memories/{quote(memory['id'])}"
    editor = MemoryEditor(live.runtime, live.services.sessions, "shop/bob")
    cause = editor.forget(memory["id"].removeprefix("bob|"), START)
    hidden = http.get(path)
    assert (hidden.status_code, "is no longer in use" in hidden.text) == (404, True)
    assert [event["event"] for event in http.get(f"{path}/history").json()] == ["ADD", "DELETE"]
    editor.undo(cause)
    assert http.get(path).json() == {key: value for key, value in memory.items() if key != "event"}
    assert [event["event"] for event in http.get(f"{path}/history").json()] == ["ADD"]


def test_the_shape_of_its_own_server(live: LiveServer) -> None:
    http = client(live, "key-of-a-shop")
    for text in ("I keep bees.", "I ski in March."):
        http.post("/mem0/memories", json={"messages": text, "user_id": "ida", "infer": False}).raise_for_status()
    listed = http.get("/mem0/memories", params={"user_id": "ida"}).json()
    assert [memory["memory"] for memory in listed["results"]] == ["I keep bees.", "I ski in March."]
    hits = http.post("/mem0/search", json={"query": "bees", "user_id": "ida", "limit": 1}).json()["results"]
    assert hits[0]["memory"] == "I keep bees."
    erased = {"memories": [{"memory_id": memory["id"]} for memory in listed["results"]]}
    http.request("DELETE", "/mem0/v1/batch/", json=erased).raise_for_status()
    assert http.get("/mem0/memories", params={"user_id": "ida"}).json()["count"] == 0
    assert [person["name"] for person in http.get("/mem0/v1/entities/").json()["results"]] == ["ida"]
    assert http.delete("/mem0/v2/entities/user/ida/").status_code == 200
    assert http.delete("/mem0/memories", params={"user_id": "ida"}).status_code == 200  # erased twice is no error
    assert live.runtime.store.users() == []


def test_the_memories_of_a_dialogue_are_erased_together_or_not_at_all(tmp_path: Path) -> None:
    server = {"keys": KEYS, "requests_per_minute": 9}
    with serving(tmp_path, server=server, retrieval={"retriever": "bm25"}) as live:
        http = client(live, "key-of-a-shop")
        turns = ["I keep bees.", "I ski in March.", "I like tea.", "I sing.", "I row."]
        body = {"messages": [{"role": "user", "content": text} for text in turns], "user_id": "ida"}
        memories = http.post("/mem0/memories", json=body).json()["results"]
        assert len(memories) == 5
        batch = [{"memory_id": memory["id"]} for memory in (*memories[:4], memories[0])]
        unknown = {"memory_id": f"{memories[0]['id']}0"}
        answer = http.request("DELETE", "/mem0/v1/batch/", json={"memories": [*batch, unknown]})
        assert (answer.status_code, live.log("shop/ida")) == (404, [turns])
        http.request("DELETE", "/mem0/v1/batch/", json={"memories": batch}).raise_for_status()
        assert live.log("shop/ida") == [["I row."]]
        live.wait_until_remembered("shop/ida")
        listed = http.get("/mem0/memories", params={"user_id": "ida"}).json()["results"]
        assert [memory["memory"] for memory in listed] == ["User: I row."]


def test_the_wall_is_that_of_the_other_routes(live: LiveServer) -> None:
    ann, shop, owner = (client(live, key) for key in KEYS)
    shop.post("/mem0/memories", json={**DIALOGUE, "user_id": "bob"}).raise_for_status()
    memory = shop.get("/mem0/memories", params={"user_id": "bob"}).json()["results"][0]["id"]
    assert search(shop, "eve") == []
    assert search(owner, "shop/bob") == ["User: My dog is called Bruno."]
    assert search(ann, "ann") == []
    refused = ann.post("/mem0/search", json={"query": "dog", "user_id": "shop/bob"})
    assert (refused.status_code, "localmem keys create --user NAME --trusted-users" in refused.text) == (403, True)
    assert ann.get(f"/mem0/memories/{quote(memory)}").status_code == 403
    assert ann.delete("/mem0/v2/entities/user/bob/").status_code == 403
    assert [person["name"] for person in ann.get("/mem0/v1/entities/").json()["results"]] == []
    assert shop.post("/mem0/search", json={"query": "dog"}).status_code == 400
    assert ann.delete("/mem0/memories").status_code == 400
    assert client(live, "key-of-nobody").get("/mem0/v1/ping/").status_code == 401
    assert search(shop, "bob") == ["User: My dog is called Bruno."]


def test_programs_of_this_machine_name_people_without_keys(tmp_path: Path) -> None:
    """As mem0's memory-benchmarks do: their client of its own server sends no key, and the day of what was said."""
    with serving(tmp_path / "data", retrieval={"retriever": "bm25"}) as live:
        http = live.http()
        body = {**DIALOGUE, "user_id": "locomo_0", "observation_date": "2023-05-08"}
        added = http.post("/mem0/memories", json=body).raise_for_status().json()
        assert added["results"][0]["created_at"][:10] == "2023-05-08"
        found = [
            http.post("/mem0/search", json={"query": "dog", "user_id": user, "limit": 200}).json()["results"]
            for user in ("locomo_0", "locomo_1")
        ]
        assert [len(memories) for memories in found] == [1, 0]
        assert [person["name"] for person in http.get("/mem0/v1/entities/").json()["results"]] == ["locomo_0"]
        assert http.delete("/mem0/memories", params={"user_id": "locomo_0"}).status_code == 200
        assert live.runtime.store.users() == []


def test_what_is_not_known_is_refused_by_name(live: LiveServer) -> None:
    http = client(live, "key-of-a-shop")
    for filters, name in (({"run_id": "1"}, "run_id"), ({"AND": [{"user_id": "a"}, {"agent_id": "b"}]}, "agent_id")):
        answer = http.post("/mem0/v2/memories/search/", json={"query": "dog", "filters": filters})
        assert (answer.status_code, f"the filter '{name}' is not known" in answer.text) == (400, True)
    assert search(http, "x") == []
    nested = {"query": "dog", "filters": {"AND": [{"user_id": "bob"}]}}
    assert http.post("/mem0/v2/memories/search/", json=nested).json() == {"results": []}
    assert http.put("/mem0/memories/x%7Cy", json={}).status_code == 404
