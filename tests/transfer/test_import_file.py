"""Moving in: each program's published format, what is skipped and said so, and times that a file lacks."""

import base64
import json
import struct
import zlib
from datetime import UTC, datetime
from pathlib import Path
from zipfile import ZipFile

import pytest

from localmem.errors import BadInput
from localmem.times.zones import read_zone
from localmem.transfer import FileDefaults, import_file
from localmem.transfer.character_card import PNG, card_settings, read_card
from localmem.types import Session

NAMES = FileDefaults("Ana", "Bot")
NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def _write(tmp_path: Path, document: object, name: str = "conversations.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _said(session: Session) -> list[tuple[str, str]]:
    return [(turn.speaker, turn.text) for turn in session.turns]


# -- ChatGPT -------------------------------------------------------------------------------------------------------


def _node(parent: str | None, role: str, text: object, time: float | None, **message: object) -> dict[str, object]:
    content = {"content_type": "text", "parts": text if isinstance(text, list) else [text]}
    return {"parent": parent, "message": {"author": {"role": role}, "content": content, "create_time": time, **message}}


def _chatgpt(nodes: dict[str, object], current: str | None, **fields: object) -> dict[str, object]:
    return {"conversation_id": "c1", "current_node": current, "mapping": nodes, **fields}


def test_chatgpts_branch_shown_last_is_read(tmp_path: Path) -> None:
    nodes: dict[str, object] = {
        "root": {"parent": None, "message": None},
        "s": _node("root", "system", "be kind", 1.0),
        "hidden": _node("s", "user", "profile", 1.5, metadata={"is_visually_hidden_from_conversation": True}),
        "u": _node(
            "hidden",
            "user",
            ["look:", {"content_type": "image_asset_pointer", "asset_pointer": "x"}],
            2.0,
            metadata={"attachments": [{"name": "garden.jpg"}, {"name": "cv.pdf"}]},
        ),
        "old": _node("u", "assistant", "an answer thrown away", 3.0),
        "call": _node("u", "assistant", 'search("x")', 3.5, recipient="browser"),
        "tool": _node("call", "tool", "a search", 3.6),
        "new": _node("tool", "assistant", "hi there \ue200cite\ue202turn0search1\ue201", 4.0),
        "u2": _node("new", "user", [{"content_type": "audio_transcription", "text": "thanks"}], 6.0),
    }
    imported = import_file(_write(tmp_path, [_chatgpt(nodes, "u2")]), NAMES)
    assert (imported.format, [session.id for session in imported.sessions]) == ("ChatGPT", ["c1"])
    assert _said(imported.sessions[0]) == [("Ana", "look:"), ("Bot", "hi there"), ("Ana", "thanks")]
    assert [line.partition(": ")[2] for line in imported.skipped] == [
        "2 images or files are not read",
        "1 messages of other branches are not read",
    ]
    newest = import_file(_write(tmp_path, [_chatgpt(nodes, None)]), NAMES)  # the node shown last is not named
    assert newest.sessions == imported.sessions


def test_a_null_time_is_that_of_a_neighbour(tmp_path: Path) -> None:
    nodes: dict[str, object] = {
        "a": _node(None, "user", "first", None),
        "b": _node("a", "assistant", "second", 1740830400.0),
        "c": _node("b", "user", "third", None),
        "d": _node("c", "assistant", "earlier by its clock", 1740830000.0),
        "e": _node("d", "user", "fifth", 1740834000.0),
    }
    (session,) = import_file(_write(tmp_path, [_chatgpt(nodes, "e")]), NAMES).sessions
    assert [turn.time.isoformat()[11:16] for turn in session.turns] == ["12:00", "12:00", "12:00", "12:00", "13:00"]


@pytest.mark.parametrize("time", [-62135596800, 253402300799000, 9999999999])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_number_of_the_year_1_or_9999_is_no_time(tmp_path: Path, time: int, zone: str) -> None:
    nodes: dict[str, object] = {
        "a": _node(None, "user", "first", 1740830400),
        "b": _node("a", "assistant", "second", time),
    }
    (session,) = import_file(_write(tmp_path, [_chatgpt(nodes, "b")]), FileDefaults(zone=read_zone(zone))).sessions
    assert [turn.time for turn in session.turns] == [NOON, NOON]


def test_without_any_time_that_of_the_conversation_holds_and_then_that_of_the_import(tmp_path: Path) -> None:
    nodes: dict[str, object] = {"a": _node(None, "user", "hello", None)}
    (session,) = import_file(_write(tmp_path, [_chatgpt(nodes, "a", create_time=1740830400.5)]), NAMES).sessions
    assert session.turns[0].time == NOON.replace(microsecond=500000)
    path = _write(tmp_path, [_chatgpt(nodes, "a")])
    with pytest.raises(BadInput, match="has no time; say when it was with --time"):
        import_file(path, NAMES)
    (session,) = import_file(path, FileDefaults(time=NOON)).sessions
    assert session.turns[0].time == NOON


def test_an_odd_conversation_is_skipped_and_named(tmp_path: Path) -> None:
    good = _chatgpt({"a": _node(None, "user", "hello", 2.0)}, "a")
    looped = {**_chatgpt({"a": _node("a", "user", "again", 2.0)}, "a"), "conversation_id": "c2"}
    silent = {**_chatgpt({"a": _node(None, "tool", "x", 2.0)}, "a"), "conversation_id": "c3"}
    imported = import_file(_write(tmp_path, [{"id": "x"}, good, "odd", looped, silent, good]), NAMES)
    assert [session.id for session in imported.sessions] == ["c1", "c2"]
    assert [line.partition("record ")[2] for line in imported.skipped] == [
        "1 has no id or no `mapping` with messages",
        "3 has no id or no `mapping` with messages",
        "5: has no words of anybody",
        "6: is there twice",
    ]
    with pytest.raises(BadInput, match=r"nothing in .* can be read; the first reason: .* has no id"):
        import_file(_write(tmp_path, [{"mapping": {}}]), NAMES)


def test_an_archive_is_read_as_it_is_downloaded(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("data/conversations.json", json.dumps([_chatgpt({"a": _node(None, "user", "hi", 2.0)}, "a")]))
        archive.writestr("data/user.json", "{}")
    imported = import_file(path, NAMES)
    assert len(imported.sessions) == 1
    assert imported.skipped == [f"{path}: data/user.json are not read"]


# -- other programs ------------------------------------------------------------------------------------------------


def test_claudes_export(tmp_path: Path) -> None:
    messages = [
        {"sender": "human", "text": "old text", "content": [], "created_at": "2025-03-01T12:00:00.5Z"},
        {
            "sender": "assistant",
            "text": "This block is not supported on your current device yet.",
            "content": [{"type": "tool_use", "name": "x"}, {"type": "text", "text": "hello"}],
            "created_at": "2025-03-01T12:00:09Z",
            "attachments": [{"file_name": "a.txt"}],
        },
    ]
    record = {"uuid": "u1", "name": "t", "created_at": "2025-03-01T12:00:00Z", "chat_messages": messages}
    imported = import_file(_write(tmp_path, [record]), NAMES)
    assert imported.format == "Claude"
    assert _said(imported.sessions[0]) == [("Ana", "old text"), ("Bot", "hello")]
    assert "1 images or files are not read" in imported.skipped[0]


def _claude(name: str, parent: str, text: str, **fields: object) -> dict[str, object]:
    sender = "assistant" if name.startswith("a") else "human"
    return {"uuid": name, "parent_message_uuid": parent, "sender": sender, "text": text, **fields}


def test_claudes_branch_with_the_last_message_is_read(tmp_path: Path) -> None:
    root = "00000000-0000-4000-8000-000000000000"
    messages = [
        _claude("u0", root, "an abandoned beginning"),
        _claude("u1", root, "I learn Greek."),
        _claude("a1", "u1", "\n```\nThis block is not supported on your current device yet.\n```\n"),
        _claude("u2", "a1", "My exam is on 12 June."),
        _claude("a2", "u2", "Good luck."),
        _claude("u3", "a1", "My exam is on 19 June.", files=[{"file_name": "photo.png"}]),
        _claude("a3", "u3", "Good luck!"),
        _claude("u4", "a deleted message", "Thanks."),
    ]
    record = {"uuid": "u1", "created_at": "2025-03-01T12:00:00Z", "chat_messages": messages}
    imported = import_file(_write(tmp_path, [record]), NAMES)
    texts = [text for _, text in _said(imported.sessions[0])]
    assert texts == ["I learn Greek.", "My exam is on 19 June.", "Good luck!", "Thanks."]
    assert [line.partition(": ")[2] for line in imported.skipped] == [
        "1 images or files are not read",
        "3 messages of other branches are not read",
    ]


def _webui(name: str, user: str) -> dict[str, object]:
    nodes = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": "I row.", "timestamp": 1740830400},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": "regenerated", "timestamp": 1740830401},
        "3": {
            "id": "3",
            "parentId": "1",
            "role": "assistant",
            "content": '<details type="reasoning" done="true">hm</details>\nNice.',
            "timestamp": 1740830402,
        },
    }
    return {"id": name, "user_id": user, "chat": {"history": {"messages": nodes, "currentId": "3"}, "messages": []}}


def test_open_webuis_export_is_of_one_person(tmp_path: Path) -> None:
    imported = import_file(_write(tmp_path, [_webui("a", "u1")]), NAMES)
    assert (imported.format, _said(imported.sessions[0])) == ("Open WebUI", [("Ana", "I row."), ("Bot", "Nice.")])
    assert "1 messages of other branches are not read" in imported.skipped[0]
    both = _write(tmp_path, [_webui("a", "u1"), _webui("b", "u2")])
    with pytest.raises(BadInput, match="belongs to u1, u2; name one with --source-user"):
        import_file(both, NAMES)
    own = import_file(both, NAMES, "u2")
    assert [session.id for session in own.sessions] == ["b"]
    assert own.skipped[0] == f"{both}: 1 records of other users are not read"


def test_mem0s_memories_are_what_the_user_said(tmp_path: Path) -> None:
    memory = {"id": "m1", "memory": "Likes pears", "user_id": "ana", "created_at": "2025-03-01T04:00:00-08:00"}
    for document in ([memory], {"results": [memory], "relations": []}):
        imported = import_file(_write(tmp_path, document), NAMES)
        (session,) = imported.sessions
        assert (imported.format, session.id, _said(session)) == ("mem0", "mem0-m1", [("Ana", "Likes pears")])
        assert session.turns[0].time == NOON
    undated = {**memory, "created_at": "0001-01-01T00:00:00"}  # as .NET writes no time
    (session,) = import_file(_write(tmp_path, [undated]), FileDefaults(time=NOON)).sessions
    assert session.turns[0].time == NOON


def test_lettas_agent_files_of_both_versions(tmp_path: Path) -> None:
    login, words = '{"type": "login", "time": "x"}', '{"type": "user_message", "message": "I row."}'
    call = {"function": {"name": "send_message", "arguments": '{"message": "Nice."}'}}
    at = "2025-03-01T12:00:00Z"
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "You are"}], "created_at": at},
        {"role": "user", "content": [{"type": "text", "text": login}], "created_at": at},
        {"role": "user", "content": [{"type": "text", "text": words}], "created_at": at},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a thought"}],
            "tool_calls": [call],
            "created_at": at,
        },
        {"role": "assistant", "content": "plain words", "tool_calls": [], "created_at": "2025-03-02T12:00:00Z"},
    ]
    human = {"id": "block-1", "label": "human", "value": "Name: Ana\nRows."}
    persona = {"id": "block-2", "label": "persona", "value": "I am Sam."}
    agent = {"id": "agent-1", "name": "sam", "messages": messages, "block_ids": ["block-1", "block-2"]}
    new = import_file(_write(tmp_path, {"agents": [agent], "blocks": [human, persona]}, "a.af"), NAMES)
    old = import_file(_write(tmp_path, {"name": "sam", "core_memory": [human, persona], "messages": messages}), NAMES)
    for imported in (new, old):
        facts, first, second = imported.sessions
        assert _said(facts) == [("Ana", "Name: Ana"), ("Ana", "Rows.")]
        assert (_said(first), _said(second)) == ([("Ana", "I row."), ("Bot", "Nice.")], [("Bot", "plain words")])
        assert "the block 'persona' is about the agent" in imported.skipped[0]
    passage = {"id": "passage-1", "text": "Was in Oslo.", "embedding_config": {}, "created_at": at}
    assert _said(import_file(_write(tmp_path, [passage]), NAMES).sessions[0]) == [("Ana", "Was in Oslo.")]


def test_sharegpt_as_list_and_as_lines_needs_a_time(tmp_path: Path) -> None:
    messages = [("system", "be kind"), ("human", "hi"), ("gpt", "hello"), ("tool", "x")]
    record = {"id": "s1", "conversations": [{"from": sender, "value": text} for sender, text in messages]}
    with pytest.raises(BadInput, match="has no time"):
        import_file(_write(tmp_path, [record]), NAMES)
    lines = tmp_path / "share.jsonl"
    lines.write_text("\n".join(json.dumps({**record, "id": name}) for name in ("s1", "s2")))
    imported = import_file(lines, FileDefaults("Ana", "Bot", time=NOON))
    assert [session.id for session in imported.sessions] == ["s1", "s2"]
    assert _said(imported.sessions[0]) == [("Ana", "hi"), ("Bot", "hello")]
    assert "messages from 'tool' are not read" in imported.skipped[0]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


CARD = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        "name": "Mira",
        "description": "{{char}} keeps a lighthouse.",
        "personality": "calm",
        "character_book": {"entries": [{"content": "{{char}} fears gulls."}, {"content": "Y", "enabled": False}]},
    },
}


def test_a_character_card_gives_settings_and_facts(tmp_path: Path) -> None:
    image = tmp_path / "mira.png"
    old = base64.b64encode(json.dumps({"spec": "chara_card_v2", "data": {"name": "Old"}}).encode())
    new = base64.b64encode(json.dumps(CARD).encode())
    image.write_bytes(PNG + _chunk(b"tEXt", b"chara\0" + old) + _chunk(b"tEXt", b"ccv3\0" + new) + _chunk(b"IEND", b""))
    for path in (image, _write(tmp_path, CARD)):
        instructions = "Mira keeps a lighthouse.\n\nPersonality: calm"
        assert card_settings(read_card(path), "Ana") == {
            "chat": {"assistant_name": "Mira", "instructions": instructions}
        }
        imported = import_file(path, FileDefaults("Ana", time=NOON))
        assert _said(imported.sessions[0]) == [("Ana", "Mira fears gulls.")]
        assert "`localmem card FILE` prints it" in imported.skipped[0]
    plain = tmp_path / "plain.png"
    plain.write_bytes(PNG + _chunk(b"IEND", b""))
    with pytest.raises(BadInput, match="the image has no text `ccv3` or `chara`"):
        import_file(plain)


@pytest.mark.parametrize("document", [["text"], [{"x": 1}], {"x": 1}, []])
def test_an_unknown_format_says_what_is_read(tmp_path: Path, document: object) -> None:
    with pytest.raises(BadInput, match="one session per line"):
        import_file(_write(tmp_path, document))


def test_a_full_export_of_localmem_names_the_command_that_reads_it(tmp_path: Path) -> None:
    head = {"localmem": "export", "format": 1, "user": "ana"}
    session = {"kind": "session", "id": "s", "state": "open", "started": NOON.isoformat(), "ended": NOON.isoformat()}
    path = tmp_path / "ana.jsonl"
    for lines in ([head], [head, session]):
        path.write_text("\n".join(map(json.dumps, lines)))
        with pytest.raises(BadInput, match="is a full export of localmem; use `localmem import`"):
            import_file(path)
