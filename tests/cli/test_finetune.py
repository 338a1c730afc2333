"""The training commands: models are trained, registered and used by name; classifiers are compared and labelled."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from localmem import factory
from localmem.cli.distill import distill
from localmem.cli.eval.parts import operations as evaluate_operations
from localmem.cli.finetune import finetune
from localmem.config import Settings, system_options
from localmem.evaluation.datasets.labelled_pairs import read_operations
from localmem.experiments import operation_comparison
from localmem.factory import SYSTEMS, Parts
from localmem.factory import compressor as build_compressor
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Meter
from localmem.types import AddUnit, Prompt, RefuseText, RetireUnit
from localmem.weights import Manifest
from tests.evaluation.fixtures import write_records
from tests.fakes import WordRetriever, session
from tests.finetune.play import VOCABULARY, inference_file, operation_file
from tests.finetune.small import small_encoder
from tests.finetune.trainers.test_ranking import write_person

QUICK = ["--set", "learning_rate=5e-3", "--set", "window=32", "--json"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_encoder(tmp_path_factory.mktemp("base"), VOCABULARY)


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    data = operation_file(folder)
    call(["operations", "--base", base, "--pairs", data, "--out", folder / "run", "--epochs", 4, *QUICK])
    return folder / "run"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models."""
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def call(arguments: Sequence[object]) -> Result:
    result = CliRunner().invoke(finetune, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("group", [finetune, distill])
def test_commands_have_at_most_ten_parameters_and_whole_summaries(group: click.Group) -> None:
    for name, command in group.commands.items():
        assert len(command.params) <= 10, name
    result = CliRunner().invoke(group, ["--help"], terminal_width=80)
    assert "..." not in result.output.partition("Commands:")[2]


def summarize(prompt: Prompt) -> str:
    """Summaries repeat the user's words; every operation that the backbone is asked for is an APPEND."""
    if prompt.name == "carecall/summarize":
        lines = prompt.messages[-1].content.splitlines()
        return json.dumps({"memories": [line.partition(": ")[2] for line in lines if line.startswith("User: ")]})
    return "APPEND"


def test_a_trained_classifier_replaces_the_backbone(trained: Path) -> None:
    """CareCall end to end: with the trained classifier no operation is asked of the LLM, and the memory is right."""
    calls, kinds = {}, {}
    for classifier in (None, str(trained)):
        llm = Meter(ScriptedLLM(summarize))
        values = {**system_options("carecall", {}), "classifier": classifier}
        memory = SYSTEMS["carecall"].new_memory(Parts(llm, WordRetriever), values, None)
        memory.apply(memory.end_session(session("Bo has a cat .", "I see.")))
        kinds[classifier] = [type(change) for change in memory.end_session(session("Bo over cat .", name="s2"))]
        calls[classifier] = {name: usage.calls for name, usage in llm.usage().items()}
    # The old sentence goes, and the new one is on record as dropped.
    assert kinds == {None: [AddUnit], str(trained): [RetireUnit, RefuseText]}
    assert calls[None] == {"carecall/summarize": 2, "carecall/operation": 1}
    assert calls[str(trained)] == {"carecall/summarize": 2}


def test_a_classifier_is_registered_and_evaluated_by_name(base: Path, tmp_path: Path, models: Path) -> None:
    data, out = operation_file(tmp_path), tmp_path / "run"
    words = ["operations", "--base", base, "--pairs", data, "--out", out, "--epochs", 4, "--name", "keeper", *QUICK]
    assert json.loads(call(words).stdout)["name"] == "keeper"
    assert Manifest.load(models).models["keeper"].role == "classifier"
    words = ["--classifier", "keeper", "--classifier", out, "--pairs", data, "--set", "sessions=0", "--json"]
    result = CliRunner().invoke(evaluate_operations, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    first, second = json.loads(result.stdout)["models"]
    assert first["accuracy"] == second["accuracy"] > 0.9
    assert first["set_f1"] > 0.9
    assert sum(map(sum, first["confusion"])) == len(read_operations(data).pairs)


def test_bases_and_regimes_are_compared_in_one_table(base: Path, tmp_path: Path) -> None:
    data, nli, out = operation_file(tmp_path), inference_file(tmp_path), tmp_path / "out"
    fields = {"data": f"[{data}]", "nli": f"[{nli}]", "epochs": 2, "learning_rate": 5e-3, "window": 32}
    words = ["compare-operations", "--base", base, "--out", out, "--folds", 2, "--json"]
    words += [word for name, value in fields.items() for word in ("--set", f"training.{name}={value}")]
    words += [word for regime in ("scratch", "zero-shot", "transfer") for word in ("--regime", regime)]
    rows = json.loads(call(words).stdout)
    assert [row["regime"] for row in rows] == ["scratch", "zero-shot", "transfer"]
    assert all(row["runs"] == 2 and sum(map(sum, row["confusion"])) == 192 for row in rows)
    assert rows[1]["confusion"][3][3] == 0  # DELETE is not mapped
    assert "| transfer" in (out / "comparison.md").read_text(encoding="utf-8")
    before = (out / "runs.jsonl").read_text(encoding="utf-8")
    refused = CliRunner().invoke(finetune, [str(word) for word in words])
    assert "--resume" in str(refused.exception)
    assert json.loads(call([*words, "--resume"]).stdout)[0]["accuracy"] == rows[0]["accuracy"]
    assert (out / "runs.jsonl").read_text(encoding="utf-8") == before
    for change in (["--set", "training.epochs=1"], ["--folds", "3"]):
        refused = CliRunner().invoke(finetune, [*map(str, words), "--resume", *change])
        assert "began with other settings: " in str(refused.exception)
    words[words.index("--out") + 1] = tmp_path / "elsewhere"
    refused = CliRunner().invoke(finetune, [*map(str, words), "--resume"])
    assert "elsewhere: it has no begin.json; leave out --resume" in str(refused.exception)


def test_a_comparison_resumes_where_a_fold_was_trained_and_not_scored(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compare-operations", "--base", base, "--folds", 2, "--out", tmp_path / "out", "--json"]
    words += ["--set", f"training.data=[{operation_file(tmp_path)}]", "--set", "training.epochs=1"]
    with monkeypatch.context() as patch:
        patch.setattr(operation_comparison, "load_classifier", lambda _: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            call(words)
    (row,) = json.loads(call([*words, "--resume"]).stdout)
    assert row["runs"] == 2


def test_a_teacher_labels_conversations_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["Bo has a cat.", "Bo has a boat.", "Bo has a job."]
    lines: list[dict[str, object]] = [
        {"id": f"s{n}", "turns": [{"role": "user", "text": text, "time": f"2026-03-0{n + 1}"}]}
        for n, text in enumerate(texts)
    ]
    log, out = write_records(tmp_path, lines, "log.jsonl", lines=True), tmp_path / "labelled.jsonl"
    words = ["label-operations", str(log), "--model", "teacher", "--out", str(out), "--json"]

    def fail(prompt: Prompt) -> str:
        if "job" in prompt.messages[-1].content:
            raise KeyboardInterrupt
        return summarize(prompt)

    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(fail), lambda: None))
    assert CliRunner().invoke(finetune, words).exit_code != 0
    assert len(read_operations(out).pairs) == 1
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(summarize), lambda: None))
    assert "--resume" in str(CliRunner().invoke(finetune, words).exception)
    progress = out.with_name("labelled.jsonl.progress")
    finished = progress.read_text(encoding="utf-8")
    progress.unlink()
    assert f"there is no {progress}, so nothing to continue" in str(
        CliRunner().invoke(finetune, [*words, "--resume"]).exception
    )
    assert len(read_operations(out).pairs) == 1  # a file that is not ours stays as it is
    progress.write_text(finished.replace('"model":"scripted"', '"model":"another"'), encoding="utf-8")
    assert "was labelled by another, now scripted" in str(CliRunner().invoke(finetune, [*words, "--resume"]).exception)
    progress.write_text(finished, encoding="utf-8")
    assert json.loads(call([*words, "--resume"]).stdout)["APPEND"] == 3
    pairs = read_operations(out).pairs
    assert [(pair.first, pair.second, pair.group) for pair in pairs] == [
        (texts[0], texts[1], "s1"),
        (texts[0], texts[2], "s2"),
        (texts[1], texts[2], "s2"),
    ]
    line = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    assert sum(line["probabilities"].values()) == pytest.approx(1)


def test_a_retriever_is_measured_and_registered(tmp_path: Path, models: Path) -> None:
    pairs = [
        {"query": f"{verb} {name}", "positive": f"{name} {thing}", "negatives": ["also nothing"], "group": name}
        for name in ("ana", "ben")  # one in each half
        for verb, thing in (("pet", "cat"), ("drink", "tea"))
    ]
    base = small_encoder(tmp_path / "base", ["pet", "drink", "cat", "tea", "ana", "ben", "also", "nothing"])
    config = base / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("64", "48"), encoding="utf-8")
    path = write_records(tmp_path, pairs, "pairs.jsonl", lines=True)
    words = ["retriever", "--base", base, "--dataset", f"pairs={path}", "--out", tmp_path / "out", "--epochs", 1]
    result = call([*words, "--set", "window=8", "--name", "finder"])
    assert "mean reciprocal rank" in result.stdout
    assert [line.split()[2] for line in result.stdout.splitlines()[-3:]] == ["before", "after", "gain"]
    entry = Manifest.load(models).models["finder"]
    assert (entry.role, entry.dimension, entry.pooling, entry.context_length) == ("encoder", 32, "mean", 48)
    report = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    assert report["report"][0]["questions"] == 2
    assert report["triplets"] == 2  # one of ana's two questions is held out; the other has two wrong texts


@pytest.fixture
def compressor_words(tmp_path: Path, models: Path) -> list[object]:
    """A quick training of a compressor, without its texts."""
    base = small_encoder(tmp_path / "base", ["well", "ana", "ben", "moved", "so"])
    return ["compressor", "--base", base, "--out", tmp_path / "out", "--set", "epochs=1", "--name", "shortener"]


def test_a_compressor_is_registered(compressor_words: list[object], tmp_path: Path, models: Path) -> None:
    texts = [{"dialogue": f"well {name} moved so", "summary": f"{name} moved"} for name in ("ana", "ben") * 5]
    path = write_records(tmp_path, texts, "texts.jsonl", lines=True)
    result = call([*compressor_words, "--train", path, "--json"])
    assert set(json.loads(result.stdout)["measures"]) >= {"auc", "f1", "random_f1", "rate"}
    assert Manifest.load(models).models["shortener"].role == "compressor"
    assert build_compressor("shortener", "cpu").compress(["well ana moved so"], 1.0) == ["well ana moved so"]


def test_a_local_model_labels_the_texts_of_a_compressor(
    compressor_words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def backbone(settings: Settings, notify: object) -> factory.Backbone:
        events.append(settings.model)
        return factory.Backbone(ScriptedLLM(lambda _: "ana moved"), lambda: events.append("closed"))

    monkeypatch.setattr(factory, "backbone", backbone)
    texts: list[dict[str, object]] = [
        {"text": f"{words} ana moved so"} for words in ("well", "so", "so well", "ben", "well ben")
    ]
    path = write_records(tmp_path, texts, "bare.jsonl", lines=True)
    result = call([*compressor_words, "--train", path, "--set", "label_with=smollm2-135m-instruct"])
    assert "labelled 5 of 5 parts" in result.stderr
    assert events == ["smollm2-135m-instruct", "closed"]
    report = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    assert report["settings"]["label_with"] == "smollm2-135m-instruct"
    assert len((tmp_path / "out" / "labels.jsonl").read_text(encoding="utf-8").splitlines()) == 5


def test_a_reranker_without_an_author_is_wrong_usage(tmp_path: Path) -> None:
    words = ["ranking", "--lessons", str(tmp_path), "--reranker", "minilm-l6-v2-reader", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(finetune, words)
    assert result.exit_code == 2
    assert "--reranker 'minilm-l6-v2-reader' is not AUTHOR=FOLDER; write for example" in result.stderr


def test_what_recognises_questions_about_the_user_is_fitted(starter_encoder_dir: Path, tmp_path: Path) -> None:
    for name in ("a-1", "b-1"):
        write_person(tmp_path, name)
    out = tmp_path / "out"
    (row,) = json.loads(call(["asking", "--lessons", tmp_path, "--hold-out", "b", "--out", out, "--json"]).output)
    assert (row["author"], row["questions"], row["questions taken as questions"]) == ("b", 3, 1.0)
    assert "reader: 53aa51172d142c89/3" in (out / "asking.yaml").read_text()
