"""What the prompts of the baselines say, filled in: a changed prompt shows as a changed snapshot."""

from pathlib import Path

import pytest

from localmem.prompts import load

SNAPSHOTS = Path(__file__).parent / "snapshots" / "baselines"
_DIALOGUE = "Bo: I sold the boat.\nAda: What will you sail now?"
_NAMES: dict[str, object] = {"user": "Bo", "assistant": "Ada"}
_SAID: dict[str, object] = {"dialogue": _DIALOGUE, **_NAMES}
_NEWS: dict[str, object] = {"before": "Bo is calm.", "news": "Bo misses the boat.", **_NAMES}
_PROMPTS: dict[str, dict[str, object]] = {
    "all_memories/persona": {"before": "", "said": "Bo: I sold the boat.", "speaker": "Bo"},
    "rebot/summarize": _SAID,
    "summem/summarize": {"history": f"2 March 2026\n{_DIALOGUE}", "request": "Who has my boat?"},
    "memochat/write": {"dialogue": "1. Bo: I sold the boat.\n2. Ada: What will you sail now?"},
    "memochat/select": {
        "topics": "1. the boat: Bo sold it.\n2. lunch: Ada ate.",
        "last": 3,
        "request": "And now?",
    },
    "memorybank/day": _SAID,
    "memorybank/insight": _SAID,
    "memorybank/events": _NEWS,
    "memorybank/portrait": _NEWS,
    "memorybank/recall": {"portrait": "Bo is calm.", "events": "Bo sold a boat.", "found": "2 March 2026: Bo: Hi."},
    "comedy/summarize": _SAID,
    "comedy/compress": {"before": "The user:\nBo sails.", "memories": "2 March 2026: Bo sold the boat.", **_NAMES},
    "comedy/recall": {"portrait": "Bo is calm.", "relationship": "They joke.", "events": "Bo sold a boat."},
    "conditionmem/record": {"dialogue": _DIALOGUE},
    "conditionmem/reflect": {"memory": "2 March 2026: Bo sold the boat.", "request": "Who has my boat?"},
}


def _filled(name: str, values: dict[str, object]) -> str:
    """The whole prompt; of one without a message of its own, what it makes of recall."""
    file = load(name)
    if "user" not in file.sections:
        return file.section("memory", **values)
    return "\n\n".join(f"[{title}]\n{file.section(title, **values)}" for title in ("system", "user"))


@pytest.mark.parametrize("name", _PROMPTS)
def test_prompts_say_what_they_said(name: str) -> None:
    path = SNAPSHOTS / f"{name.replace('/', '_')}.txt"
    text = f"{_filled(name, _PROMPTS[name])}\n"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path.name} was written anew; look at it and run again")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in _PROMPTS if "user" in load(name).sections])
def test_what_varies_stands_behind_the_fixed_instructions(name: str) -> None:
    """Prompts of one step share their prefix: no dialogue, memory or request stands in the system message."""
    system = load(name).section("system", **_PROMPTS[name])
    names = {"Bo", "Ada"}
    varying = [value for value in _PROMPTS[name].values() if isinstance(value, str) and value and value not in names]
    assert not any(value in system for value in varying)
    assert "{{" not in system
