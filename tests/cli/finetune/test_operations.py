"""The commands about operations: training and registering, comparing, labelling, judging, and CareCall using it all."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localmem import factory
from localmem.cli.eval.operations import operations as compare_classifiers
from localmem.cli.finetune.operations import operations as train
from localmem.config import system_options
from localmem.evaluation.datasets.labelled_pairs import read_operations
from localmem.factory import SYSTEMS, Parts
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Meter
from localmem.types import AddUnit, Prompt, RetireUnit
from localmem.weights import Manifest
from tests.fakes import WordRetriever, session
from tests.finetune.play import VOCABULARY, inference_file, operation_file
from tests.finetune.small import small_encoder

QUICK = ["--batch", "8", "--rate", "5e-3", "--window", "32", "--json"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), VOCABULARY)


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    called(["--base", base, "--data", operation_file(folder), "--out", folder / "run", "--epochs", 4, *QUICK])
    return folder / "run"


def called(arguments: Sequence[object]) -> Result:
    result = CliRunner().invoke(train, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def told(prompt: Prompt) -> str:
    """Summaries of what the user said, word for word; an operation asked of the backbone is an APPEND."""
    if prompt.name == "carecall/summarize":
        said = [
            line.partition(": ")[2] for line in prompt.messages[-1].content.splitlines() if line.startswith("User: ")
        ]
        return json.dumps({"memories": said})
    return "APPEND"


def test_a_trained_classifier_spares_the_backbone(trained: Path) -> None:
    """CareCall end to end: with the trained part no operation is asked of the LLM, and the memory is up to date."""
    calls, kinds = {}, {}
    for classifier in (None, str(trained)):
        llm = Meter(ScriptedLLM(told))
        values = {**system_options("carecall", {}), "classifier": classifier}
        memory = SYSTEMS["carecall"].new_memory(Parts(llm, WordRetriever), values)
        memory.apply(memory.end_session(session("Bo has a cat .", "I see.")))
        kinds[classifier] = [type(change) for change in memory.end_session(session("Bo over cat .", name="s2"))]
        calls[classifier] = {name: spent.calls for name, spent in llm.usage().items()}
    assert kinds == {None: [AddUnit], str(trained): [RetireUnit]}
    assert calls[None] == {"carecall/summarize": 2, "carecall/operation": 1}
    assert calls[str(trained)] == {"carecall/summarize": 2}


def test_a_trained_model_is_registered_and_judged_by_its_name(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    data = operation_file(tmp_path)
    result = called(
        ["--base", base, "--data", data, "--out", tmp_path / "run", "--epochs", 4, "--name", "keeper", *QUICK]
    )
    assert json.loads(result.stdout)["name"] == "keeper"
    assert Manifest.load(tmp_path / "models").models["keeper"].role == "classifier"
    classifiers = ["--classifier", "keeper", "--classifier", str(tmp_path / "run")]
    options = ["--pairs", str(data), "--set", "sessions=0", "--json"]
    comparison = CliRunner().invoke(compare_classifiers, [*classifiers, *options], catch_exceptions=False)
    assert comparison.exit_code == 0, comparison.output
    first, second = json.loads(comparison.stdout)["models"]
    assert first["accuracy"] == second["accuracy"] > 0.9
    assert first["set_f1"] > 0.9
    assert sum(map(sum, first["confusion"])) == len(read_operations(data).pairs)


def test_bases_and_regimes_are_compared_in_one_table(base: Path, tmp_path: Path) -> None:
    data, nli, out = operation_file(tmp_path), inference_file(tmp_path), tmp_path / "out"
    regimes = [word for regime in ("scratch", "zero-shot", "transfer") for word in ("--regime", regime)]
    asked = ["--base", base, "--data", data, "--nli", nli, "--out", out, "--folds", 2, "--epochs", 2, *regimes, *QUICK]
    rows = json.loads(called(asked).stdout)
    assert [row["regime"] for row in rows] == ["scratch", "zero-shot", "transfer"]
    assert all(row["runs"] == 2 and sum(map(sum, row["confusion"])) == 192 for row in rows)
    assert rows[1]["confusion"][3][3] == 0  # DELETE is not mapped
    assert "| transfer" in (out / "comparison.md").read_text(encoding="utf-8")
    before = (out / "runs.jsonl").read_text(encoding="utf-8")
    refused = CliRunner().invoke(train, [str(one) for one in asked])
    assert "--resume" in str(refused.exception)
    assert json.loads(called([*asked, "--resume"]).stdout)[0]["accuracy"] == rows[0]["accuracy"]
    assert (out / "runs.jsonl").read_text(encoding="utf-8") == before


def test_a_teacher_labels_conversations_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["Bo has a cat.", "Bo has a boat.", "Bo has a job."]
    log = tmp_path / "log.jsonl"
    lines = [
        {"id": f"s{n}", "turns": [{"role": "user", "text": text, "time": f"2026-03-0{n + 1}"}]}
        for n, text in enumerate(texts)
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = tmp_path / "labelled.jsonl"
    asked = ["--label-with", "teacher", "--conversations", str(log), "--out", str(out), "--json"]

    def failing(prompt: Prompt) -> str:
        if "job" in prompt.messages[-1].content:
            raise KeyboardInterrupt
        return told(prompt)

    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(failing), lambda: None))
    assert CliRunner().invoke(train, asked).exit_code != 0
    assert len(read_operations(out).pairs) == 1
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(told), lambda: None))
    assert "--resume" in str(CliRunner().invoke(train, asked).exception)
    assert json.loads(called([*asked, "--resume"]).stdout)["APPEND"] == 3
    pairs = read_operations(out).pairs
    assert [(pair.first, pair.second, pair.group) for pair in pairs] == [
        (texts[0], texts[1], "s1"),
        (texts[0], texts[2], "s2"),
        (texts[1], texts[2], "s2"),
    ]
    line = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    assert sum(line["probabilities"].values()) == pytest.approx(1)


def test_misuse_is_told(base: Path, tmp_path: Path) -> None:
    run = CliRunner()
    two = run.invoke(train, ["--base", str(base), "--base", "t5:tiny", "--out", str(tmp_path / "out")])
    assert two.exit_code == 2
    assert "--folds" in two.output
    alone = run.invoke(train, ["--label-with", "m", "--out", str(tmp_path / "out")])
    assert alone.exit_code == 2
    assert "--conversations" in alone.output
