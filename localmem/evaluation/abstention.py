"""Does a reply own up to not knowing? A rule for what counts as saying so, and the questions that put it to the test.

The rule looks for words, not for truth: a reply that owns up and then guesses counts all the same. Knows no model.
"""

import re
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from localmem.files import parse, read_yaml

# "I don't know …", "you haven't told me …", "I'm not sure …", "you never mentioned …", "I have no record of …" and
# the like.
RULE = re.compile(
    r"\b(?:do(?:n't| not)|did(?:n't| not)|can(?:'t|not)|could(?:n't| not)|have(?:n't| not)|has(?:n't| not)|never|not)"
    r"(?: (?:yet|really|actually|currently|ever|even|sure|seem to|been|think that you|think you))*"
    r" (?:know|say|tell|told|mention(?:ed)?|recall|remember|sure|aware|talked about|find"
    r"|have (?:any|that|this|the|enough) (?:information|record|memory|details?))\b"
    r"|\bno (?:information|record|memory|idea|mention)\b|\b(?:unknown|unsure)\b",
    re.IGNORECASE,
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Told(_Strict):
    """A question that the conversation answers: any accepted text makes a reply right, any rejected one wrong."""

    question: str
    accept: tuple[str, ...]
    reject: tuple[str, ...] = ()
    about: str = ""


class Case(_Strict):
    """A conversation, the day on which questions are asked, what was told and what never was.

    `questions` is a file whose questions were told, too. Paths are of shipped files.
    """

    conversation: str
    user: str
    today: AwareDatetime
    never: tuple[str, ...]
    told: tuple[Told, ...] = ()
    questions: str | None = None


def abstains(reply: str) -> bool:
    """Whether it says that it does not know."""
    return RULE.search(reply.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")) is not None


def read_cases(path: Path) -> list[Case]:
    """The cases of a file, in order. Raises BadInput."""
    return parse(str(path), read_yaml(path).get("cases"), TypeAdapter(list[Case]), "give a mapping with `cases`")
