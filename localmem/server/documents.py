"""The responses of the server's own routes, for readers of its OpenAPI description.

The routes write plain dictionaries; a test checks that what they write is what is described here.
"""

from datetime import datetime
from typing import Any, Literal

from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MemoryDocument(_Document):
    """A unit. `time` is that of the event, `learned` when it was added; `spans` are the times that its text names.

    `origin` is whose words they are. `quarantined` is the sign by which it is withheld from memory until a release.
    `score` is there after a search, `replaces` after an edit.
    """

    object: Literal["memory"]
    id: str
    text: str
    key: str
    kind: str
    speaker: str
    session: str
    sources: list[str]
    time: datetime
    learned: datetime
    spans: list[dict[str, Any]]
    over_since: str | None
    origin: Literal["user", "assistant", "dialogue", "document", "client", "api"]
    quarantined: str
    retired: bool
    score: float = 0
    replaces: str = ""


class MemoryPage(_Document):
    """Some of the units, and the notes."""

    object: Literal["list"]
    data: list[MemoryDocument]
    has_more: bool = False
    notes: dict[str, str] = {}


class TurnDocument(_Document):
    """A message of a session; `is_cut` marks a reply that was broken off."""

    id: str
    is_cut: bool
    role: Literal["user", "assistant"]
    speaker: str
    text: str
    time: datetime


class SessionDocument(_Document):
    """A session; `data` are its turns where it was asked for alone."""

    object: Literal["session"]
    id: str
    state: Literal["open", "closed"]
    started: datetime
    ended: datetime
    turns: int
    first_words: str
    remembered: bool
    data: list[TurnDocument] = []


class SessionPage(_Document):
    """Some of the sessions."""

    object: Literal["list"]
    data: list[SessionDocument]
    has_more: bool


class AddedSession(_Document):
    """Whether a past session was new, there already, or erased and therefore left out."""

    id: str
    status: Literal["added", "present", "erased"]


class AddedSessions(_Document):
    """The past sessions in the order in which they were sent."""

    object: Literal["list"]
    data: list[AddedSession]


class JobDocument(_Document):
    """Whether a session is remembered; a failed job is tried again."""

    object: Literal["job"]
    session: str
    status: Literal["open", "pending", "running", "failed", "done"]


class JobPage(_Document):
    """The jobs that were asked for; `done` tells whether all are."""

    object: Literal["list"]
    data: list[JobDocument]
    done: bool


class Erasure(_Document):
    """A receipt: deleted rows by table, pieces of text that were searched for in the files, and those still there."""

    object: Literal["erasure"]
    what: str
    rows: dict[str, int]
    checked: int
    remaining: int | None
    reread: dict[str, list[str]]
    sources: list[str]
    files: list[str] = []
    time: datetime | None = None
    key: str = ""
    signature: str = ""


class ImportDocument(_Document):
    """What an import read; `new` is false where all of it was there, `erased` sessions were left out."""

    object: Literal["import"]
    user: str
    sessions: int
    turns: int
    batches: int
    new: bool
    erased: int


class RecalledDocument(BaseModel):
    """What a chat would be shown for a text, and the units it is made of."""

    model_config = ConfigDict(extra="allow")

    text: str


class EndedSessions(_Document):
    """The sessions that were closed."""

    object: Literal["list"]
    ended: list[str]


class UserDocument(_Document):
    """A user."""

    id: str
    object: Literal["user"]


class UserPage(_Document):
    """All users."""

    object: Literal["list"]
    data: list[UserDocument]


class ErrorBody(_Document):
    """What is wrong; `param` names the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorDocument(_Document):
    """An error; Anthropic's and Ollama's routes write it in their own form."""

    error: ErrorBody


def written_as(media_type: str) -> dict[str, Any]:
    """The arguments of a route whose response is no JSON document."""
    return {"response_class": Response, "responses": {200: {"content": {media_type: {"schema": {"type": "string"}}}}}}


def describe_response(model: type[BaseModel], status: int = 200) -> dict[str, Any]:
    """The arguments of a route that describe its response."""
    return {"status_code": status, "response_model": None, "responses": {status: {"model": model}}}
