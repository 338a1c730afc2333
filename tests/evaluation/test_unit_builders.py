"""Units of every size, and what their keys hold."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from localmem.errors import BadInput
from localmem.evaluation.unit_builders import (
    KeyForm,
    SentenceCache,
    SessionSentences,
    exchanges_of,
    keyed,
    segments_of,
    sentences_of,
    sessions_of,
    turns_of,
)
from localmem.files import JsonlLog
from localmem.segmentation.segmenters import EvenSegmenter
from localmem.text.compress import RandomDrop
from localmem.types import Session
from tests.fakes import session

FIRST = session("I like tea.", "Noted.", "And cake.", "Fine.", "Bye.", name="s1")
SECOND = session("I moved.", "Where?", name="s2")
BOTH = [FIRST, SECOND]


def test_every_unit_says_what_was_said_and_where() -> None:
    assert [unit.text for unit in turns_of(BOTH)][:2] == ["User: I like tea.", "Assistant: Noted."]
    assert [unit.sources for unit in exchanges_of(BOTH)] == [
        ("s1.0", "s1.1"),
        ("s1.2", "s1.3"),
        ("s1.4",),
        ("s2.0", "s2.1"),
    ]
    assert [len(unit.sources) for unit in segments_of(BOTH, EvenSegmenter(2))] == [4, 1, 2]
    assert [unit.session for unit in sessions_of([FIRST, Session("empty"), SECOND])] == ["s1", "s2"]
    assert [unit.text for unit in sentences_of(BOTH, lambda one: [f"about {one.id}"])] == ["about s1", "about s2"]


def test_keys_hold_words_speakers_and_dates() -> None:
    units = turns_of(BOTH)

    def key(form: KeyForm) -> str:
        return keyed(units, BOTH, form)[2].key

    assert key(KeyForm("plain")) == "And cake."
    assert key(KeyForm("speaker")) == "User: And cake."
    assert key(KeyForm("dated")) == "2 March 2026\nUser: And cake."
    assert [unit.text for unit in keyed(units, BOTH, KeyForm("dated"))] == [unit.text for unit in units]


def test_neighbours_lend_their_words_within_a_session() -> None:
    keys = [unit.key for unit in keyed(turns_of(BOTH), BOTH, KeyForm("plain", before=1, after=1))]
    assert keys[0] == "I like tea.\nNoted."
    assert keys[2] == "Noted.\nAnd cake.\nFine."
    assert keys[4:6] == ["Fine.\nBye.", "I moved.\nWhere?"]
    lone = keyed(sentences_of(BOTH, lambda one: ["a", "b"]), BOTH, KeyForm("dated", before=1))
    assert [unit.key for unit in lone][:2] == ["2 March 2026\na", "2 March 2026\na\nb"]


def test_compression_shortens_keys_alone() -> None:
    units = sessions_of(BOTH)
    short = keyed(units, BOTH, KeyForm("speaker", rate=0.5), RandomDrop(0))
    for before, after in zip(units, short, strict=True):
        assert 0 < len(after.key.split()) < len(before.key.split())
        assert after.text == before.text
    with pytest.raises(BadInput, match="needs a compressor"):
        keyed(units, BOTH, KeyForm(rate=0.5))


def test_sentences_are_reused_and_an_interrupted_file_resumes(tmp_path: Path) -> None:
    calls: list[object] = []

    def make(turns: object) -> list[str]:
        calls.append(turns)
        return ["User likes tea."]

    path = tmp_path / "memories.jsonl"

    def read(*sessions: Session, maker: str = "m") -> list[list[str]]:
        with JsonlLog(path, TypeAdapter(SessionSentences)) as log:
            return [SentenceCache(log, maker, make)(session) for session in sessions]

    assert read(FIRST) == read(FIRST) == [["User likes tea."]]
    assert len(calls) == 1
    read(FIRST, maker="another")
    assert len(calls) == 2  # the sentences of another maker are not used
    path.write_text(path.read_text() + '{"digest": "cut in the')
    assert read(FIRST, SECOND) == [["User likes tea."]] * 2
    assert len(calls) == 3
    read(SECOND)
    assert len(calls) == 3
