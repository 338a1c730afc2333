"""The prompts of SeCom and CREEM as they are rendered; a changed one fails.

Look at the difference, then write them anew with LOCALMEM_WRITE_SNAPSHOTS=1.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from localmem.prompts import load

SNAPSHOTS = Path(__file__).parent / "snapshots"
_TALK = "User: I moved to Lyon.\nAssistant: How is it?"
_PROMPTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "secom/segment": (
        "secom/segment",
        {"guidance": "", "last": 1, "dialogue": f"[Exchange 0]\n{_TALK}\n\n[Exchange 1]\nUser: Hm."},
    ),
    "secom/segment_with_rubric": (
        "secom/segment",
        {"guidance": "Criteria:\n- Go by people.", "last": 0, "dialogue": "[Exchange 0]\nUser: Hm."},
    ),
    "secom/continue": ("secom/continue", {"segment": _TALK, "exchange": "User: And you?\nAssistant: I stay."}),
    "secom/reflect": (
        "secom/reflect",
        {"rubric": "1. Go by people.", "examples": "Conversation 1:\n[Exchange 0]\nUser: Hm.", "last": 1},
    ),
    "secom/reflect_first": ("secom/reflect", {"rubric": "", "examples": "Conversation 1:\nUser: Hm.", "last": 1}),
    "creem/question": ("creem/question", {"dialogue": _TALK, "speaker": "User"}),
    "creem/first": (
        "creem/first",
        {"dialogue": _TALK, "user": "User", "assistant": "Assistant", "about": "User", "count": "5"},
    ),
    "creem/blend": (
        "creem/blend",
        {
            "statements": f"M1 (2 March 2026): User likes rain.\nNow, {_TALK}",
            "speaker": "User",
            "count": 2,
            "refine": 1,
        },
    ),
    "creem/blend_unrefined": (
        "creem/blend",
        {"statements": "M1 (2 March 2026): User likes rain.", "speaker": "User", "count": 2, "refine": 0},
    ),
    "creem/respond": (
        "creem/respond",
        {
            "today": "2 March 2026",
            "memory": "About Ana:\n- Ana likes rain.",
            "user": "Ana",
            "assistant": "Bo",
            "instructions": "Be kind.",
        },
    ),
}


@pytest.mark.parametrize("name", _PROMPTS)
def test_reads_as_the_snapshot(name: str) -> None:
    prompt, values = _PROMPTS[name]
    file = load(prompt)
    text = "\n".join(f"# {title}\n{file.section(title, **values)}" for title in file.sections) + "\n"
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("LOCALMEM_WRITE_SNAPSHOTS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
