"""Units of every size, and what their keys contain."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from localmem.errors import BadInput
from localmem.evaluation.evidence_retrieval import (
    KeyForm,
    SentenceCache,
    SessionSentences,
    apply_key_form,
    build_exchanges,
    build_memories,
    build_segments,
    build_sessions,
    build_turns,
)
from localmem.files import JsonlLog
from localmem.segmentation.segmenters import EvenSegmenter
from localmem.text.compress import RandomDrop
from localmem.types import Session
from tests.fakes import session

FIRST = session("I like tea.", "Noted.", "And cake.", "Fine.", "Bye.", name="s1")
SECOND = session("I moved.", "Where?", name="s2")
BOTH = [FIRST, SECOND]


def test_units_have_the_words_and_the_sources_of_their_turns() -> None:
    assert [unit.text for unit in build_turns(BOTH)][:2] == ["User: I like tea.", "Assistant: Noted."]
    assert [unit.sources for unit in build_exchanges(BOTH)] == [
        ("s1.0", "s1.1"),
        ("s1.2", "s1.3"),
        ("s1.4",),
        ("s2.0", "s2.1"),
    ]
    assert [len(unit.sources) for unit in build_segments(BOTH, EvenSegmenter(2))] == [4, 1, 2]
    assert [unit.session for unit in build_sessions([FIRST, Session("empty"), SECOND])] == ["s1", "s2"]
    memories = build_memories(BOTH, lambda session: [f"about {session.id}"])
    assert [unit.text for unit in memories] == ["about s1", "about s2"]


def test_keys_contain_words_speakers_and_dates() -> None:
    units = build_turns(BOTH)

    def key(form: KeyForm) -> str:
        return apply_key_form(units, BOTH, form)[2].key

    assert key(KeyForm("plain")) == "And cake."
    assert key(KeyForm("speaker")) == "User: And cake."
    assert key(KeyForm("dated")) == "2 March 2026\nUser: And cake."
    assert [unit.text for unit in apply_key_form(units, BOTH, KeyForm("dated"))] == [unit.text for unit in units]


def test_keys_include_neighbours_of_the_same_session() -> None:
    keys = [unit.key for unit in apply_key_form(build_turns(BOTH), BOTH, KeyForm("plain", before=1, after=1))]
    assert keys[0] == "I like tea.\nNoted."
    assert keys[2] == "Noted.\nAnd cake.\nFine."
    assert keys[4:6] == ["Fine.\nBye.", "I moved.\nWhere?"]
    memories = apply_key_form(build_memories(BOTH, lambda _: ["a", "b"]), BOTH, KeyForm("dated", before=1))
    assert [unit.key for unit in memories][:2] == ["2 March 2026\na", "2 March 2026\na\nb"]


def test_compression_shortens_keys_only() -> None:
    units = build_sessions(BOTH)
    compressed = apply_key_form(units, BOTH, KeyForm("speaker", rate=0.5), RandomDrop(0))
    for before, after in zip(units, compressed, strict=True):
        assert 0 < len(after.key.split()) < len(before.key.split())
        assert after.text == before.text
    with pytest.raises(BadInput, match="needs a compressor"):
        apply_key_form(units, BOTH, KeyForm(rate=0.5))


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
