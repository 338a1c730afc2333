"""The proof of a student: models and rules beside one another, what passes, and that one that fails is refused."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from finetune.proof import Criterion, list_criteria, measure_rule, score_by_gold
from finetune.traces.trace import Teacher, Trace, make_trace
from finetune.trainers.lora import merge
from finetune.trivial_rules import trivial_rules
from localmem import factory
from localmem.cli.distill import distill
from localmem.config import Settings, load_settings
from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Work
from localmem.experiments import student_proof
from localmem.experiments.student_proof import ProofRecipe, find_harm, prove_student
from localmem.llm.adapters import read_notes, save_notes, warn_of_changes
from localmem.types import Completion, Message, Prompt
from localmem.weights.offline import ImportOptions, import_model
from tests.experiments.test_student_comparison import STARTER, base, collection, colour_trace, run, settings

__all__ = ["base", "collection", "run", "settings"]  # fixtures


def test_a_student_without_its_teacher_s_speed_fails_and_is_refused_until_it_is_forced(
    collection: Path, run: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All students of the small model are as fast as their teacher, which is the same model."""
    monkeypatch.setattr(student_proof, "FEW", 1)
    report = prove_student(collection, ["choose"], settings, STARTER, run, out=tmp_path / "out", command="c")
    figures = report.figures
    models = {model["kind"]: model for model in figures["stages"]["choose"]["models"]}
    assert models.keys() == {"student", "teacher", "base", "rule"}
    assert models["teacher"]["scores"] == models["base"]["scores"]
    assert models["student"]["valid"] == 1.0
    assert models["student"]["cost"]["batched"] > 0
    assert models["student"]["cost"]["first_token_ms"] > 0
    criteria = {own["name"]: own["passed"] for own in figures["stages"]["choose"]["criteria"]}
    assert criteria["tokens/s divided by the teacher's"] is False
    assert figures["passed"] is False
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "tokens/s divided by the teacher" in page
    assert "most similar prompt" in page
    with pytest.raises(BadSettings, match="failed when it was measured: choose: "):
        warn_of_changes(run, None)
    words = ["prove", str(collection), "--stage", "choose", "--student", STARTER, "--adapter", str(run)]
    words += ["--teacher", STARTER, "--set", "limit=3", "--out", str(tmp_path / "out")]
    with pytest.raises(BadInput, match="will be refused; --force allows it"):
        CliRunner().invoke(distill, [*words, "--json"], catch_exceptions=False)
    result = CliRunner().invoke(distill, [*words, "--force", "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["passed"] is False
    warn_of_changes(run, None)


def test_few_traces_neither_refuse_nor_allow(collection: Path, run: Path, settings: Settings, tmp_path: Path) -> None:
    notes = read_notes(run)
    assert notes is not None
    words = ["prove", str(collection), "--stage", "choose", "--student", STARTER, "--adapter", str(run)]
    words += ["--teacher", STARTER, "--set", "limit=2", "--out", str(tmp_path / "out")]
    try:
        for failed in ((), ("choose: score",)):
            before = notes.model_copy(update={"failed": failed})
            save_notes(run, before)
            result = CliRunner().invoke(distill, words, catch_exceptions=False)
            assert result.exit_code == 0
            assert "chooser: SHOWS NOTHING (choose: 2 traces; 30 are needed)" in result.stdout
            assert read_notes(run) == before
    finally:
        save_notes(run, notes)


def test_a_merged_student_that_failed_is_not_run_by_its_name(
    base: Path, collection: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(student_proof, "FEW", 1)
    merge(run, base, tmp_path / "merged")
    import_model(base, ImportOptions(name="plain", role="llm"))
    own = load_settings(None, {"model": "plain", "llm": {"device": "cpu", "dtype": "float32", "context_length": 256}})
    report = prove_student(collection, ["choose"], own, "plain", tmp_path / "merged", out=tmp_path / "out")
    assert report.figures["passed"] is False
    import_model(tmp_path / "merged", ImportOptions(name="merged", role="llm"))
    with pytest.raises(BadSettings, match=r"the student in .* failed when it was measured: choose: "):
        factory.backbone(own.model_copy(update={"model": "merged"}), lambda _: None)


def test_a_failure_on_the_way_leaves_the_earlier_verdict(run: Path, settings: Settings, tmp_path: Path) -> None:
    before = read_notes(run)
    with pytest.raises(BadInput, match="has no stage 'choose'; give the folder of a collection"):
        prove_student(tmp_path, ["choose"], settings, STARTER, run, ProofRecipe(), out=tmp_path / "out")
    assert read_notes(run) == before


def test_lessons_of_no_prompt_are_refused_before_anything_is_measured(
    collection: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(student_proof, "_prove_stage", lambda *_: pytest.fail("measures first"))
    recipe = ProofRecipe(people=tmp_path)
    with pytest.raises(BadSettings, match=r"'llm.adapters' cannot be .*: no prompt is called 'choose'"):
        prove_student(collection, ["choose"], Settings(), STARTER, run, recipe, out=tmp_path / "out")


def test_what_a_student_must_reach() -> None:
    traces = [colour_trace("kite", colour, gold=colour) for colour in ("red", "blue", "green", "red")]
    right = measure_rule("right", lambda trace: Completion(trace.answer), "choose", traces)
    wrong = measure_rule("wrong", lambda _: Completion("purple"), "choose", traces)
    red = measure_rule("majority", lambda _: Completion("red"), "choose", traces)
    models = {"student": right, "teacher": right}
    assert [own.holds for own in list_criteria(models, [wrong, red], traces)] == [True, True, True]
    ratio, beyond, valid = list_criteria({"student": red, "teacher": right}, [wrong, red], traces)
    assert (ratio.value, ratio.needed, ratio.holds) == (0.5, 1.0, False)
    assert (beyond.name, beyond.holds) == ("score, against the rule 'majority'", False)
    assert valid.holds
    assert list_criteria({"student": right, "teacher": wrong}, [red], traces)[0].value is None
    assert list_criteria({"student": wrong, "teacher": right}, [red], traces)[2].holds is False
    assert Criterion("valid answers", 0.99, 0.995).line() == "valid answers: 0.99 (at least 0.995 needed)"


def lesson(stage: str, text: str, answer: str, gold: str | None = None) -> Trace:
    prompt = Prompt(stage, (Message("user", text),))
    trace = make_trace(prompt, Completion(answer), "", Teacher("t"), Work("s", "d", text))
    return trace if gold is None else colour_trace("kite", answer, gold)


def test_harm_to_whole_systems_fails_a_student() -> None:
    base = {"system": "evidence", "with": "base", "right": 0.1, "false denial": 0.0}
    assert find_harm([base, {**base, "with": "student", "right": 0.2}]) == []
    assert find_harm([base, {**base, "with": "student", "right": 0.2, "false denial": 0.9}]) == [
        "end to end with evidence: false denial 0.9 (base 0)"
    ]
    assert len(find_harm([base, {**base, "with": "student", "right": 0.0}])) == 1


def test_two_trivial_rules_for_every_stage() -> None:
    choices = [colour_trace(thing, colour, colour) for thing, colour in (("kite", "red"), ("boat", "blue"))] * 2
    rules = trivial_rules("choose", [*choices, choices[0]])
    assert {name: rule(choices[1]).text for name, rule in rules.items()} == {"majority": "red", "bag of words": "blue"}
    texts = [lesson("refine", "Ana flew a kite", "Kite."), lesson("refine", "Bo has a boat", "Boat.")]
    rules = trivial_rules("refine", [*texts, texts[0]])
    assert {name: rule(texts[1]).text for name, rule in rules.items()} == {
        "majority": "Kite.",
        "most similar prompt": "Boat.",
    }
    divided = lesson("segment", "x", json.dumps({"ends": "2 4"}))
    rules = trivial_rules("segment", [divided])
    ends = {name: json.loads(rule(divided).text)["ends"] for name, rule in rules.items()}
    assert ends == {"one segment": "4", "every two exchanges": "1 3 4"}


def test_a_reply_is_right_or_wrong_by_gold() -> None:
    trace = colour_trace("kite", "red", gold="red")
    assert score_by_gold(Completion("It was red."), trace, "respond") == 1.0
    assert score_by_gold(Completion("I don't know."), trace, "respond") == 0.0
    assert score_by_gold(Completion("It was red", finish="length"), trace, "respond") == 0.0
