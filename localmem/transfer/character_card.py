"""Character cards, versions 2 and 3: JSON, or JSON in base64 in a PNG image's text chunk `ccv3` or `chara`.

A card describes whom the model plays. Description, personality, scenario and examples become the model's instructions;
the entries of its book are facts that come up when they are needed, and so are memories.
"""

import base64
import binascii
import json
import struct
from collections.abc import Iterator
from pathlib import Path

from localmem.errors import BadInput
from localmem.files import reading
from localmem.transfer.drafts import Draft, DraftTurn, Record, record_at, records_at, text_at
from localmem.transfer.session_lines import content_id

KEYS = ("spec", "data")
PNG = b"\x89PNG\r\n\x1a\n"

_CURE = "give a character card of version 2 or 3, as PNG or JSON"
_PARTS = {"description": "", "personality": "Personality: ", "scenario": "Scenario: ", "mes_example": "Examples:\n"}


def read_card(path: Path) -> Record:
    """The card in a file. Raises BadInput."""
    with reading(path, _CURE):
        content = path.read_bytes()
    try:
        card = json.loads(png_text(content) if content.startswith(PNG) else content)
    except ValueError as error:
        raise BadInput(f"{path} is not a character card ({error}); {_CURE}") from error
    if not isinstance(card, dict) or not text_at(record_at(card, "data"), "name"):
        raise BadInput(f"{path} has no `data` with a `name`; {_CURE}")
    return card


def png_text(content: bytes) -> bytes:
    """The JSON in a PNG image: version 3 before version 2. Raises ValueError."""
    texts: dict[bytes, bytes] = {}
    position = len(PNG)
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        if kind == b"tEXt":
            keyword, _, text = content[position + 8 : position + 8 + length].partition(b"\0")
            texts[keyword.lower()] = text
        position += length + 12  # length, kind and checksum
    encoded = texts.get(b"ccv3") or texts.get(b"chara")
    if encoded is None:
        raise ValueError("the image has no text `ccv3` or `chara`")
    try:
        return base64.b64decode(encoded)
    except binascii.Error as error:
        raise ValueError("its text is not base64") from error


def read(card: Record) -> Iterator[Draft]:
    """The facts of the card's book, as told by the user. Raises BadInput for a card without a book."""
    data = record_at(card, "data")
    name, entries = text_at(data, "name"), records_at(record_at(data, "character_book"), "entries")
    texts = (text_at(entry, "content") for entry in entries if entry.get("enabled", True))
    facts = [fill_names(text, name, "User") for text in texts if text]
    note = "the character itself is not a memory; `localmem card FILE` prints it as settings"
    if not facts:
        raise BadInput(f"has no book with facts to remember; {note}")
    yield Draft(f"card-{content_id(facts)}", [DraftTurn("user", fact) for fact in facts], None, (note,))


def card_settings(card: Record, user: str) -> dict[str, object]:
    """The settings that make the model the character: its name and its instructions."""
    data = record_at(card, "data")
    name = text_at(data, "nickname") or text_at(data, "name")
    texts = [text_at(data, "system_prompt").replace("{{original}}", "").strip()]
    texts += [f"{heading}{text}" for key, heading in _PARTS.items() if (text := text_at(data, key))]
    texts.append(text_at(data, "post_history_instructions").replace("{{original}}", "").strip())
    instructions = "\n\n".join(filter(None, texts)) or f"You are {name}."
    return {"chat": {"assistant_name": name, "instructions": fill_names(instructions, name, user)}}


def fill_names(text: str, character: str, user: str) -> str:
    """The text with the names in place of the card's marks for them."""
    for mark, name in (("{{char}}", character), ("<BOT>", character), ("{{user}}", user), ("<USER>", user)):
        text = text.replace(mark, name).replace(mark.upper(), name)
    return text
