"""`localmem eval calibrate` and `localmem eval teafarm`, from outside; real weights where they are quick."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem import factory
from localmem.cli.eval.run import calibrate, judge, make, report, run_teafarm
from localmem.errors import BadInput
from localmem.evaluation import DATA
from localmem.evaluation.answers import read_judgements
from localmem.evaluation.datasets import teabag
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Choice, Prompt
from tests.cli.conftest import Run
from tests.evaluation.fixtures import LOCOMO, write_records
from tests.evaluation.judging.test_verdicts import NameModel
from tests.fakes import obedient

# What somebody says in the sessions that gives the question's mistake away, by the beginning of the question.
FACTS = {
    "Shall I order": "I do not eat meat any more",
    "It must be loud": "I moved on the tenth of May",
    "Are you working": "no more nights",
    "You saw so much": "I never went to Lima",
    "I have a toy mouse": "Sixpence died last week",
    "With all this rain": "left the bakery",
}


def attentive(prompt: Prompt) -> str:
    """Answers a counterfactual question rightly where the prompt holds the fact; judges by the word "no"."""
    if isinstance(prompt.format, Choice):
        reply = prompt.messages[1].content.partition("Given answer: ")[2]
        return "correct" if reply.startswith("No") else "incorrect"
    text = "\n".join(message.content for message in prompt.messages)
    (fact,) = (fact for question, fact in FACTS.items() if question in prompt.messages[-1].content)
    return "No, that is not so." if fact in text else "Yes, of course!"


@pytest.fixture
def backbone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The commands ask `attentive`, or whatever makes choices and JSON; the names of the prompts are told."""
    prompt_names: list[str] = []

    def script(prompt: Prompt) -> str:
        prompt_names.append(prompt.name)
        plain = prompt.name == "judge/correct" or isinstance(prompt.format, Choice | type(None))
        return attentive(prompt) if plain or prompt.name.endswith("/respond") else obedient(prompt)

    monkeypatch.setenv("LOCALMEM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALMEM_RETRIEVAL__RETRIEVER", "bm25")
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(script), lambda: None))
    return prompt_names


def test_who_remembers_is_not_fooled(backbone: list[str], tmp_path: Path) -> None:
    """The shipped set from end to end: five sessions read, the sixth shown, the question asked of either speaker."""
    arguments = ["--system", "full_history", "--system", "none", "--out", str(tmp_path / "run"), "--json"]
    outcome = CliRunner().invoke(run_teafarm, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert [(row["system"], row["rate"]["mean"], row["questions"]) for row in report["systems"]] == [
        ("full_history", 1.0, 6),
        ("none", 0.0, 6),
    ]
    assert report["judge"]["calibration"] is None
    assert report["judge"]["believable"] is False
    assert backbone.count("judge/correct") == 12
    backbone.clear()
    again = CliRunner().invoke(run_teafarm, arguments, catch_exceptions=False)
    assert json.loads(again.stdout) == report
    assert not backbone  # all of it was in the folder


def test_a_table_for_people_and_a_folder_of_another_run(backbone: list[str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run"), "--limit", "2"]
    assert CliRunner().invoke(run_teafarm, ["--system", "none", *out]).exit_code == 0
    table = CliRunner().invoke(run_teafarm, ["--system", "none", *out])
    assert re.search(r"none +0(\.00)? +2 ", table.stdout)
    assert "not calibrated; run `localmem eval calibrate`" in table.stdout
    with pytest.raises(BadInput, match=r"settings: data\.\w+\.probes was 2, now \d+; limit was 2, now none;"):
        CliRunner().invoke(run_teafarm, ["--system", "none", "--out", str(tmp_path / "run")], catch_exceptions=False)


def test_a_judge_that_cannot_say_what_is_right_is_refused(tmp_path: Path) -> None:
    arguments = ["--system", "none", "--out", str(tmp_path), "--set", "criterion=rating"]
    with pytest.raises(BadInput, match="use correct"):
        CliRunner().invoke(run_teafarm, arguments, catch_exceptions=False)


def test_a_set_is_made_of_a_data_set_and_goes_on(backbone: list[str], tmp_path: Path) -> None:
    path, out = write_records(tmp_path, LOCOMO), tmp_path / "made.jsonl"
    arguments = ["--dataset", f"locomo={path}", "--out", str(out), "--json"]
    report = json.loads(CliRunner().invoke(make, arguments, catch_exceptions=False).stdout)
    assert (report["episodes"], report["questions"], report["existing"]) == (1, 2, 0)
    (episode,) = teabag.read(out).episodes
    assert {probe.speaker for probe in episode.probes} == {"Ana", "Ben"}
    backbone.clear()
    again = json.loads(CliRunner().invoke(make, arguments, catch_exceptions=False).stdout)
    assert (again["episodes"], again["existing"], backbone) == (1, 1, [])


def test_calibration_is_told_kept_and_found_by_a_run(backbone: list[str], tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    outcome = CliRunner().invoke(calibrate, ["--criterion", "correct", "--out", str(out)], catch_exceptions=False)
    assert "not believable: kappa" in outcome.stdout
    assert "vague" in outcome.stdout
    (record,) = json.loads(out.read_text())
    assert (record["judge"], record["figures"]["items"], record["believable"]) == ("correct", len(backbone), False)
    assert (tmp_path / "data" / "calibration.json").is_file()
    arguments = ["--system", "none", "--limit", "1", "--out", str(tmp_path / "run")]
    assert "not believable: kappa" in CliRunner().invoke(run_teafarm, arguments, catch_exceptions=False).stdout


def test_a_few_labels_are_shown_without_an_interval(backbone: list[str], tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((DATA / "calibration" / "correct.jsonl").read_text().splitlines(keepends=True)[:2]))
    arguments = ["--criterion", "correct", "--labelled", str(few)]
    table = CliRunner().invoke(calibrate, arguments, catch_exceptions=False).stdout
    assert re.search(r"^accuracy \d\.\d\d$", table, re.MULTILINE)


def _grade(prompt: Prompt) -> str:
    """Answers as `attentive`; the reply that knows better is the better one, and a memory is concise, not diverse."""
    if prompt.name == "judge/pairwise":
        first = prompt.messages[-1].content.partition("Reply 1: ")[2]
        return "1" if first.startswith("No") else "2"
    if prompt.name == "judge/memory":
        return "5" if "Conciseness:" in prompt.messages[0].content else str(1 + (prompt.seed or 0) % 2)
    plain = isinstance(prompt.format, Choice) or prompt.name.endswith("/respond")
    return attentive(prompt) if plain else obedient(prompt)


def test_creems_majority_vote_and_its_seven_criteria_run_from_end_to_end(
    backbone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of two systems, 19 votes in both orders on a criterion, and 20 grades of a memory on each of seven."""
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(_grade), lambda: None))
    out = tmp_path / "run"
    systems = ["--system", "full_history", "--system", "creem"]
    CliRunner().invoke(run_teafarm, [*systems, "--limit", "1", "--out", str(out)], catch_exceptions=False)
    criteria = [part for name in ("consistency", "memorability", "memory") for part in ("--criterion", name)]
    CliRunner().invoke(judge, [str(out), *criteria], catch_exceptions=False)
    verdicts = read_judgements(out)
    for name in ("consistency", "memorability"):
        (vote,) = [verdict for verdict in verdicts if verdict.judge == name]
        assert (vote.case.work.system, vote.case.other) == ("creem", "full_history")
        assert vote.label == "second", "full_history holds the fact, which CREEM's scripted insights lack"
    grades = {verdict.case.work.system: verdict.scores for verdict in verdicts if verdict.judge == "memory"}
    assert set(grades) == {"full_history", "creem"}
    assert len(grades["creem"]) == 7
    assert (grades["creem"]["conciseness"], grades["creem"]["diversity"]) == (5.0, 1.5)
    text = CliRunner().invoke(report, [str(out)], catch_exceptions=False).stdout
    assert all(name in text for name in ("consistency", "memorability", "conciseness", "diversity"))


def test_verdicts_that_are_not_usable_are_no_verdicts(
    backbone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "run")
    CliRunner().invoke(run_teafarm, ["--system", "none", "--limit", "1", "--out", out], catch_exceptions=False)
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(lambda _: "{}"), lambda: None))
    for _ in range(2):
        outcome = CliRunner().invoke(judge, [out, "--criterion", "rating", "--json"], catch_exceptions=False)
        assert json.loads(outcome.stdout) == {"rating": 0}
        assert "rating: 1 verdicts are not usable; ask for those with another --seed" in outcome.stderr
    text = CliRunner().invoke(report, [out], catch_exceptions=False).stdout
    assert "1 verdicts are not usable" in text


def test_an_nli_model_judges_a_run(backbone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the backbone, and only what entails what; calibrated like any judge."""
    folder, out = tmp_path / "nli", tmp_path / "run"
    folder.mkdir()
    (folder / "model.safetensors").write_text("weights")
    monkeypatch.setattr(factory, "pair_model", lambda *_: NameModel())
    teafarm = ["--system", "none", "--limit", "1", "--out", str(out)]
    assert CliRunner().invoke(run_teafarm, teafarm, catch_exceptions=False).exit_code == 0
    backbone.clear()
    assert CliRunner().invoke(calibrate, ["--nli", str(folder)], catch_exceptions=False).exit_code == 0
    outcome = CliRunner().invoke(judge, [str(out), "--nli", str(folder)], catch_exceptions=False)
    assert "entailment: not believable: kappa" in outcome.stderr
    verdicts = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    (verdict,) = [row for row in verdicts if row["judge"] == "entailment"]
    assert (verdict["label"], verdict["model"].partition("@")[0]) == ("neutral", "nli")
    assert not backbone
    with pytest.raises(BadInput, match="omit --nli"):
        CliRunner().invoke(judge, [str(out), "--criterion", "correct", "--nli", str(folder)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--criterion", "correct", "--criterion", "score", "--labelled", "x.jsonl"], "give one --criterion"),
        (["--criterion", "wise"], "no judge 'wise'"),
        (["--nli", "roberta-large-mnli", "--criterion", "score"], "omit --nli"),
        (["--criterion", "preference", "--samples", "2"], "odd number"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        CliRunner().invoke(calibrate, arguments, catch_exceptions=False)


@pytest.mark.slow
def test_the_starter_weights_judge(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    """A few items of three forms; that its verdicts are worth little is what calibration is there to show."""
    lines = (DATA / "calibration" / "entailment.jsonl").read_text().splitlines()[:3]
    path = tmp_path / "few.jsonl"
    path.write_text("\n".join(lines))
    outcome = localmem(
        "eval", "calibrate", "--criterion", "entailment", "--labelled", path, "--data-dir", tmp_path, "--json"
    )
    assert outcome.returncode == 0, outcome.stderr
    (record,) = json.loads(outcome.stdout)
    assert record["model"]["name"] == "smollm2-135m-instruct"
    assert (record["figures"]["items"], record["figures"]["unusable"]) == (3, 0)
    assert len(record["prompt_sha256"]) == len(record["model"]["checksum"]) == 64


@pytest.mark.slow
def test_the_starter_weights_answer_a_shipped_question(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    out = tmp_path / "run"
    outcome = localmem("eval", "teafarm", "run", "--system", "exchange_retrieval", "--limit", 1, "--out", out, "--json")
    assert outcome.returncode == 0, outcome.stderr
    (row,) = json.loads(outcome.stdout)["systems"]
    assert (row["questions"], row["failed"], row["unjudged"]) == (1, 0, 0)
    assert len((out / "verdicts.jsonl").read_text().splitlines()) == 1
