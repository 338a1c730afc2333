"""An adapter whose prompts or template differ from its training is logged."""

from pathlib import Path

import pytest

from localmem.errors import BadInput, BadSettings
from localmem.llm.adapters import FILE, AdapterNotes, list_changes, read_notes, save_notes, warn_of_changes
from localmem.prompts import load

LINK = load("theanine/link").digest


def test_an_unchanged_prompt_and_template_log_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_notes(tmp_path, AdapterNotes(base="small", prompts={"theanine/link": LINK}, template_sha256="abc"))
    warn_of_changes(tmp_path, "abc")
    warn_of_changes(tmp_path, None)
    assert caplog.text == ""


def test_another_prompt_or_template_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prompts = {"theanine/link": "0" * 64, "theanine/gone": "1" * 64}
    save_notes(tmp_path, AdapterNotes(base="small", prompts=prompts, template_sha256="abc"))
    warn_of_changes(tmp_path, "def")
    assert "the prompt 'theanine/link' has changed since the training" in caplog.text
    assert "'theanine/gone', which does not exist any more" in caplog.text
    assert "the chat template differs" in caplog.text


def test_an_adapter_from_elsewhere_has_no_notes(tmp_path: Path) -> None:
    assert read_notes(tmp_path) is None
    warn_of_changes(tmp_path, "abc")
    assert list_changes(AdapterNotes(base="small"), "abc") == []


def test_notes_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[]", encoding="utf-8")
    with pytest.raises(BadInput, match="train the adapter again"):
        read_notes(tmp_path)


def test_a_dora_adapter_raises(tmp_path: Path) -> None:
    config = tmp_path / "adapter_config.json"
    config.write_text('{"use_dora": false}', encoding="utf-8")
    warn_of_changes(tmp_path, None)
    config.write_text('{"use_dora": true}', encoding="utf-8")
    with pytest.raises(BadSettings, match="was trained with DoRA, which must be merged"):
        warn_of_changes(tmp_path, None)
