"""What a person does to memories by hand, beyond what the page's tests see."""

import pytest

from localmem.errors import BadInput, Conflict, NotFound
from localmem.server.memory_editor import MemoryEditor
from localmem.turns.pins import pinned_units
from localmem.types import AddLink, Link
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


def test_a_pin_outlives_a_rebuild(live: LiveServer, editor: MemoryEditor) -> None:
    editor.pin("s1.0@u0", START, pinned=True)
    live.runtime.store.clear("me", live.runtime.settings.system)
    live.runtime.forget_agent("me")
    assert pinned_units(editor.bank) == []
    assert live.runtime.remember_all("me") == 1
    assert [unit.id for unit in pinned_units(editor.bank)] == ["s1.0@u0"]
    editor.pin("s1.0@u0", START, pinned=False)
    assert pinned_units(editor.bank) == []


def test_edits_are_undone_from_the_last_one_back(editor: MemoryEditor) -> None:
    first = editor.edit("s1.0@u0", "My sister Clara lives in Turin.", START)
    second = editor.edit(first.id, "My sister Clara lives in Milan.", START)
    with pytest.raises(Conflict, match="later edit"):
        editor.undo(f"edit:{first.id}")
    editor.undo(f"edit:{second.id}")
    editor.undo(f"edit:{first.id}")
    assert [unit.id for unit in editor.bank.live() if "Clara" in unit.text] == ["s1.0@u0"]


def test_of_two_edits_at_once_the_second_is_refused(
    live: LiveServer, editor: MemoryEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit_meanwhile(_user: str, _texts: object) -> list[str]:
        monkeypatch.undo()
        editor.edit("s1.0@u0", "My sister Clara lives in Turin.", START)
        return []

    monkeypatch.setattr(live.runtime.store, "replies_with", edit_meanwhile)
    with pytest.raises(NotFound, match="may have been replaced"):
        editor.edit("s1.0@u0", "My sister Clara lives in Milan.", START)
    assert [unit.text for unit in editor.bank.live() if "Clara" in unit.text] == [
        "User: My sister Clara lives in Turin."
    ]


def test_replies_that_quoted_a_memory_go_with_it(live: LiveServer, editor: MemoryEditor) -> None:
    live.runtime.agent("me").writer.read(
        [session("Where is she?", 'You said: "My sister Clara lives in Lyon."', name="s2")]
    )
    edited = editor.edit("s1.0@u0", "My sister Clara lives in Turin.", START)
    assert "s2.1" in editor.bank.hidden
    editor.undo(f"edit:{edited.id}")
    assert not editor.bank.hidden
    assert editor.erase("s1.0@u0", sources=True).remaining == 0
    assert "Lyon" not in "\n".join(live.runtime.store.export("me"))


def test_a_memory_of_a_session_that_was_undone_is_erased(live: LiveServer, editor: MemoryEditor) -> None:
    live.runtime.store.undo("me", live.runtime.settings.system, "s1")
    live.runtime.forget_agent("me")
    assert "s1.0@u0" not in editor.bank.units
    assert editor.erase("s1.0@u0", sources=True).remaining == 0
    assert "Lyon" not in "\n".join(live.runtime.store.export("me"))


def test_an_edit_takes_over_the_links(live: LiveServer, editor: MemoryEditor) -> None:
    editor.add("My sister Clara lives in Nice.", START, START)
    (note,) = [unit for unit in editor.bank.live() if "Nice" in unit.text]
    link = AddLink(Link("s1.0@u0", note.id, "supersedes", 0.9), START)
    live.runtime.agent("me").writer.commit("test", [link])
    edited = editor.edit("s1.0@u0", "My sister Clara lives in Turin.", START)
    assert Link(edited.id, note.id, "supersedes", 0.9) in editor.bank.links


OFFICE = "My office is on the third floor there."
BAKERY = "I work at the Acme bakery in Leeds."


@pytest.mark.parametrize(
    ("text", "relations"),
    [(BAKERY, set()), (f"{OFFICE} {BAKERY}", {"supersedes:1"}), (f"{BAKERY} We sell bread there.", set())],
)
def test_an_edit_keeps_a_link_to_a_sentence_only_with_that_sentence(
    text: str, relations: set[str], live: LiveServer, editor: MemoryEditor
) -> None:
    moved = "My office is on the fifth floor now."
    agent = live.runtime.agent("me")
    agent.writer.read([session(f"{BAKERY} {OFFICE}", name="s2"), session(moved, name="s3")])
    links = [Link("s3.0@u0", "s2.0@u0", relation) for relation in ("supersedes:2", "doubts")]
    agent.writer.commit("test", [AddLink(link, START) for link in links])
    edited = editor.edit("s2.0@u0", text, START)
    assert {link.relation for link in editor.bank.links if link.target == edited.id} == relations
    recalled = agent.memory.recall(session("On which floor is the bakery office where I work?", name="q")).text
    assert "bakery" in recalled
    assert "third floor" not in recalled


def test_what_is_put_away_or_missing_cannot_be_changed(editor: MemoryEditor) -> None:
    editor.never_recall("s1.0@u0", START)
    for change in (lambda: editor.edit("s1.0@u0", "x", START), lambda: editor.pin("none", START, pinned=True)):
        with pytest.raises(NotFound):
            change()
    with pytest.raises(BadInput, match="empty"):
        editor.add("  ", START, START)


def test_a_text_with_nul_is_no_memory_by_any_door(live: LiveServer, editor: MemoryEditor) -> None:
    before, text = dict(editor.bank.units), "My cat is\0 Tom."
    with pytest.raises(BadInput, match="the character NUL; leave it out"):
        editor.add(text, START, START)
    for refused in (
        live.http().post("/v1/memories", json={"text": text}),
        live.http().patch("/v1/memories/s1.0@u0", json={"text": text}),
    ):
        assert (refused.status_code, "the character NUL" in refused.text) == (400, True)
    assert editor.bank.units == before
