"""What a person does to memories by hand, beyond what the page's tests see."""

import pytest

from localmem.errors import BadInput, Conflict, NotFound
from localmem.server.memory_editor import MemoryEditor
from tests.fakes import START, session
from tests.server.conftest import LiveServer


@pytest.fixture
def editor(live: LiveServer) -> MemoryEditor:
    live.runtime.agent("me").writer.read([session("My sister Clara lives in Lyon.", "Noted.")])
    return MemoryEditor(live.runtime, live.services.sessions, "me")


def test_an_edit_outlives_a_rebuild(live: LiveServer, editor: MemoryEditor) -> None:
    edited = editor.edit("s1.0@u0", "My sister Clara lives in Turin.", START)
    live.runtime.store.clear("me", live.runtime.settings.system)
    live.runtime.forget_agent("me")
    assert live.runtime.remember_all("me") == 1
    bank = editor.bank
    assert "s1.0@u0" in bank.units
    assert not bank.is_live("s1.0@u0")
    assert bank.is_live(edited.id)


def test_edits_are_undone_from_the_last_one_back(editor: MemoryEditor) -> None:
    first = editor.edit("s1.0@u0", "My sister Clara lives in Turin.", START)
    second = editor.edit(first.id, "My sister Clara lives in Milan.", START)
    with pytest.raises(Conflict, match="later edit"):
        editor.undo(f"edit:{first.id}")
    editor.undo(f"edit:{second.id}")
    editor.undo(f"edit:{first.id}")
    assert [unit.id for unit in editor.bank.live() if "Clara" in unit.text] == ["s1.0@u0"]


def test_what_is_put_away_or_missing_cannot_be_changed(editor: MemoryEditor) -> None:
    editor.never_recall("s1.0@u0", START)
    for change in (lambda: editor.edit("s1.0@u0", "x", START), lambda: editor.pin("none", START, pinned=True)):
        with pytest.raises(NotFound):
            change()
    with pytest.raises(BadInput, match="empty"):
        editor.add("  ", START, START)
