"""Forgetting replies: memory's own replies to requests to forget and to take that back, in the language of the request.

The texts stand in forgetting_replies.yaml. Does not know how what is hidden is chosen.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from localmem.files import read_yaml
from localmem.turns.foreign_forget_requests import languages_of_request
from localmem.turns.restore_requests import languages_of_restoring
from localmem.turns.utterances import language_of


class Replies(BaseModel):
    """The replies of one language; see forgetting_replies.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    not_changed: str
    unclear: str
    everything: str
    nothing: str
    nearest: str
    many: str
    hidden: str
    repeated: str
    cut: str
    coarse: str
    how_to_go_on: str
    restored: str
    not_hidden: str
    quote: str


def language_of_request(text: str) -> str:
    """The ISO 639-1 code of the language in which a message asks to forget, or to take that back."""
    likely, languages = language_of(text), [*languages_of_restoring(text), *languages_of_request(text)]
    return likely if likely in languages or not languages else languages[0]


def replies_to(text: str) -> Replies:
    """The replies in the language of a request."""
    table = _read()
    return table.get(language_of_request(text), table["en"])


@cache
def _read() -> Mapping[str, Replies]:
    table = read_yaml(Path(__file__).with_suffix(".yaml"))
    return TypeAdapter(dict[str, Replies]).validate_python(table)
