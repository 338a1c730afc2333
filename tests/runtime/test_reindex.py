"""Another encoder: refused when a memory is opened, taken over by reindexing, which an interruption does not undo."""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem import runtime as runtime_module
from localmem.config import Settings, load_settings
from localmem.errors import EncoderMismatch
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.base import Side
from localmem.retrieval.encoder import CachedEncoder
from localmem.runtime import Reindexed, Runtime
from localmem.store import Store
from tests.fakes import START, WordEncoder, session

DOG, TOWN = "My dog is called Bruno.", "I live in Lyon."


def key(text: str) -> str:
    """Of the unit that the system makes of an exchange."""
    return f"User: {text}\nAssistant: I see."


class OtherEncoder(WordEncoder):
    """The same words, another encoder."""

    identity = "other@2"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={"data": tmp_path / "data", "system": "exchange_retrieval"})


@pytest.fixture
def build_encoder(monkeypatch: pytest.MonkeyPatch) -> Callable[[WordEncoder], None]:
    """What the settings' encoder is from now on."""

    def chosen(encoder: WordEncoder) -> None:
        monkeypatch.setattr("localmem.factory.encoder", lambda _settings, cache: CachedEncoder(encoder, cache))

    chosen(WordEncoder())
    return chosen


def _open(settings: Settings) -> Runtime:
    return Runtime(settings, llm=ScriptedLLM(lambda prompt: "I see."))


def _told(settings: Settings, *users: str) -> None:
    with _open(settings) as runtime:
        for user in users:
            agent = runtime.agent(user)
            agent.writer.read([session(f"{user}: {DOG}", "I see.", name="s1"), session(TOWN, "I see.", name="s2")])
            assert _found(runtime, user) == [key(f"{user}: {DOG}")]


def _found(runtime: Runtime, user: str) -> list[str]:
    return [hit.unit.key for hit in runtime.agent(user).memory.search("dog called Bruno", 1)]


def test_another_encoder_is_refused_before_anything_is_encoded(
    settings: Settings, build_encoder: Callable[[WordEncoder], None]
) -> None:
    _told(settings, "ann")
    other = OtherEncoder()
    build_encoder(other)
    with (
        _open(settings) as runtime,
        pytest.raises(EncoderMismatch, match="'words-512', not 'other@2'; run `localmem re"),
    ):
        runtime.agent("ann")
    assert other.encoded == []


def test_reindexing_takes_over_and_the_old_encoder_is_refused(
    settings: Settings, build_encoder: Callable[[WordEncoder], None]
) -> None:
    _told(settings, "ann", "bob")
    build_encoder(OtherEncoder())
    with _open(settings) as runtime:
        file = runtime.store.indexes.path("ann", settings.system, "words-512")
        assert file is not None
        file.parent.mkdir(parents=True)
        file.write_bytes(b"vectors of the old one")
        summary = runtime.reindex(iter)
        assert summary == Reindexed("other@2", 512, keys=3, encoded=3, dropped=3)
        assert not file.exists()
        assert runtime.store.vectors.encoder() == ("other@2", 512)
        assert _found(runtime, "bob") == [key(f"bob: {DOG}")]
        assert runtime.reindex(iter) == Reindexed("other@2", 512, keys=3, encoded=0, dropped=0)
    build_encoder(WordEncoder())
    with _open(settings) as runtime, pytest.raises(EncoderMismatch):
        runtime.agent("ann")


def test_an_interrupted_run_goes_on_where_it_was(
    settings: Settings, build_encoder: Callable[[WordEncoder], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "_BATCH", 1)
    _told(settings, "ann", "bob")

    def interrupted(batches: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
        yield from batches[:2]
        raise KeyboardInterrupt

    build_encoder(first := OtherEncoder())
    with _open(settings) as runtime, pytest.raises(KeyboardInterrupt):
        runtime.reindex(interrupted)
    assert len(first.encoded) == 2

    build_encoder(WordEncoder())
    with _open(settings) as runtime:  # the old encoder is as it was
        assert _found(runtime, "ann") == [key(f"ann: {DOG}")]
        assert runtime.store.vectors.encoder() == ("words-512", 512)

    build_encoder(second := OtherEncoder())
    with _open(settings) as runtime:
        assert runtime.reindex(iter).encoded == 1
    assert sorted(first.encoded + second.encoded) == sorted(map(key, (f"ann: {DOG}", f"bob: {DOG}", TOWN)))


def test_what_is_remembered_while_it_runs_is_encoded_too(
    settings: Settings, build_encoder: Callable[[WordEncoder], None]
) -> None:
    _told(settings, "ann")
    with _open(settings) as server:
        server.encoder()  # made before the settings change
        build_encoder(OtherEncoder())

        def meanwhile(batches: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
            server.agent("ann").writer.read([session("I bought a piano.", "I see.", name=f"s3-{len(batches[0])}")])
            return batches

        with _open(settings) as runtime:
            summary = runtime.reindex(meanwhile)
        assert summary.encoded == summary.keys == 3


def test_a_server_that_runs_meanwhile_is_refused_and_loses_nothing(
    settings: Settings, build_encoder: Callable[[WordEncoder], None], caplog: pytest.LogCaptureFixture
) -> None:
    _told(settings, "ann", "bob")
    with _open(settings) as runtime:
        runtime.agent("bob").log_turns("I bought a tent.", START + timedelta(days=9))
        runtime.agent("bob").close()
    with _open(settings) as server:
        assert _found(server, "ann") == [key(f"ann: {DOG}")]
        build_encoder(OtherEncoder())
        with _open(settings) as runtime:
            runtime.reindex(iter)
        assert _found(server, "ann") == [key(f"ann: {DOG}")]  # from memory, old vectors among themselves
        server.agent("ann").log_turns("I bought a piano.", START + timedelta(days=9))
        server.agent("ann").close()
        with caplog.at_level(logging.WARNING):
            server.remember_all("ann")
            assert server.remember_all("bob") == 0
        assert caplog.text.count("`localmem reindex`") == 2
        with pytest.raises(EncoderMismatch):
            server.agent("bob")
    with _open(settings) as runtime:
        assert [(job.user, job.state, job.attempts) for job in runtime.waiting_jobs()] == [("bob", "pending", 0)]
        assert runtime.remember_all("bob") == 1
        for user, bought in (("ann", "piano"), ("bob", "tent")):
            (hit,) = runtime.agent(user).memory.search(f"a {bought}", 1)
            assert f"I bought a {bought}." in hit.unit.key


def test_real_weights_take_over_from_another_encoder(settings: Settings, starter_encoder_dir: Path) -> None:
    with Store.open(settings.data) as store:
        CachedEncoder(OtherEncoder(), store.vectors).encode([TOWN], "passage")
    with _open(settings) as runtime:
        with pytest.raises(EncoderMismatch, match="by the encoder 'other@2', not 'minilm-l6-v2@"):
            runtime.agent("ann")
        summary = runtime.reindex(iter)
        assert summary.encoder.startswith("minilm-l6-v2@")
        assert (summary.dimension, summary.keys, summary.dropped) == (384, 0, 1)
        runtime.agent("ann").writer.read([session(f"ann: {DOG}", "I see.")])
        assert [hit.unit.key for hit in runtime.agent("ann").memory.search("the pet's name", 1)] == [key(f"ann: {DOG}")]


def test_bm25_needs_no_encoder_and_is_never_refused(settings: Settings) -> None:
    with Store.open(settings.data) as store:
        CachedEncoder(OtherEncoder(), store.vectors).encode([TOWN], "passage")
    words = load_settings(flags={"data": settings.data, "system": settings.system, "retrieval": {"retriever": "bm25"}})
    with _open(words) as runtime:
        runtime.agent("ann").writer.read([session(f"ann: {DOG}", "I see.")])
        assert _found(runtime, "ann") == [key(f"ann: {DOG}")]


class Wrong(WordEncoder):
    """Gives no numbers."""

    identity = "wrong@3"

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        return np.full((len(texts), self.dimension), np.nan, dtype=np.float32)


def test_an_encoder_that_fails_changes_nothing(
    settings: Settings, build_encoder: Callable[[WordEncoder], None]
) -> None:
    from localmem.errors import BadVectors

    _told(settings, "ann")
    build_encoder(Wrong())
    with _open(settings) as runtime, pytest.raises(BadVectors):
        runtime.reindex(iter)
    build_encoder(WordEncoder())
    with _open(settings) as runtime:
        assert _found(runtime, "ann") == [key(f"ann: {DOG}")]
