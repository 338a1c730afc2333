"""Users of a server over HTTP who note what it acknowledged, and the comparison of that with the store.

Each user's messages are numbered, so that a turn that is lost, doubled or mixed up with another one's is seen. Knows
the server by its address and keys only.
"""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from localmem.runtime import Runtime
from localmem.store import Store
from localmem.types import Session

REPLY = "You said: "
GONE = (ConnectionError, http.client.HTTPException, TimeoutError)
_CHAT, _END, _EXPORT = "/v1/chat/completions", "/v1/sessions/end", "/v1/export"


@dataclass
class Notes:
    """What one user was told. `heard` are turns that are durable; `replies` the replies to them, by the turn's text."""

    sent: list[str] = field(default_factory=list)
    heard: set[str] = field(default_factory=set)
    replies: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    exports: int = 0
    refused: int = 0
    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Client:
    """One user, who talks until told to stop or until the server is gone."""

    def __init__(self, number: int, notes: Notes, chance: random.Random) -> None:
        self.user, self.notes, self._chance = f"user{number:04d}", notes, chance
        self._headers = {"authorization": f"Bearer key-of-{number:04d}", "content-type": "application/json"}
        self._session = len(notes.ended)
        self._streams = number % 2 == 0

    def talk(self, port: int, stop: threading.Event, pause: float = 0.0) -> None:
        """Chat; now and then end the session, or export everything.

        One who pauses opens a connection for each act, as the server closes idle ones, and notes an end of it as an
        error; without pauses the server is there to be killed.
        """
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            while not stop.is_set():
                self._act(connection)
                if pause:
                    connection.close()
                    stop.wait(pause * 2 * self._chance.random())
        except GONE as error:
            self.notes.errors += [f"the connection ended: {error!r}"] if pause else []
        finally:
            connection.close()

    def chat(self, connection: http.client.HTTPConnection, more: str = "") -> int:
        """One exchange; the status."""
        text = f"{self.user} keeps {len(self.notes.sent)} bees in a garden{more}."
        self.notes.sent.append(text)
        body = {"model": "localmem", "messages": [{"role": "user", "content": text}], "stream": self._streams}
        start = time.perf_counter()
        response = self._ask(connection, "POST", _CHAT, body, {"x-localmem-session": self._name})
        if response.status == 200:
            self.notes.heard |= {text} if self._streams else set()
            reply = read_reply(response, streams=self._streams)
            self.notes.heard.add(text)
            self.notes.replies[text] = reply
            self.notes.seconds.append(time.perf_counter() - start)
        elif response.status == 429:
            response.read()
            self.notes.sent.pop()
            self.notes.refused += 1
            time.sleep(min(0.5, float(response.headers["retry-after"])))
        else:
            self.notes.errors.append(f"{response.status} {response.read()!r}")
        return response.status

    def _act(self, connection: http.client.HTTPConnection) -> None:
        self.chat(connection)
        if self._chance.random() < 0.2:
            response = self._ask(connection, "POST", _END, {"session": self._name}, {})
            text = response.read()
            if response.status == 200:
                self.notes.ended.add(self._name)
                self._session += 1
            elif response.status != 404:  # a turn that was refused began no session
                self.notes.errors.append(f"{response.status} {text!r}")
        if self._chance.random() < 0.1:
            response = self._ask(connection, "GET", _EXPORT, None, {})
            for line in response.read().splitlines():
                json.loads(line)
            self.notes.exports += response.status == 200

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {**self._headers, **headers})
        return connection.getresponse()

    @property
    def _name(self) -> str:
        return f"{self.user}-{self._session}"


def read_reply(response: http.client.HTTPResponse, *, streams: bool) -> str:
    """The words of a reply. Raises what a connection raises that did not come to its end."""
    return _read_stream(response) if streams else _read_document(response)


def _read_stream(response: http.client.HTTPResponse) -> str:
    """The words of a stream that came to its end. Raises what a connection raises that did not."""
    words, is_complete = [], False
    for line in response:
        event = line.decode().removeprefix("data: ").strip()
        if event == "[DONE]":
            is_complete = True
        elif event:
            choices = json.loads(event).get("choices") or [{}]
            words.append(choices[0].get("delta", {}).get("content") or "")
    if not is_complete:
        raise http.client.IncompleteRead(b"")
    return "".join(words)


def _read_document(response: http.client.HTTPResponse) -> str:
    return str(json.loads(response.read())["choices"][0]["message"]["content"])


def check_notes(store: Store, user: str, notes: Notes) -> None:
    """What the user was told is in the store once, and nothing else is. Raises AssertionError."""
    assert notes.errors == [], notes.errors[:3]
    sessions = [store.session(user, info.id) for info in store.sessions(user)]
    counts = Counter(turn.text for session in sessions for turn in session.turns if turn.role == "user")
    assert not counts or max(counts.values()) == 1, f"{user}: doubled: {counts.most_common(2)}"
    assert notes.heard <= counts.keys(), f"{user}: lost: {sorted(notes.heard - counts.keys())}"
    assert counts.keys() <= set(notes.sent), f"{user}: not said: {sorted(counts.keys() - set(notes.sent))}"
    replies = _replies(sessions)
    for text, reply in notes.replies.items():
        assert replies.get(text) == [reply], f"{user}: {text!r} has the replies {replies.get(text)}, not {reply!r}"
    states = {info.id: info.state for info in store.sessions(user)}
    assert all(states.get(name) == "closed" for name in notes.ended), f"{user}: an end of a session is lost"


def check_memory(runtime: Runtime, user: str) -> None:
    """Do what waits; then every end is whole, and each turn is in the memory once. Raises AssertionError.

    A turn that was logged at the moment of the kill enters the memory with the end of its session.
    """
    system = runtime.settings.system
    runtime.remember_all(user)
    infos = runtime.store.sessions(user)
    assert all(info.jobs.get(system) == "done" for info in infos if info.state == "closed"), f"{user}: half an end"
    first_units = (unit for unit in runtime.store.bank(user, system).live() if unit.id.endswith("0"))
    sources = Counter(unit.sources[-1] for unit in first_units)  # an answer names its question first
    for info in infos:
        for turn in runtime.store.session(user, info.id).turns:
            expected = {1} if turn.role == "user" and info.state == "closed" else {0, 1}
            assert sources[turn.id] in expected, f"{user}: {turn.text!r} is in the memory {sources[turn.id]} times"


def _replies(sessions: list[Session]) -> dict[str, list[str]]:
    """The texts of the assistant's turns by the text of the user's turn before them."""
    replies: dict[str, list[str]] = {}
    for session in sessions:
        question = ""
        for turn in session.turns:
            if turn.role == "user":
                question = turn.text
            else:
                replies.setdefault(question, []).append(turn.text)
    return replies
