"""PrefEval (Zhao et al., ICLR 2025): a preference, stated or implied, and later a request that tempts one to forget it.

Source: amazon-science/PrefEval on GitHub: a file of benchmark_dataset/explicit_preference or implicit_preference, with
filtered_inter_turns.json (conversations from LMSYS-Chat-1M) in benchmark_dataset. Licence: CC BY-NC 4.0.

An item is an episode: the preference, the choice among options that implies it, or the persona's conversation is its
first session, and the same five conversations about other matters follow where that file is present. What the
assistant says to a stated preference is a model's in the paper and is not published, so it says nothing. The evidence
is the first session; there are no gold answers. There are no times: sessions are a day apart from 1970 on.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import UNDATED, Reading, Record, build_session, read_episodes
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.files import read_json
from localmem.types import Session

COUNTS = range(40, 61)  # preferences of a topic
BETWEEN = 5  # conversations about other matters

_OTHERS = "filtered_inter_turns.json"
_USER, _BOT = "User", "Assistant"
_CHOICE = ("query", "assistant_options", "user_selection", "assistant_acknowledgment")


class _Item(Record):
    preference: str = Field(min_length=1)
    question: str
    conversation: dict[str, str | dict[str, str]] = Field(default_factory=dict)


class _Message(Record):
    role: str
    content: str


class _Other(Record):
    conversation: list[_Message] = Field(min_length=1)


def read(path: Path) -> Dataset:
    """One episode per preference. Raises BadInput with file and record."""
    others = _others(path)
    kind = path.parent.name.replace("_", " ")

    def episode(place: str, record: _Item, reading: Reading) -> Episode:
        reading.oddities["preferences without conversations about other matters after them"] += not others
        name = reading.unique(f"{path.stem}-{reading.records}")
        first = build_session(f"{name}/preference", _utterances(place, record), _USER, UNDATED)
        evidence = tuple(turn.id for turn in first.turns if turn.role == "user")
        probe = Probe(f"{name}/q", record.question, "", kind, evidence=evidence, sessions=(first.id,), kind="next")
        return Episode(name, half_of(name), (first, *others), (probe,))

    return read_episodes("prefeval", path, _Item, episode, preferences=COUNTS)


def _utterances(place: str, record: _Item) -> list[tuple[str, str]]:
    talk = record.conversation
    if not talk:
        return [(_USER, record.preference)]
    choice = [talk.get(field) for field in _CHOICE]
    if all(isinstance(text, str) for text in choice):
        return [(_BOT if number % 2 else _USER, str(text)) for number, text in enumerate(choice)]
    pairs = [turn for turn in talk.values() if isinstance(turn, dict)]
    utterances = [
        (who, turn[key]) for turn in pairs for who, key in ((_USER, "user"), (_BOT, "assistant")) if key in turn
    ]
    if not utterances:
        raise BadInput(f"{place}: conversation has neither a choice nor turns; use PrefEval's own file")
    return utterances


def _others(path: Path) -> tuple[Session, ...]:
    files = [folder / _OTHERS for folder in path.parents[:3] if (folder / _OTHERS).is_file()]
    conversations: Sequence[_Other] = read_json(files[0], list[_Other], readers.CURE)[:BETWEEN] if files else ()
    return tuple(
        build_session(
            f"other-{day}",
            ((_USER if turn.role == "user" else _BOT, turn.content) for turn in other.conversation),
            _USER,
            UNDATED + timedelta(days=day),
        )
        for day, other in enumerate(conversations, start=1)
    )
