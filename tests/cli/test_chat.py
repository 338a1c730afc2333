"""A conversation across two days on the real starter weights, typed into the command."""

import json

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("starter_llm_dir", "starter_encoder_dir")
DENSE = {"LOCALMEM_RETRIEVAL__RETRIEVER": "dense"}


@pytest.mark.slow
def test_yesterdays_words_are_recalled_today(localmem: Run) -> None:
    yesterday = localmem(
        "chat", "--now", "2026-03-02T18:00", env=DENSE, stdin="My dog is called Bruno.\n/memory\n/end\n/nonsense\n"
    )
    assert yesterday.returncode == 0, yesterday.stderr
    assert "@u0  2026-03-02  User: My dog is called Bruno." in yesterday.stdout
    assert "unknown command '/nonsense'" in yesterday.stderr
    short = DENSE | {"LOCALMEM_CHAT__MAX_TOKENS": "2", "LOCALMEM_CHAT__READER": "none"}
    today = localmem("chat", "--now", "2026-03-03T09:00", env=short, stdin="What is my dog called?\n/why\n/memory\n")
    assert today.returncode == 0, today.stderr
    assert "(cut after 2 tokens; the setting chat.max_tokens is the limit)" in today.stderr
    why = today.stdout.split("recalled ", 1)[1]
    assert "Bruno" in why.splitlines()[0]
    assert "prompt agent/respond, as it was sent:" in why
    assert "2 March 2026" in why
    sessions = localmem("export", env=DENSE).stdout
    records = [json.loads(line) for line in sessions.splitlines()]
    assert len(records) > 4


@pytest.mark.slow
def test_an_open_session_continues_when_recent_and_closes_when_old(localmem: Run) -> None:
    localmem("chat", "--now", "2026-03-02T18:00", env=DENSE, stdin="My cat is called Tom.\n")
    soon = localmem("chat", "--now", "2026-03-02T18:10", env=DENSE, stdin="/memory\n")
    assert "continuing the session of 02 March 2026" in soon.stderr
    assert "@u0  2026-03-02  User: My cat is called Tom." in soon.stdout
    later = localmem("chat", "--now", "2026-03-03T18:10", env=DENSE, stdin="What is my cat called?\n/why\n")
    assert "continuing" not in later.stderr
    assert "Tom" in later.stdout


def test_an_unknown_model_is_said_before_anything_is_typed(localmem: Run) -> None:
    result = localmem("chat", "--model", "nope", stdin="")
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no model 'nope'" in result.stderr
