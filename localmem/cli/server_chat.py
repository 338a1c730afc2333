"""A conversation of `localmem chat` with a running server, which has the memory and the backbone loaded.

It says what the conversation in this process would say. Imports only the standard library.
"""

import uuid
from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import quote

from localmem.cli.local_server import Document, ServerAccess
from localmem.errors import NotFound

Messages = list[dict[str, str]]


class ServerConversation:
    """One user's conversation with the server; it continues the latest session that is open there."""

    def __init__(self, server: ServerAccess) -> None:
        self.sampling: dict[str, float] = {}
        self._server = server
        self._session, self._messages = "", Messages()
        self._reply: Document | None = None  # what the last reply was based on

    def resume(self) -> datetime | None:
        """Continue the session that is open; the time of its last turn."""
        self._begin()
        sessions: Document = self._server.request("GET", "/v1/sessions", {"state": "open", "limit": 1})
        if not sessions["data"]:
            return None
        self._session = sessions["data"][0]["id"]
        session: Document = self._server.request("GET", f"/v1/sessions/{quote(self._session)}", {})
        self._messages = [{"role": turn["role"], "content": turn["text"]} for turn in session["data"]]
        return datetime.fromisoformat(session["ended"])

    def say(self, text: str) -> Generator[str, None, int]:
        """The reply, logged and remembered; returns its tokens where it was cut at the limit, else 0."""
        headers = {"x-localmem": "write", "x-localmem-session": self._session}
        return (yield from self._say(self._messages, text, headers))

    def say_incognito(self, dialogue: Messages, text: str) -> Generator[str, None, int]:
        """As `say`, without memory; both messages are added to `dialogue`."""
        return (yield from self._say(dialogue, text, {"x-localmem": "off"}))

    def _say(self, dialogue: Messages, text: str, headers: dict[str, str]) -> Generator[str, None, int]:
        dialogue.append({"role": "user", "content": text})
        options = {"include_usage": True, "include_prompt": True}
        body = {"model": "localmem", "messages": dialogue, "stream": True, "stream_options": options, **self.sampling}
        pieces, finish, usage = list[str](), "", Document()
        try:
            with closing(self._server.stream("/v1/chat/completions", body, headers)) as events:
                for event in events:
                    self._reply = event.get("localmem", self._reply)
                    usage = event.get("usage") or usage
                    for choice in event["choices"]:
                        finish = choice["finish_reason"] or finish
                        if words := choice["delta"].get("content"):
                            pieces.append(words)
                            yield words
        finally:
            dialogue.append({"role": "assistant", "content": "".join(pieces)})
        if self._reply and not usage.get("prompt_tokens"):
            self._reply = {**self._reply, "prompt": None}
        return int(usage.get("completion_tokens", 0)) if finish == "length" else 0

    def end(self) -> bool:
        """Close the session; False when none is open."""
        try:
            self._server.request("POST", "/v1/sessions/end", {"session": self._session})
        except NotFound:
            return False
        self._begin()
        return True

    def forget(self, text: str) -> str:
        """Hide what the text names; says what it is."""
        return str(self._server.request("POST", "/v1/memories/forget", {"text": text})["reply"])

    def list_sessions(self) -> list[Document]:
        """The latest sessions."""
        sessions: list[Document] = self._server.request("GET", "/v1/sessions", {"limit": 20})["data"]
        return sessions

    def read_memory(self) -> Document:
        """The memory document."""
        return self._server.request("GET", "/v1/memories/bank", {})

    def explain(self) -> Iterator[str]:
        """What the last reply recalled, and its prompt; nothing without a reply."""
        if self._reply:
            yield from explain_reply(self._reply)

    def finish(self) -> None:
        """The server remembers the closed sessions."""

    def _begin(self) -> None:
        self._session, self._messages = uuid.uuid4().hex[:12], []


def explain_reply(reply: dict[str, Any]) -> Iterator[str]:
    """What a reply was based on, as lines.

    `reply` is the response's field `localmem` with its prompt, None for a reply that asked no model.
    """
    for unit in reply["recalled"]:
        yield f"recalled {unit['id']} ({unit['score']:.3f}): {unit['text']}"
    for working in reply["workings"]:
        yield f"worked out: {working['text']} [turns {', '.join(working['sources'])}]"
    if reply["prompt"] is None:
        yield "no model was asked: the reply was made from memory"
        return
    yield f"prompt {reply['prompt']['name']}, as it was sent:"
    for message in reply["prompt"]["messages"]:
        yield f"[{message['role']}]\n{message['content']}\n"
