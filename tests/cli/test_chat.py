"""A conversation across two days on the real starter weights, typed into the command."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("starter_llm_dir", "starter_encoder_dir")
DENSE = {"LOCALMEM_RETRIEVAL__RETRIEVER": "dense"}


def test_what_was_said_yesterday_is_known_today(localmem: Run, tmp_path: Path) -> None:
    yesterday = localmem(
        "chat", "--now", "2026-03-02T18:00", env=DENSE, stdin="My dog is called Bruno.\n/memory\n/end\n/nonsense\n"
    )
    assert yesterday.returncode == 0, yesterday.stderr
    assert "nothing is remembered yet" in yesterday.stdout
    assert "there is no command '/nonsense'" in yesterday.stderr
    today = localmem("chat", "--now", "2026-03-03T09:00", env=DENSE, stdin="What is my dog called?\n/why\n/memory\n")
    assert today.returncode == 0, today.stderr
    why = today.stdout.split("recalled ", 1)[1]
    assert "Bruno" in why.splitlines()[0]
    assert "the prompt agent/respond, as it was sent:" in why
    assert "2 March 2026" in why
    sessions = localmem("export", env=DENSE).stdout
    said = [json.loads(line) for line in sessions.splitlines()]
    assert len(said) > 4


def test_a_session_left_open_goes_on_when_recent_and_ends_when_old(localmem: Run) -> None:
    localmem("chat", "--now", "2026-03-02T18:00", env=DENSE, stdin="My cat is called Tom.\n")
    soon = localmem("chat", "--now", "2026-03-02T18:10", env=DENSE, stdin="/memory\n")
    assert "going on with the session of 02 March 2026" in soon.stderr
    assert "nothing is remembered yet" in soon.stdout
    later = localmem("chat", "--now", "2026-03-03T18:10", env=DENSE, stdin="What is my cat called?\n/why\n")
    assert "going on" not in later.stderr
    assert "Tom" in later.stdout
