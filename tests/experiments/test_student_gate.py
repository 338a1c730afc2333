"""The gate before a student: what counts as worse, and that a worse one is refused until it is forced."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem import factory
from localmem.cli.distill import distill
from localmem.config import Settings
from localmem.errors import BadInput, BadSettings
from localmem.experiments import student_gate
from localmem.experiments.student_gate import check_student, find_worse
from localmem.llm.adapters import AdapterNotes, read_notes, save_notes, warn_of_changes
from localmem.llm.scripted import ScriptedLLM
from localmem.prompts import load
from tests.evaluation.fixtures import write_scenarios

SETTINGS = Settings.model_validate({"retrieval": {"retriever": "bm25"}})


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """The notes of an adapter for replies; `backbones` answers in place of its weights."""
    folder = tmp_path / "respond"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
    save_notes(folder, AdapterNotes(base=SETTINGS.model, prompts={"agent/respond": load("agent/respond").digest}))
    return folder


def backbones(monkeypatch: pytest.MonkeyPatch, *, base: str, student: str) -> None:
    """A backbone that always says the same, with an adapter or without."""

    def backbone(settings: Settings, _: object) -> factory.Backbone:
        reply = student if settings.llm.adapters else base
        return factory.Backbone(ScriptedLLM(lambda _prompt: reply), lambda: None)

    monkeypatch.setattr(factory, "backbone", backbone)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single question shows something."""
    monkeypatch.setattr(student_gate, "FEW", 1)


@pytest.mark.parametrize("student", ["I don't know that.", "Sure."])
def test_too_few_questions_neither_refuse_nor_allow(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, student: str
) -> None:
    backbones(monkeypatch, base="Sure.", student=student)
    notes = read_notes(adapter)
    assert notes is not None
    people = write_scenarios(tmp_path, a_1={})
    for worse in ((), ("right",)):
        before = notes.model_copy(update={"worse": worse})
        save_notes(adapter, before)
        verdict = check_student(SETTINGS, adapter, people)
        assert verdict.shows_nothing
        assert "questions show nothing (30 are needed)" in verdict.line("respond", "starter")
        assert read_notes(adapter) == before


def test_fewer_right_answers_are_worse_and_more_of_anything_else() -> None:
    base = {"right": 0.5, "false denial": 0.1, "ordinary refused": 0.0, "perplexity": 7.5}
    assert find_worse(base, base) == ()
    assert find_worse(base, {"right": 0.6, "false denial": 0.0, "ordinary refused": 0.0, "perplexity": 7.0}) == ()
    worse = {"right": 0.4, "false denial": 0.2, "ordinary refused": 0.1, "perplexity": 7.6}
    assert find_worse(base, worse) == tuple(worse)


@pytest.mark.usefixtures("few")
def test_a_worse_student_is_refused_until_it_is_forced(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = write_scenarios(tmp_path, a_1={})
    backbones(monkeypatch, base="Sure.", student="I don't know that.")
    words = ["check", str(adapter), "--student", SETTINGS.model, "--people", str(people)]
    monkeypatch.setenv("LOCALMEM_RETRIEVAL__RETRIEVER", "bm25")
    result = CliRunner().invoke(distill, words)
    assert isinstance(result.exception, BadInput)
    assert f"{adapter} is worse than {SETTINGS.model} at false denial 1 (base 0), ordinary refused 1 (base 0)" in (
        result.stderr
    )
    with pytest.raises(BadSettings, match="worse than its base at false denial, ordinary refused"):
        warn_of_changes(adapter, None)
    forced = CliRunner().invoke(distill, [*words, "--force", "--json"], catch_exceptions=False)
    assert json.loads(forced.stdout)["worse"] == ["false denial", "ordinary refused"]
    warn_of_changes(adapter, None)


@pytest.mark.usefixtures("few")
def test_an_earlier_refusal_stands_when_the_check_fails(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = write_scenarios(tmp_path, a_1={})
    backbones(monkeypatch, base="Sure.", student="I don't know that.")
    assert check_student(SETTINGS, adapter, people).worse
    monkeypatch.setattr(factory, "backbone", lambda *_: pytest.fail("the GPU is gone"))
    with pytest.raises(pytest.fail.Exception, match="the GPU is gone"):
        check_student(SETTINGS, adapter, people)
    with pytest.raises(BadSettings, match="worse than its base at false denial, ordinary refused"):
        warn_of_changes(adapter, None)


@pytest.mark.usefixtures("few")
def test_a_student_that_is_not_worse_may_be_used(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbones(monkeypatch, base="I don't know that.", student="Sure.")
    verdict = check_student(SETTINGS, adapter, write_scenarios(tmp_path, a_1={}))
    assert verdict.worse == ()
    assert verdict.line("respond", "starter") == "respond is nowhere worse than starter"
    notes = read_notes(adapter)
    assert notes is not None
    assert notes.worse == ()


def test_a_student_of_no_prompt_is_refused_before_anything_is_measured(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factory, "backbone", lambda *_: pytest.fail("measures first"))
    notes = read_notes(adapter)
    assert notes is not None
    save_notes(adapter, notes.model_copy(update={"prompts": {"respond": "0" * 64}}))
    with pytest.raises(BadSettings, match=r"'llm.adapters' cannot be .*: no prompt is called 'respond'"):
        check_student(SETTINGS, adapter, write_scenarios(tmp_path, a_1={}))


def test_a_folder_without_an_adapter_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no student"):
        check_student(SETTINGS, tmp_path, tmp_path)
