"""What a teacher's lessons are collected from: data sets, logs without questions, and the memory that is already here.

Every reply in a conversation becomes a probe, so that the teacher replies there, too, with the memory of the sessions
before. Prints nothing; notes go to a function that the caller passes.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from finetune.traces.division import describe_division
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.datasets.readers import next_turn_probes
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Half, half_of
from localmem.experiments.runs import Notify
from localmem.store import Store
from localmem.store.opening import open_store
from localmem.types import Session

STORE = "store"  # the name of the memory that is here, as a data set
_PRIVATE = "the lessons hold what users said here; `localmem forget` does not reach them, so delete the folder yourself"


def read_sources(
    settings: Settings,
    datasets: Mapping[str, Path],
    *,
    from_store: bool,
    half: Half | None,
    sessions: int | None,
    limit: int | None,
    notify: Notify,
) -> list[Dataset]:
    """The data sets, and with `from_store` the memory of the settings, each with a probe at every reply.

    `half` divides data sets with questions only: a log has nothing that settings could be chosen on. `limit` is the
    number of questions and replies of each. Says beforehand which part of the lessons would be empty. Raises BadInput.
    """
    if not datasets and not from_store:
        raise BadInput(
            "there is nothing to collect from; give --data NAME=FILE, such as jsonl=log.jsonl, or --from-store"
        )
    sources = [_select_half(read_dataset(name, path), half) for name, path in datasets.items()]
    if from_store:
        sources.append(read_store(settings))
        notify(_PRIVATE)
    if sessions:
        sources = [source.last_sessions(sessions) for source in sources]
    conversations = {
        (source.name, episode.id): len(episode.sessions) for source in sources for episode in source.episodes
    }
    for line in describe_division(conversations):
        notify(line)
    return [with_replies(source).select(None, limit) for source in sources]


def _select_half(dataset: Dataset, half: Half | None) -> Dataset:
    if half is None or not any(episode.probes for episode in dataset.episodes):
        return dataset
    selected = dataset.select(half)
    if not selected.episodes:
        raise BadInput(
            f"the half {half!r} of {dataset.name} holds none of its {len(dataset.episodes)} conversations; use "
            "--set split=null"
        )
    return selected


def with_replies(dataset: Dataset) -> Dataset:
    """The data set with a probe for each of the assistant's replies, asked with the memory of the sessions before."""
    return replace(dataset, episodes=tuple(map(_episode_with_replies, dataset.episodes)))


def _episode_with_replies(episode: Episode) -> Episode:
    before = (BEFORE_ALL, *(session.id for session in episode.sessions))
    probes = tuple(
        replace(probe, sessions=(session.id,))
        for after, session in zip(before, episode.sessions, strict=False)
        for probe in next_turn_probes(
            session.id,
            session.turns,
            kind="reply",
            after=after,
            repliers={turn.speaker for turn in session.turns if turn.role == "assistant"},
        )
    )
    return replace(episode, probes=(*episode.probes, *probes))


def read_store(settings: Settings) -> Dataset:
    """Every user's conversations in the store of the settings, without the turns that some memory was to forget.

    Raises BadInput if there are none.
    """
    with open_store(settings) as store:
        episodes = [episode for user in store.users() if (episode := _read_user(store, user))]
    if not episodes:
        raise BadInput(f"no conversation is stored in {settings.data}; talk first, or give --data NAME=FILE")
    text = json.dumps([[turn.id for turn in session.turns] for own in episodes for session in own.sessions])
    return Dataset(STORE, sha256(text.encode()).hexdigest(), tuple(episodes))


def _read_user(store: Store, user: str) -> Episode | None:
    sessions = [store.session(user, info.id) for info in store.sessions(user)]
    for system in store.systems(user):
        bank = store.bank(user, system)
        sessions = [bank.visible(session) for session in sessions]
    remaining = tuple(session for session in sessions if session.turns)
    return Episode(user, half_of(user), tuple(sorted(remaining, key=_start)), ()) if remaining else None


def _start(session: Session) -> datetime:
    return session.turns[0].time
