"""Several users at every door of one server: a word that one of them told never reaches another, nor a log.

Each user's canary is a word of theirs alone. A plan is a list of calls, each with who calls and whose ids are tried; it
is drawn by hypothesis. What must hold after each call: no other's canary in the answer or in the prompt that was made
for it, and 404 for every id that is another's, whatever is to be done with it.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import httpx

from localmem.server.api_keys import KeyFile
from localmem.settings_sections import KeySettings
from tests.fakes import START
from tests.server.conftest import LiveServer

MODEL = "localmem"
_ACCEPT = {"accept": "application/json, text/event-stream"}
_NOT_FOUND = 404


@dataclass
class Person:
    """A user with a key, and the ids by which others would find what is theirs."""

    name: str
    canary: str
    http: httpx.Client
    units: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    responses: list[str] = field(default_factory=list)

    def chat(self, text: str) -> list[dict[str, str]]:
        """A dialogue of one message."""
        return [{"role": "user", "content": text}]

    @property
    def secret(self) -> str:
        return f"My secret word is {self.canary}."

    def unit(self) -> str:
        return self.units[-1] if self.units else "none"

    def session(self) -> str:
        return self.sessions[-1] if self.sessions else "none"


Call = Callable[[Person, Person], Iterator[httpx.Response]]
QUESTION = "What is my secret word?"


def _tell(me: Person, _other: Person) -> Iterator[httpx.Response]:
    """Every door that stores."""
    answer = me.http.post("/v1/chat/completions", json={"model": MODEL, "messages": me.chat(me.secret)})
    yield answer
    me.sessions.append(answer.headers.get("x-localmem-session", "none"))
    added = me.http.post("/v1/memories", json={"text": me.secret})
    yield added
    me.units.append(added.json()["id"])
    yield me.http.post("/v1/completions", json={"model": MODEL, "prompt": me.secret})
    yield me.http.post("/v1/messages", json={"model": MODEL, "max_tokens": 50, "messages": me.chat(me.secret)})
    yield me.http.post("/api/chat", json={"model": MODEL, "messages": me.chat(me.secret)})
    response = me.http.post("/v1/responses", json={"model": MODEL, "input": me.secret})
    yield response
    me.responses.append(response.json()["id"])
    yield me.http.post("/mem0/v1/memories/", json={"messages": me.chat(me.secret), "infer": False})
    yield _mcp(me, "tools/call", name="remember", arguments={"text": me.secret})


def _ask(me: Person, other: Person) -> Iterator[httpx.Response]:
    """Every door that replies, in a session whose name all have too."""
    for headers in ({}, {"x-localmem-session": "kitchen"}):
        body = {"model": MODEL, "messages": me.chat(QUESTION), "stream": True, "user": other.name}
        yield me.http.post("/v1/chat/completions", json=body, headers=headers)
    yield me.http.post("/v1/completions", json={"model": MODEL, "prompt": QUESTION})
    yield me.http.post("/v1/messages", json={"model": MODEL, "max_tokens": 50, "messages": me.chat(QUESTION)})
    yield me.http.post("/api/generate", json={"model": MODEL, "prompt": QUESTION})
    yield me.http.post("/v1/responses", json={"model": MODEL, "input": QUESTION})


def _read(me: Person, other: Person) -> Iterator[httpx.Response]:
    """Every list and search, with the other's name and word in the query where one fits."""
    headers = {"x-openwebui-user-id": other.name}
    for path in ("memories", "memories/bank", "memories/quarantine", "sessions", "jobs", "export"):
        yield me.http.get(f"/v1/{path}", headers=headers)
    for path in ("search", "recall"):
        key = "query" if path == "search" else "text"
        yield me.http.post(f"/v1/memories/{path}", json={key: QUESTION})
    yield me.http.get("/mem0/v1/memories/")
    yield me.http.post("/mem0/v2/memories/search/", json={"query": QUESTION})
    for tool, arguments in (("recall", {"message": QUESTION}), ("list_memories", {"words": "secret"})):
        yield _mcp(me, "tools/call", name=tool, arguments=arguments)
    for name in ("memories", "sessions"):
        yield _mcp(me, "resources/read", uri=f"localmem://{name}")


def _look(me: Person, _other: Person) -> Iterator[httpx.Response]:
    """The page, what is there for monitoring, and errors that repeat what was sent."""
    for path in ("/", "/memory", "/memory?words=secret", "/sessions", "/notes", "/links", "/refused", "/why"):
        yield me.http.get(path)
    for path in ("/metrics", "/health", "/openapi.json", "/nowhere"):
        yield me.http.get(path)
    yield me.http.post("/v1/chat/completions", json={"model": me.canary})
    yield me.http.get(f"/v1/memories?words={me.canary}")


def _end(me: Person, _other: Person) -> Iterator[httpx.Response]:
    yield me.http.post("/v1/sessions/end")


def _forget(me: Person, _other: Person) -> Iterator[httpx.Response]:
    yield me.http.post("/v1/memories/forget", json={"text": "forget my secret word"})


def _trespass(me: Person, other: Person) -> Iterator[httpx.Response]:
    """Every way to name what is another's: each is 404, but for the other's own name."""
    unit, session = other.unit(), other.session()
    answer = me.http.get("/v1/memories", headers={"x-localmem-user": other.name})
    assert answer.is_client_error, answer.text
    yield answer
    for path in (f"memories/{unit}", f"memories/{unit}/history", f"sessions/{session}", f"jobs?session={session}"):
        yield _expect_none(me.http.get(f"/v1/{path}"))
    for path in (f"sessions?before={session}", f"memories?after={unit}"):
        yield _expect_none(me.http.get(f"/v1/{path}"))
    yield _expect_none(me.http.patch(f"/v1/memories/{unit}", json={"text": "mine"}))
    yield _expect_none(me.http.post("/v1/sessions/end", json={"session": session}))
    yield _expect_none(me.http.post("/v1/memories/restore", json={"id": session}))
    for path in (f"memories/{unit}", f"memories/{unit}?with_sources=true", f"sessions/{session}"):
        yield _expect_none(me.http.delete(f"/v1/{path}"))
    for method, path in (("GET", ""), ("GET", "history/"), ("DELETE", ""), ("PUT", "")):
        body = {"text": "mine"} if method == "PUT" else None
        yield _expect_none(me.http.request(method, f"/mem0/v1/memories/{unit}/{path}", json=body))
    for path in (f"/memory/{unit}", f"/sessions/{session}"):
        yield _expect_none(me.http.get(path))
    for path in (f"/memory/{unit}/edit", f"/memory/{unit}/erase", f"/sessions/{session}/erase"):
        yield _expect_none(me.http.post(path, data={"token": _form_token(me), "text": "mine"}))
    if other.responses:
        body = {"model": MODEL, "input": QUESTION, "previous_response_id": other.responses[-1]}
        yield _expect_none(me.http.post("/v1/responses", json=body))
    for tool, arguments in (("history", {}), ("update_memory", {"text": "mine"}), ("forget", {"erase": True})):
        answer = _mcp(me, "tools/call", name=tool, arguments={"memory_id": unit, **arguments})
        assert answer.json()["result"]["isError"], answer.text
        yield answer
    answer = _mcp(me, "resources/read", uri=f"localmem://memories/{unit}")
    assert "error" in answer.json(), answer.text
    yield answer


CALLS: Mapping[str, Call] = {
    "tell": _tell, "ask": _ask, "read": _read, "look": _look, "end": _end, "forget": _forget, "trespass": _trespass
}  # fmt: skip
Step = tuple[int, str, int]


class Canaries(logging.Handler):
    """Runs plans against one server; each plan has users of its own. `close` it at the end."""

    def __init__(self, live: LiveServer) -> None:
        super().__init__()
        self._live = live
        self._plans = 0
        self._logged: list[str] = []
        self.calls = 0
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._logged.append(self.format(record))

    def close(self) -> None:
        logging.getLogger().removeHandler(self)
        super().close()

    def run(self, plan: Sequence[Step], count: int = 3) -> None:
        """`count` users tell their word, then follow the plan of (who, call, whose ids). Raises AssertionError."""
        self._plans += 1
        with ExitStack() as clients:
            people = [self._new_person(number, clients) for number in range(count)]
            self._follow(people, plan)

    def _follow(self, people: Sequence[Person], plan: Sequence[Step]) -> None:
        for number, person in enumerate(people):
            self._step(people, (number, "tell", number), CALLS["tell"](person, person))
        for step in plan:
            who, name, whose = step
            if name == "trespass" and who == whose:
                continue
            self._step(people, step, CALLS[name](people[who], people[whose]))
        for person in people:
            assert person.canary in person.http.get("/v1/export").text, "a canary is lost: nothing was shown"

    def _step(self, people: Sequence[Person], step: Step, answers: Iterator[httpx.Response]) -> None:
        others = [person for number, person in enumerate(people) if number != step[0]]
        prompts = len(self._live.llm.prompts)
        for answer in answers:
            self.calls += 1
            assert answer.status_code < 500, f"{step}: {answer.request.url} {answer.text}"
            texts = [answer.text, str(answer.headers), *self._logged]
            texts += [message.content for prompt in self._live.llm.prompts[prompts:] for message in prompt.messages]
            for person in others:
                assert not any(person.canary in text for text in texts), f"{step}: {answer.request.url}"
            assert not any(people[step[0]].canary in line for line in self._logged), f"{step}: in the log"
            self._logged.clear()

    def _new_person(self, number: int, clients: ExitStack) -> Person:
        name = f"user{self._plans}n{number}"
        _, key = KeyFile(self._live.runtime.settings.key_file).create(KeySettings(user=name), START)
        headers = {"authorization": f"Bearer {key}"}
        http = clients.enter_context(httpx.Client(base_url=self._live.url, headers=headers, timeout=600))
        person = Person(name, f"zq{self._plans}x{number}canary", http)
        http.post("/login", data={"token": _form_token(person), "key": key})
        return person


def _mcp(me: Person, method: str, **parameters: object) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
    return me.http.post("/mcp", content=json.dumps(body), headers={**_ACCEPT, "content-type": "application/json"})


def _form_token(me: Person) -> str:
    return str(re.findall(r'name="token" value="(\w+)"', me.http.get("/login").text)[0])


def _expect_none(answer: httpx.Response) -> httpx.Response:
    assert answer.status_code == _NOT_FOUND, f"{answer.request.method} {answer.request.url}: {answer.status_code}"
    return answer
