"""The systems' prompts as they are rendered: a changed prompt shows as a changed snapshot."""

from collections.abc import Mapping

import pytest

from localmem.prompts import load
from tests.snapshots import Snapshots

SNAPSHOTS = Snapshots(__file__)
_NAMES = {"user": "Bo", "assistant": "Ada"}
_DIALOGUE = "Bo: I sold the boat.\nAda: What will you sail now?"
_SESSION = {"dialogue": _DIALOGUE, **_NAMES}
_UPDATE = {"before": "Bo is calm.", "news": "Bo misses the boat.", **_NAMES}
_TALK = "User: I moved to Lyon.\nAssistant: How is it?"
_PAIR = {
    "new_date": "9 March 2026",
    "new_dialogue": _TALK,
    "old_date": "2 March 2026",
    "old_dialogue": "User: I live in Paris.\nAssistant: Lovely.",
    "earlier_date": "2 March 2026",
    "earlier": "Ana lives in Paris.",
    "later_date": "9 March 2026",
    "later": "Ana lives in Lyon.",
}
_REQUESTS: Mapping[str, Mapping[str, object]] = {
    "all_memories/persona": {"before": "", "said": "Bo: I sold the boat.", "speaker": "Bo"},
    "rebot/summarize": _SESSION,
    "summem/summarize": {"history": f"2 March 2026\n{_DIALOGUE}", "request": "Who has my boat?"},
    "memochat/write": {"dialogue": "1. Bo: I sold the boat.\n2. Ada: What will you sail now?"},
    "memochat/select": {"topics": "1. the boat: Bo sold it.\n2. lunch: Ada ate.", "last": 3, "request": "And now?"},
    "memorybank/day": _SESSION,
    "memorybank/insight": _SESSION,
    "memorybank/events": _UPDATE,
    "memorybank/portrait": _UPDATE,
    "comedy/summarize": _SESSION,
    "comedy/compress": {"before": "The user:\nBo sails.", "memories": "2 March 2026: Bo sold the boat.", **_NAMES},
    "conditionmem/record": {"dialogue": _DIALOGUE},
    "conditionmem/reflect": {"memory": "2 March 2026: Bo sold the boat.", "request": "Who has my boat?"},
    "secom/segment": {"guidance": "", "last": 1, "dialogue": f"[Exchange 0]\n{_TALK}\n\n[Exchange 1]\nUser: Hm."},
    "secom/continue": {"segment": _TALK, "exchange": "User: And you?\nAssistant: I stay."},
    "secom/reflect": {
        "rubric": "1. Go by people.",
        "examples": "Conversation 1:\n[Exchange 0]\nUser: Hm.",
        "last": 1,
    },
    "creem/question": {"dialogue": _TALK, "speaker": "User"},
    "creem/first": {"dialogue": _TALK, "user": "User", "assistant": "Assistant", "about": "User", "count": "5"},
    "creem/blend": {
        "statements": f"M1 (2 March 2026): User likes rain.\nNow, {_TALK}",
        "speaker": "User",
        "count": 2,
        "refine": 1,
    },
    "theanine/summarize": {"dialogue": "Ana: Hi.\nBo: Hello.", "user": "Ana", "assistant": "Bo"},
    "theanine/link": {"step": 1, "reasoning": "", **_PAIR},
    "theanine/explain": _PAIR,
    "theanine/refine": {
        "today": "1 May 2026",
        "dialogue": "Ana: Where do I live?",
        "timeline": "2 March 2026: Paris.",
    },
}
_RECALLS: Mapping[str, Mapping[str, object]] = {
    "memorybank/recall": {"portrait": "Bo is calm.", "events": "Bo sold a boat.", "found": "2 March 2026: Bo: Hi."},
    "comedy/recall": {"portrait": "Bo is calm.", "relationship": "They joke.", "events": "Bo sold a boat."},
    "creem/respond": {
        "today": "2 March 2026",
        "memory": "About Ana:\n- Ana likes rain.",
        "user": "Ana",
        "assistant": "Bo",
        "instructions": "Be kind.",
    },
}
# Variants of a prompt: its name, and the values that differ.
_VARIANTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "secom/segment_with_rubric": (
        "secom/segment",
        {"guidance": "Criteria:\n- Go by people.", "last": 0, "dialogue": "[Exchange 0]\nUser: Hm."},
    ),
    "secom/reflect_first": ("secom/reflect", {"rubric": "", "examples": "Conversation 1:\nUser: Hm."}),
    "creem/blend_unrefined": ("creem/blend", {"statements": "M1 (2 March 2026): User likes rain.", "refine": 0}),
    "theanine/link_second": ("theanine/link", {"step": 2, "reasoning": "Ana moved."}),
    "theanine/link_without_dialogue": ("theanine/link", {"old_dialogue": ""}),
}
_RENDERED: Mapping[str, tuple[str, Mapping[str, object]]] = {
    **{name: (name, values) for name, values in {**_REQUESTS, **_RECALLS}.items()},
    **{variant: (name, {**_REQUESTS[name], **changes}) for variant, (name, changes) in _VARIANTS.items()},
}


@pytest.mark.parametrize("name", _RENDERED)
def test_reads_as_the_snapshot(name: str) -> None:
    prompt, values = _RENDERED[name]
    file = load(prompt)
    SNAPSHOTS.check(name, "\n".join(f"# {title}\n{file.section(title, **values)}" for title in file.sections) + "\n")


def test_every_snapshot_is_of_a_prompt() -> None:
    SNAPSHOTS.check_names(_RENDERED)


# CREEM states the person and the numbers of its task in the instructions; they are fixed within one step.
@pytest.mark.parametrize("name", [name for name in _REQUESTS if "system" in load(name).sections])
def test_what_varies_comes_after_the_fixed_instructions(name: str) -> None:
    """Prompts of one step share their prefix: no dialogue, memory or request stands in the system message."""
    system = load(name).section("system", **_REQUESTS[name])
    names = {"Bo", "Ada", "Ana", "User", "Assistant", "5"}
    varying = [value for value in _REQUESTS[name].values() if isinstance(value, str) and value and value not in names]
    assert not any(value in system for value in varying)
    assert "{{" not in system
