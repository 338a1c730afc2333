"""Theanine's prompts as they are rendered."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localmem.errors import BadReply
from localmem.llm.scripted import ScriptedLLM
from localmem.prompts import render
from localmem.types import (
    Prompt,
    Session,
    Turn,
)
from tests.fakes import START, session
from tests.systems.theanine_play import Play, live, make, text_of

SNAPSHOTS = Path(__file__).parent / "snapshots" / "theanine"

_PAIR = {
    "new_date": "9 March 2026",
    "new_dialogue": "User: I moved to Lyon.\nAssistant: How is it?",
    "old_date": "2 March 2026",
    "old_dialogue": "User: I live in Paris.\nAssistant: Lovely.",
    "earlier_date": "2 March 2026",
    "earlier": "Ana lives in Paris.",
    "later_date": "9 March 2026",
    "later": "Ana lives in Lyon.",
}
_PROMPTS: dict[str, Callable[[], str]] = {
    "summarize": lambda: text_of(
        render("theanine/summarize", dialogue="Ana: Hi.\nBo: Hello.", user="Ana", assistant="Bo")
    ),
    "link": lambda: text_of(render("theanine/link", step=1, reasoning="", **_PAIR)),  # type: ignore[arg-type]
    "link_second": lambda: text_of(render("theanine/link", step=2, reasoning="Ana moved.", **_PAIR)),  # type: ignore[arg-type]
    "link_without_dialogue": lambda: text_of(
        render("theanine/link", step=1, reasoning="", **{**_PAIR, "old_dialogue": ""})  # type: ignore[arg-type]
    ),
    "explain": lambda: text_of(render("theanine/explain", **_PAIR)),  # type: ignore[arg-type]
    "refine": lambda: text_of(
        render("theanine/refine", today="1 May 2026", dialogue="Ana: Where do I live?", timeline="2 March 2026: Paris.")
    ),
}


@pytest.mark.parametrize("name", _PROMPTS)
def test_a_changed_prompt_shows(name: str) -> None:
    """To accept a change, delete the file and run the test twice."""
    path = SNAPSHOTS / f"{name}.txt"
    text = _PROMPTS[name]() + "\n"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path.name} was written anew; look at it and run again")
    assert text == path.read_text(encoding="utf-8")


def test_user_words_are_no_template() -> None:
    play = Play({"{{": ["Ana wrote {{ memory }}."]})
    memory = make(llm=ScriptedLLM(play), refine=False)
    live(memory, session("{{ 7 * 7 }}", name="s0"))
    assert "{{ memory }}" in memory.recall(session("Ana wrote", name="q")).text
    assert "{{ 7 * 7 }}" in text_of(play.asked[0])


def test_a_bad_reply_to_the_summary_leaves_the_session_without_units() -> None:
    def script(prompt: Prompt) -> str:
        raise BadReply("cut")

    memory = make(llm=ScriptedLLM(script))
    assert memory.end_session(session("a", "b")) == []


def test_turns_are_shown_with_their_speakers() -> None:
    play = Play({"tea": ["Ana likes tea."]})
    said = Session("s", (Turn("s.0", "user", "Ana", "tea", START), Turn("s.1", "assistant", "Bo", "fine", START)))
    make(llm=ScriptedLLM(play)).end_session(said)
    assert "Dialogue between Ana and Bo:\n\nAna: tea\nBo: fine" in text_of(play.asked[0])
